"""What is said of a model class of SGLang, and how it names the modules of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from precc.graph.model import EXPERT, Tensor
from precc.records import record
from precc.syntax.words import Role

Packed = Mapping[str, tuple[str, ...]]
"""Fused modules, and the parts of each."""

Renaming = tuple[tuple[str, str], ...]
"""Runs of components that stand for others in a name, `""` for none, each replaced in turn."""

TOWERS = frozenset({Role.VISION, Role.AUDIO})


@record
class ModelClass:
    """One class of SGLang: what it fuses, and what of that it declares as `packed_modules_mapping`.

    `head` says whether the LM head asks the config. `draft_mapper` is the one substring that the draft class
    replaces in the config's names. `drops_nvfp4_draft` is a draft class that discards a ModelOpt FP4 config.
    `folds_shared` is how the class may fold its shared expert into the expert layer: `""`, `count` (only for the
    validated numbers of routed experts), `width` (only where it is as wide as a routed one) or `any`. Modules of the
    roles in `never` are built without a config.
    `never_under` a method some modules, by their last words, are.
    `only_under` a method some modules, by their last words, are built with a config.
    `unasking` are the last words of modules that this class builds without a config where others build them with one.
    `alone` are modules of a role, by their last word, that are not fused where those of that name elsewhere are.
    `fp8_beside_fp4` is a class whose checkpoints have block FP8 beside experts in four bits: the config of the method
    `fp8` says in what the routed experts are.
    `draft_head` is the name of an LM head that the draft class builds and no checkpoint stores.
    `experts` is how its loader knows quantized experts: `single`, by the names of each expert's weights; `stacked`, all
    of a layer in one tensor with all their scales in others; `bare`, stacked and without scales.
    `mxfp4` is how it loads experts in MXFP4: `stacked`, under a method that has nothing but expert layers to hold;
    `packed`, each by itself as compressed-tensors packs it; `beside`, each by itself under the method `fp8`, beside
    block FP8; `""` for not at all.
    `joins` are the last words of modules whose weights the class joins after loading, their scales left behind.
    `blocks_below` is a loader that puts the scales of `kv_a_proj_with_mqa` behind those of `q_a_proj` in blocks of 128.
    `fills_all` is a loader that stops where no tensor is loaded into a parameter, scales of inputs among them.
    `unfit` are expert backends that do not know the class's activation, by the family of what they would multiply.
    `tree` turns names of a checkpoint into those of the class's own modules, where these are not what it asks with;
    `draft_tree` does the same below an MTP layer.
    `asks` turns them into those that it asks with.
    `mapper` is what the class does to the config's names: one run of characters replaced, then one beginning.
    `drafts` is false where the draft class asks with the names of the decoder's layer 0: it is never run beside that.
    `bare_draft` is a draft class that builds its layer without a config: nothing that is written for it is ever read.
    `idle` modules are built and never run, and no checkpoint fills them.
    `draft_layer` is what the draft class calls its one layer.
    `fuses_indexer_keys` is an indexer whose `wk` and `weights_proj` are, on a GPU, one BF16 module that never asks.
    `text_only` classes leave out vision and audio towers unless the server is started with `--enable-multimodal`.
    `permutes_queries` is a loader that reorders the rows of q and k within each head, and not the scales of rows.
    `asking` are the last words of modules that this class builds with a config, and every other one without.
    """

    name: str
    fuses: Packed
    packed: Packed
    head: bool = True
    draft_mapper: tuple[str, str] | None = None
    drops_nvfp4_draft: bool = False
    folds_shared: str = ""
    block_scales_load: bool = True
    never: frozenset[Role] = frozenset()
    never_under: tuple[str, frozenset[str]] = ("", frozenset())
    only_under: tuple[str, frozenset[str]] = ("", frozenset())
    unasking: frozenset[str] = frozenset()
    alone: frozenset[tuple[Role, str]] = frozenset()
    fp8_beside_fp4: bool = False
    experts: str = "single"
    mxfp4: str = ""
    joins: frozenset[str] = frozenset()
    blocks_below: bool = False
    fills_all: bool = False
    unfit: Mapping[str, frozenset[str]] = MappingProxyType({})
    fuses_indexer_keys: bool = False
    tree: Renaming = ()
    draft_tree: Renaming = ()
    draft_head: str = ""
    asks: Renaming = ()
    mapper: tuple[Renaming, Renaming] = ((), ())
    drafts: bool = True
    bare_draft: bool = False
    draft_layer: str = "decoder"
    idle: frozenset[str] = frozenset()
    text_only: bool = False
    permutes_queries: bool = False
    asking: frozenset[str] = frozenset()

    def bars(self, tensor: Tensor) -> bool:
        """Whether the class builds a tensor's module without a config where others build it with one."""
        last, tail = tensor.path[-1], ".".join(tensor.path[-2:])
        words = self.never_under[1] | self.only_under[1] | self.unasking
        return tensor.role in self.never or last in words or tail in self.part_of

    def holds(self, tensor: Tensor) -> bool:
        """Whether a server of this class, or its draft model, has a module for a tensor at all."""
        drafted = tensor.mtp is None or (self.drafts and not self.bare_draft)
        return drafted and not (self.text_only and tensor.outer in TOWERS)

    def renamed(self, word: str) -> str:
        """A name of the config as the class has it: the longest run that occurs is replaced, then so is a beginning."""
        inside, ahead = (sorted(table, key=lambda pair: -len(pair[0])) for table in self.mapper)
        run, other = next((pair for pair in inside if pair[0] in word), ("", ""))
        word = word.replace(run, other, 1) if run else word
        begin, instead = next((pair for pair in ahead if word.startswith(pair[0])), ("", ""))
        return instead + word.removeprefix(begin)

    def key(self, prefix: str) -> str:
        """A name that the class's mapper makes a module's prefix of, as far as it changes one within."""
        for run, other in self.mapper[0]:
            prefix = prefix.replace(other, run, 1)
        return prefix

    def placed(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Where a tensor of that path stands in the class's own tree."""
        return _renamed(path, self.tree)

    def drafted(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Where a tensor of that path below an MTP layer stands in the draft class's own tree."""
        return _renamed(path, self.draft_tree)

    def asked(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Under which name the module that holds a tensor of that path asks."""
        return _renamed(path, self.asks)

    @cached_property
    def part_of(self) -> dict[str, str]:
        """Each fused part's last component → the fused module's."""
        return {part: fused for fused, parts in self.fuses.items() for part in parts}

    def fused(self, path: tuple[str, ...], role: Role | None) -> tuple[str, tuple[str, ...]] | None:
        """The name of the fused module that holds a tensor of that path, and those of its parts; None for its own.

        A part may be named by its last two words, where one alone is another part's.
        """
        if role is not None and (role, path[-1]) in self.alone:
            return None
        for width in (2, 1):
            found = self.part_of.get(".".join(path[-width:]))
            if found is not None:
                above = path[:-width]
                return ".".join((*above, found)), tuple(".".join((*above, part)) for part in self.fuses[found])
        return None


def _renamed(path: tuple[str, ...], runs: Renaming) -> tuple[str, ...]:
    if not runs:
        return path
    name = f".{'.'.join(path)}."
    for run, other in runs:
        name = name.replace(f".{run}.", f".{other}." if other else ".")
    return tuple(EXPERT if word == EXPERT else word for word in name.strip(".").split("."))
