"""The shortest list that takes exactly the given modules out of quantization, in the grammar of a method.

Every candidate is a run of whole path components that touches none of the modules to be kept; the list is a greedy
set cover. Among runs that reach equally far the longest is taken, so that an entry says as much as it can.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from precc.graph.model import EXPERT, natural
from precc.records import record
from precc_sglang.grammar import ABSORBED_TAILS
from precc_sglang.names import Kind, Module


@record
class Grammar:
    """How a list matches: the names that a module is known by, the runs that reach one of them, the spelling.

    `beyond` are runs that reach a name too, and that no list is to say for it.
    """

    names: Callable[[Module], Sequence[str]]
    runs: Callable[[Module, str], Iterator[str]]
    spell: Callable[[str], str]
    beyond: Callable[[str], Iterator[str]] = lambda name: iter(())


Key = tuple[str, str]
"""The prefix of a module, and one of the names that it is known by."""


class Inexpressible(Exception):
    """A module that no entry reaches without reaching one that must stay quantized."""

    def __init__(self, module: Module) -> None:
        super().__init__(module.prefix)
        self.module = module


INNER = "language_model."
"""What some classes take off the front of an entry, which then stands for what is left of it, too."""


def cover(out: Iterable[Module], kept: Iterable[Module], grammar: Grammar) -> list[str]:
    """This is the list for `out`, in natural order. Raises Inexpressible."""
    kept_names = [(module, name) for module in kept for name in grammar.names(module)]
    forbidden = {run for module, name in kept_names for run in (*grammar.runs(module, name), *grammar.beyond(name))}
    reach: dict[str, set[Key]] = {}
    wanted: dict[Key, Module] = {}
    for module in out:
        for name in grammar.names(module):
            wanted[(module.prefix, name)] = module
            for run in grammar.runs(module, name):
                if run not in forbidden and run.removeprefix(INNER) not in forbidden:
                    reach.setdefault(run, set()).add((module.prefix, name))
    chosen = _greedy(reach, set(wanted))
    missed = next((module for key, module in wanted.items() if not any(key in reach[run] for run in chosen)), None)
    if missed is not None:
        raise Inexpressible(missed)
    chosen += dict.fromkeys(_left_out(wanted, chosen, reach))
    return sorted((grammar.spell(run) for run in chosen), key=natural)


def _left_out(wanted: Mapping[Key, Module], chosen: Sequence[str], reach: Mapping[str, set[Key]]) -> Iterator[str]:
    """The names of members that a glob alone reaches where a run reaches others of the same fused module.

    Servers ask the runs first, of each member, and stop where these answer for some of them.
    """
    by_run: set[Key] = set().union(*(reach[run] for run in chosen if "*" not in run))
    some = {prefix for prefix, _ in by_run}
    yield from (
        name.removeprefix("model.") for prefix, name in wanted if prefix in some and (prefix, name) not in by_run
    )


def _greedy(reach: dict[str, set[Key]], wanted: set[Key]) -> list[str]:
    left = set(wanted)
    heap = [_rank(run, len(names)) for run, names in reach.items()]
    heapq.heapify(heap)
    chosen = []
    while left and heap:
        rank = heapq.heappop(heap)
        run = rank[-1]
        now = len(reach[run] & left)
        if now == -rank[0]:
            chosen.append(run)
            left -= reach[run]
        elif now:
            heapq.heappush(heap, _rank(run, now))
    for run in tuple(chosen):
        others = set().union(*(reach[other] for other in chosen if other != run))
        if reach[run] <= others:
            chosen.remove(run)
    return chosen


def _rank(run: str, count: int) -> tuple[int, int, int, str]:
    return -count, -run.count("."), -len(run), run


# --- the three grammars ------------------------------------------------------------------------------


def _shards(module: Module) -> Sequence[str]:
    """The unfused names, which a list is matched on; of a draft's latent attention the fused one too.

    The draft class never declares what it fuses: whether the config knows depends on the process it is built in.
    """
    if module.draft and len(module.shards) > 1 and any(shard.endswith(ABSORBED_TAILS) for shard in module.shards):
        return (*module.shards, module.prefix)
    return module.shards


def _dotted_runs(module: Module, name: str) -> Iterator[str]:
    """Every run of components, the leading `model` left aside: the FP8 configs match with and without it.

    None ends in `layers`, which would be all of them, and only the decoder's own begins so: what stands above the
    layers of another tree belongs to a run.
    """
    parts = name.removeprefix("model.").split(".")
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            run = parts[start:stop]
            inner = start and run[0] in DECODER
            if not (run[0].isdecimal() or run[-1] == "layers" or inner or EXPERT in run):
                yield ".".join(run)


DECODER = ("layers", "decoder")
"""How the names of layers begin below `model`, in a decoder that no multimodal wrapper surrounds."""


def _spell_dotted(run: str) -> str:
    return f"model.{run}" if run.split(".")[0] in DECODER else run


def _layers_within(name: str) -> Iterator[str]:
    """The runs that begin with `layers` in the middle of a name: an entry for layer 0 reaches `mtp.layers.0` too."""
    parts = name.removeprefix("model.").split(".")
    start = next((at for at, part in enumerate(parts) if at and part in DECODER), len(parts))
    yield from (".".join(parts[start:stop]) for stop in range(start + 2, len(parts) + 1))


DOTTED = Grammar(_shards, _dotted_runs, _spell_dotted, _layers_within)
"""`modules_to_not_convert` of FP8 and MXFP8: no globs."""


WRAPPED = "model.language_model."
"""How the names of a wrapped decoder begin. Some classes rename list entries that begin so, and not what they ask."""


def _unrenamed(name: str) -> str:
    return f"*.{name.removeprefix('model.')}" if name.startswith(WRAPPED) else name


def _modelopt_runs(module: Module, name: str) -> Iterator[str]:
    """Runs for a linear layer; for an expert layer its whole prefix or one component; globs for either.

    A run that ends in a latent-attention projection is named by that projection alone, which is how far it reaches.
    """
    parts = name.split(".")
    if module.kind is Kind.EXPERTS:
        yield _unrenamed(name)
        yield from (part for part in parts if not part.isdecimal())
    else:
        for run in _dotted_runs(module, name):
            yield run.rpartition(".")[2] if run.endswith(ABSORBED_TAILS) else run
    numbers = [at for at, part in enumerate(parts) if part.isdecimal()]
    if numbers and numbers[0] + 1 < len(parts):
        yield _unrenamed(".".join((*parts[: numbers[0] + 1], "*")))
        if name.endswith(ABSORBED_TAILS):
            yield f"{module.prefix[:-1]}*"


def _spell_modelopt(run: str) -> str:
    if run.endswith(ABSORBED_TAILS):
        return f"self_attn.{run}"
    return _spell_dotted(run) if "." in run else run


MODELOPT = Grammar(lambda module: module.shards, _modelopt_runs, _spell_modelopt)
"""`ignore` of ModelOpt: globs, whole names, single components."""


def _known_names(module: Module) -> Sequence[str]:
    """Every name that a reader of the format may ask with: unfused, fused, and an expert's projections."""
    if module.kind is Kind.EXPERTS:
        return [f"{module.prefix}.{EXPERT}.{part}_proj" for part in ("gate", "up", "down")]
    return list(dict.fromkeys((*module.shards, module.prefix)))


def _spell_regex(run: str) -> str:
    return rf"re:(?:.*\.)?{re.escape(run)}(?:\..*)?$"


REGEX = Grammar(_known_names, _dotted_runs, _spell_regex)
"""`ignore` of compressed-tensors, by regular expressions: runs of components again, whatever was fused."""
