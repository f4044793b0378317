"""What SGLang 0.5.16 does with a checkpoint that Miles converted: which modules its method takes, by the written list.

From `srt/layers/quantization/utils.py:48-125` (dotted runs of components), `fp8.py:308-317` (each entry with and
without `model.`), and `modelopt_quant.py:278-375` (globs, and one rule for all layers' latent projections).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role
from precc_miles.forms import NVFP4, Form
from precc_miles.names import Hit

_DEEPSEEK = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM")

DRAFTS: Mapping[str, tuple[str, str]] = dict.fromkeys(_DEEPSEEK, ("model.layers.61", "model.decoder"))
"""What a next-token draft class replaces in the list's names; other drafts look for their own names in it."""

DROPPED: frozenset[str] = frozenset({*_DEEPSEEK, "Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"})
"""Architectures whose draft class discards an NVFP4 configuration."""

AS_FIRST: frozenset[str] = frozenset({"Qwen3NextForCausalLM"})
"""Architectures whose draft class asks with the names of the decoder's layer 0."""

_NEVER_ROLES = frozenset({Role.ROUTER, Role.EMBEDDING, Role.NORM})
_NEVER_NAMES = frozenset({"shared_expert_gate", "eh_proj", "wk", "weights_proj"})
"""Modules that are built without a quantization config. The indexer's two are one BF16 module on a GPU."""

_LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")


@dataclass(frozen=True)
class Server:
    """A model as SGLang builds it from a checkpoint in one form, with the exclusion list of its `config.json`."""

    form: Form
    entries: tuple[str, ...]
    model: ModelGraph

    def quantizes(self, tensor: Tensor) -> Hit:
        """Whether the module that holds a tensor runs quantized; None where SGLang refuses to start, because the list
        takes some members of a fused module only."""
        if not self._asks(tensor):
            return False
        if self.form is NVFP4 and self._drops(tensor):
            return False
        listed = {self._is_listed(name, tensor) for name in self._members(tensor)}
        return not listed.pop() if len(listed) == 1 else None

    def _drops(self, tensor: Tensor) -> bool:
        """Whether the draft class builds a tensor's module without the config: not its head."""
        return tensor.mtp is not None and tensor.role is not Role.LM_HEAD and self.model.architecture in DROPPED

    def _asks(self, tensor: Tensor) -> bool:
        if not tensor.is_gemm or tensor.outer in (Role.VISION, Role.AUDIO) or tensor.role in _NEVER_ROLES:
            return False
        if tensor.role is Role.LM_HEAD:
            return self.form is NVFP4 and tensor.tied_to is None
        return tensor.part != "fc" and tensor.path[-1] not in _NEVER_NAMES

    def _members(self, tensor: Tensor) -> tuple[str, ...]:
        """The names that are looked for: the expert container's, or those of the members of a fused module."""
        if tensor.role is Role.ROUTED_EXPERTS:
            names: tuple[tuple[str, ...], ...] = (tensor.path[: tensor.path.index(EXPERT)],)
        else:
            names = self._fused.get(dict(tensor.fused).get("sglang", ""), (tensor.path,))
        return tuple(".".join(self._asked(name, tensor)) for name in names)

    def _asked(self, path: Sequence[str], tensor: Tensor) -> tuple[str, ...]:
        """The path in SGLang's own tree: a draft model has its layer under `decoder`."""
        if tensor.mtp is None:
            return tuple(path)
        below = tuple(path[tensor.outer_depth :])
        if self.model.architecture in AS_FIRST:
            return ("model", "layers", "0", *below)
        return ("model", *below) if below[:1] == ("shared_head",) else ("model", "decoder", *below)

    @cached_property
    def _fused(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        found: dict[str, tuple[tuple[str, ...], ...]] = {}
        for tensor in self.model.tensors:
            group = dict(tensor.fused).get("sglang")
            if group is not None and tensor.parameter == "weight":
                found[group] = (*found.get(group, ()), tensor.path)
        return found

    def _is_listed(self, name: str, tensor: Tensor) -> bool:
        names = self._renamed if tensor.mtp is not None else self._spelled
        if self.form is not NVFP4:
            return names.holds_run(name) or (tensor.role is Role.ROUTED_EXPERTS and names.holds_below(name))
        excluded = names.excludes(name)
        return excluded if tensor.role is Role.ROUTED_EXPERTS else excluded or names.holds_run(name)

    @cached_property
    def _spelled(self) -> Names:
        if self.form is NVFP4:
            return Names(self.entries)
        bare = [entry.removeprefix("model.") for entry in self.entries]
        return Names(tuple(word for entry in bare for word in (entry, f"model.{entry}")))

    @cached_property
    def _renamed(self) -> Names:
        rename = DRAFTS.get(self.model.architecture)
        entries = self._spelled.entries
        return Names(tuple(entry.replace(*rename) for entry in entries) if rename else entries)


@dataclass(frozen=True)
class Names:
    """An exclusion list as SGLang matches it."""

    entries: tuple[str, ...]

    @cached_property
    def _runs(self) -> frozenset[str]:
        return frozenset(entry.rstrip(".") for entry in self.entries)

    @cached_property
    def _tails(self) -> frozenset[str]:
        return frozenset(entry.rpartition(".")[2] for entry in self.entries)

    @cached_property
    def _globs(self) -> tuple[re.Pattern[str], ...]:
        starred = (entry for entry in self.entries if "*" in entry)
        return tuple(re.compile(entry.replace(".", r"\.").replace("*", ".*")) for entry in starred)

    def holds_run(self, name: str) -> bool:
        """Whether an entry is a run of whole components of a name."""
        words = name.split(".")
        ends = range(1, len(words) + 1)
        return any(".".join(words[start:end]) in self._runs for end in ends for start in range(end))

    def holds_below(self, name: str) -> bool:
        """Whether an entry names something below an expert container."""
        return any(name in entry for entry in self.entries if "experts" in entry)

    def excludes(self, name: str) -> bool:
        """ModelOpt's rule: the whole name or one component of it; a latent projection anywhere is one everywhere."""
        words = name.split(".")
        if any(word in self._whole for word in (name, *words)):
            return True
        if any(glob.fullmatch(word) for glob in self._globs for word in (name, *words)):
            return True
        return any(tail in self._tails and tail in words[-1] for tail in _LATENT)

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(self.entries)
