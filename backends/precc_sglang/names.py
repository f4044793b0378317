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
DELTA_NET: Packed = {"in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a")}
QKV_A: Packed = {"fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa")}

Renaming = tuple[tuple[str, str], ...]
"""Runs of components that stand for others in a name, `""` for none, each replaced in turn."""


@dataclass(frozen=True)
class ModelClass:
    """One class of SGLang: what it fuses, and what of that it declares as `packed_modules_mapping`.

    `head` says whether the LM head asks the config. `draft_mapper` is the one substring that the draft class
    replaces in the config's names. `drops_nvfp4_draft` is a draft class that discards a ModelOpt FP4 config.
    `folds_shared` is how the class may fold its shared expert into the expert layer: `""`, `count` (only for the
    validated numbers of routed experts), `width` (only where it is as wide as a routed one) or `any`. Modules of the
    roles in `never` are built without a config.
    `never_under` a method some modules, by their last words, are.
    `loads_single_experts` is whether its loader knows the names of each expert's weights, which quantized ones have.
    `tree` turns names of a checkpoint into those of the class's own modules, where these are not what it asks with;
    `asks` turns them into those that it asks with.
    `mapper` is what the class does to the config's names: one run of characters replaced, then one beginning.
    `drafts` is false where the draft class asks with the names of the decoder's layer 0: it is never run beside that.
    `fuses_indexer_keys` is an indexer whose `wk` and `weights_proj` are, on a GPU, one BF16 module that never asks.
    `text_only` classes leave out vision and audio towers unless the server is started with `--enable-multimodal`.
    `permutes_queries` is a loader that reorders the rows of q and k within each head, and not the scales of rows.
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
    loads_single_experts: bool = True
    fuses_indexer_keys: bool = False
    tree: Renaming = ()
    asks: Renaming = ()
    mapper: tuple[Renaming, Renaming] = ((), ())
    drafts: bool = True
    text_only: bool = False
    permutes_queries: bool = False

    def bars(self, tensor: Tensor) -> bool:
        """Whether the class builds a tensor's module without a config where others build it with one."""
        return tensor.role in self.never or tensor.path[-1] in self.never_under[1]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a server of this class, or its draft model, has a module for a tensor at all."""
        return not (self.text_only and tensor.outer in TOWERS) and (self.drafts or tensor.mtp is None)

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

    def asked(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Under which name the module that holds a tensor of that path asks."""
        return _renamed(path, self.asks)

    @cached_property
    def part_of(self) -> dict[str, str]:
        """Each fused part's last component → the fused module's."""
        return {part: fused for fused, parts in self.fuses.items() for part in parts}


def _renamed(path: tuple[str, ...], runs: Renaming) -> tuple[str, ...]:
    if not runs:
        return path
    name = f".{'.'.join(path)}."
    for run, other in runs:
        name = name.replace(f".{run}.", f".{other}." if other else ".")
    return tuple(EXPERT if word == EXPERT else word for word in name.strip(".").split("."))


