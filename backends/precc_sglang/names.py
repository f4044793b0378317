"""The module of SGLang that holds a tensor, and the prefix its class asks the quantization config with.

One row a model class, from the classes of 0.5.23 as they are built. A class fuses q, k and v, gate and up, and (with
latent attention) q_a and kv_a; it may or may not declare that to the config (`packed`): what it does not declare, the
`compressed-tensors` and `modelopt_mixed` matchers know under the fused name only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role


class Kind(Enum):
    """What a module is to the quantization config."""

    LINEAR = "linear layer"
    EXPERTS = "expert layer"
    HEAD = "LM head"
    NEVER = "module that is built without a quantization config"


@dataclass(frozen=True, slots=True)
class Module:
    """One module: the prefix it asks with, and the unfused names it stands for (its own where nothing is fused).

    `draft` modules belong to the next-token draft model, which reads the same config through its own class. An
    `EXPERT` component stands for the number of each expert where a class builds one module an expert.
    """

    prefix: str
    kind: Kind
    shards: tuple[str, ...]
    draft: bool = False

    @property
    def last(self) -> str:
        return self.prefix.rpartition(".")[2]


Packed = Mapping[str, tuple[str, ...]]

QKV: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
GATE_UP: Packed = {"gate_up_proj": ("gate_proj", "up_proj")}
QKV_A: Packed = {"fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa")}


@dataclass(frozen=True)
class ModelClass:
    """One class of SGLang: what it fuses, and what of that it declares as `packed_modules_mapping`.

    `head` says whether the LM head asks the config. `draft_mapper` is the one substring that the draft class
    replaces in the config's names. `drops_nvfp4_draft` is a draft class that discards a ModelOpt FP4 config.
    `folds_shared` is how the class may fold its shared expert into the expert layer: `""`, `count` (only for the
    validated numbers of routed experts) or `any`.
    """

    name: str
    fuses: Packed
    packed: Packed
    head: bool = True
    draft_mapper: tuple[str, str] | None = None
    drops_nvfp4_draft: bool = False
    folds_shared: str = ""
    block_scales_load: bool = True

    @cached_property
    def part_of(self) -> dict[str, str]:
        """Each fused part's last component → the fused module's."""
        return {part: fused for fused, parts in self.fuses.items() for part in parts}


_DENSE = {**QKV, **GATE_UP}
_LATENT = {**QKV_A, **GATE_UP}
_LLAMA = ModelClass("LlamaForCausalLM", _DENSE, {}, block_scales_load=False)
_MIXTRAL = ModelClass("MixtralForCausalLM", QKV, {}, head=False)
UNFUSED_MIXTRAL = ModelClass("QuantMixtralForCausalLM", QKV, {}, head=False)
_DEEPSEEK = ModelClass("DeepseekV2ForCausalLM", _LATENT, QKV_A)

CLASSES: dict[str, ModelClass] = {
    "LlamaForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": ModelClass("Qwen2ForCausalLM", _DENSE, {}),
    "Qwen3ForCausalLM": ModelClass("Qwen3ForCausalLM", _DENSE, {}),
    "Qwen3MoeForCausalLM": ModelClass("Qwen3MoeForCausalLM", _DENSE, _DENSE),
    "MixtralForCausalLM": _MIXTRAL,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": ModelClass(
        "DeepseekV3ForCausalLM",
        _LATENT,
        QKV_A,
        draft_mapper=("model.layers.61", "model.decoder"),
        drops_nvfp4_draft=True,
        folds_shared="count",
    ),
    "DeepseekV32ForCausalLM": ModelClass(
        "DeepseekV32ForCausalLM",
        _LATENT,
        QKV_A,
        draft_mapper=("model.layers.61", "model.decoder"),
        drops_nvfp4_draft=True,
    ),
    "Glm4MoeForCausalLM": ModelClass("Glm4MoeForCausalLM", _DENSE, {}, drops_nvfp4_draft=True, folds_shared="any"),
}
"""By the architecture that `config.json` names."""

MIXTRAL_WITH_EXPERT_LAYER = frozenset({"", "fp8", "compressed-tensors"})
"""The methods under which Mixtral is built with one expert layer; any other builds one module an expert."""

_NEVER_ROLES = frozenset({Role.ROUTER, Role.EMBEDDING, Role.NORM})
_NEVER_NAMES = frozenset({"shared_expert_gate", "eh_proj"})
_NEVER_IN_INDEXER = frozenset({"wk", "weights_proj"})
"""On a GPU these two are one BF16 module, `wk_weights_proj`, that never asks."""


def class_of(model: ModelGraph, method: str) -> ModelClass | None:
    """The class that SGLang builds for a model under a quantization method (empty for none); None if unknown."""
    found = CLASSES.get(model.architecture)
    if found is _MIXTRAL and method not in MIXTRAL_WITH_EXPERT_LAYER:
        return UNFUSED_MIXTRAL
    if found is None or _compresses_queries(model):
        return found
    return _without_query_fusion(found)


def _compresses_queries(model: ModelGraph) -> bool:
    return any(tensor.part == "q_a" for tensor in model.tensors)


def _without_query_fusion(found: ModelClass) -> ModelClass:
    def other(packed: Packed) -> Packed:
        return {fused: parts for fused, parts in packed.items() if fused not in QKV_A}

    return replace(found, fuses=other(found.fuses), packed=other(found.packed))


def module_of(tensor: Tensor, built: ModelClass) -> Module | None:
    """The module that holds a tensor; None for what is no GEMM operand (norms, biases, correction terms)."""
    if not tensor.is_gemm:
        return None
    path, draft = _asked_path(tensor, built)
    kind = _kind(tensor, built)
    if kind is Kind.EXPERTS:
        container = ".".join(path[: path.index(EXPERT)])
        return Module(container, kind, (container,), draft)
    *parents, last = path
    fused = built.part_of.get(last) if kind is Kind.LINEAR else None
    if fused is None:
        return Module(".".join(path), kind, (".".join(path),), draft)
    shards = tuple(".".join((*parents, part)) for part in built.fuses[fused])
    return Module(".".join((*parents, fused)), kind, shards, draft)


def _kind(tensor: Tensor, built: ModelClass) -> Kind:
    last = tensor.path[-1]
    if tensor.role is Role.LM_HEAD:
        return Kind.HEAD if built.head and tensor.tied_to is None else Kind.NEVER
    if tensor.role in _NEVER_ROLES or last in _NEVER_NAMES:
        return Kind.NEVER
    if "indexer" in tensor.path and last in _NEVER_IN_INDEXER:
        return Kind.NEVER
    if tensor.role is Role.ROUTED_EXPERTS and built.name != UNFUSED_MIXTRAL.name:
        return Kind.EXPERTS
    return Kind.LINEAR


def _asked_path(tensor: Tensor, built: ModelClass) -> tuple[tuple[str, ...], bool]:
    """The path in SGLang's own tree, and whether it is the draft model's."""
    path = tensor.path
    if tensor.mtp is not None:
        below = path[tensor.outer_depth :]
        return (("model", *below) if below[0] == "shared_head" else ("model", "decoder", *below)), True
    if built.name == _MIXTRAL.name and path[0] == "model" and path[1] == "layers":
        return path[1:], False
    return path, False