_DENSE = {**QKV, **GATE_UP}
_HYBRID = {**QKV, **GATE_UP, **DELTA_NET}
_WRAPPED: Renaming = (("model.language_model", "model"), ("model.visual", "visual"), ("attn.qkv", "attn.qkv_proj"))
_QWEN3_VL: tuple[Renaming, Renaming] = (
    (("attn.qkv", "attn.qkv_proj"),),
    (
        ("model.language_model.", "language_model.model."),
        ("model.visual.", "visual."),
        ("lm_head.", "language_model.lm_head."),
        ("model.", "language_model.model."),
    ),
)
_QWEN3_5: Renaming = (
    *_WRAPPED,
    ("self_attn", ""),
    ("mtp.layers", "model.layers"),
    ("mtp.norm", "model.norm"),
    ("mtp", ""),
)
_KIMI: Renaming = (
    ("wqkv", "attn.qkv_proj"),
    ("wo", "attn.proj"),
    ("mm_projector.proj.0", "mm_projector.linear_1"),
    ("mm_projector.proj.2", "mm_projector.linear_2"),
)
_LATENT = {**QKV_A, **GATE_UP}
_LLAMA = ModelClass("LlamaForCausalLM", _DENSE, {}, block_scales_load=False)
_MIXTRAL = ModelClass("MixtralForCausalLM", QKV, {}, head=False, asks=(("model.layers", "layers"),))
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
    "Qwen3NextForCausalLM": ModelClass(
        "Qwen3NextForCausalLM",
        _DENSE,
        _DENSE,
        folds_shared="width",
        never_under=("modelopt_fp4", frozenset(QKV["qkv_proj"])),
        tree=(("self_attn", ""),),
        drafts=False,
    ),
    "Qwen3_5ForConditionalGeneration": ModelClass(
        "Qwen3_5ForConditionalGeneration", _HYBRID, _HYBRID, drops_nvfp4_draft=True, tree=_QWEN3_5
    ),
    "Qwen3_5MoeForConditionalGeneration": ModelClass(
        "Qwen3_5MoeForConditionalGeneration", _HYBRID, _HYBRID, drops_nvfp4_draft=True, tree=_QWEN3_5
    ),
    "Qwen3VLMoeForConditionalGeneration": ModelClass(
        "Qwen3VLMoeForConditionalGeneration", _DENSE, {}, tree=_WRAPPED, mapper=_QWEN3_VL
    ),
    "GptOssForCausalLM": ModelClass(
        "GptOssForCausalLM",
        QKV,
        {},
        head=False,
        never=frozenset({Role.ATTENTION}),
        loads_single_experts=False,
    ),
    "GlmMoeDsaForCausalLM": ModelClass(
        "GlmMoeDsaForCausalLM", _LATENT, QKV_A, drops_nvfp4_draft=True, folds_shared="count"
    ),
    "Gemma3ForCausalLM": ModelClass("Gemma3ForCausalLM", _DENSE, _DENSE),
    "Gemma3ForConditionalGeneration": ModelClass(
        "Gemma3ForConditionalGeneration", _DENSE, _DENSE, tree=(("self_attn.out_proj", "self_attn.proj"),)
    ),
    "Llama4ForConditionalGeneration": ModelClass(
        "Llama4ForConditionalGeneration", _DENSE, _DENSE, text_only=True, permutes_queries=True
    ),
    "KimiK25ForConditionalGeneration": ModelClass(
        "KimiK25ForConditionalGeneration",
        _LATENT,
        QKV_A,
        tree=_KIMI,
        asks=(("language_model", ""),),
        mapper=((), (("language_model.layers.", "language_model.model.layers."),)),
    ),
    "MiniMaxM2ForCausalLM": ModelClass("MiniMaxM2ForCausalLM", _DENSE, _DENSE, head=False),
}
"""By the architecture that `config.json` names."""

MIXTRAL_WITH_EXPERT_LAYER = frozenset({"", "fp8", "compressed-tensors"})
"""The methods under which Mixtral is built with one expert layer; any other builds one module an expert."""

TOWERS = frozenset({Role.VISION, Role.AUDIO})
_NEVER_ROLES = frozenset({Role.ROUTER, Role.EMBEDDING, Role.NORM})
_NEVER_NAMES = frozenset({"shared_expert_gate", "eh_proj", "weights_proj"})


def class_of(model: ModelGraph, method: str) -> ModelClass | None:
    """The class that SGLang builds for a model under a quantization method (empty for none); None if unknown."""
    found = CLASSES.get(model.architecture)
    if found is _MIXTRAL and method not in MIXTRAL_WITH_EXPERT_LAYER:
        return UNFUSED_MIXTRAL
    if found is None:
        return None
    if found.never_under[0] != method:
        found = replace(found, never_under=("", frozenset()))
    if model.config.get("indexer_rope_interleave"):
        found = replace(found, fuses_indexer_keys=True)
    return found if _compresses_queries(model) else _without_query_fusion(found)


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
        container = ".".join(path[: path.index(EXPERT)] if EXPERT in path else path[:-1])
        return Module(container, kind, (container,), draft)
    *parents, last = path
    fuses = kind is Kind.LINEAR or built.bars(tensor) or tensor.outer in TOWERS
    fused = built.part_of.get(last) if fuses else None
    if fused is None:
        return Module(".".join(path), kind, (".".join(path),), draft)
    shards = tuple(".".join((*parents, part)) for part in built.fuses[fused])
    return Module(".".join((*parents, fused)), kind, shards, draft)


def _kind(tensor: Tensor, built: ModelClass) -> Kind:
    last = tensor.path[-1]
    if tensor.outer in TOWERS or not built.holds(tensor):
        return Kind.NEVER
    if tensor.role is Role.LM_HEAD:
        return Kind.HEAD if built.head and tensor.tied_to is None else Kind.NEVER
    if tensor.role in _NEVER_ROLES or built.bars(tensor) or last in _NEVER_NAMES:
        return Kind.NEVER
    if tensor.role is Role.ROUTED_EXPERTS and built.name != UNFUSED_MIXTRAL.name:
        return Kind.EXPERTS
    return Kind.LINEAR


def _asked_path(tensor: Tensor, built: ModelClass) -> tuple[tuple[str, ...], bool]:
    """The path in SGLang's own tree, and whether it is the draft model's."""
    path = tensor.path
    if tensor.mtp is not None and tensor.outer_depth > 1:
        below = path[tensor.outer_depth :]
        return (("model", *below) if below[0] == "shared_head" else ("model", "decoder", *below)), True
    return built.asked(path), tensor.mtp is not None
