"""SGLang's model classes: what each fuses, and how it names its modules to its config, in a row each.

The rows are those of 0.5.23, as its classes are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from precc.graph.model import EXPERT, Tensor
from precc.syntax.words import Role

Packed = Mapping[str, tuple[str, ...]]

QKV: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
GATE_UP: Packed = {"gate_up_proj": ("gate_proj", "up_proj")}
DELTA_NET: Packed = {"in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a")}
QKV_A: Packed = {"fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa")}

COMPRESSED: Packed = {
    "wqkv_a": ("wq_a", "wkv"),
    "compressor.wkv_gate": ("compressor.wkv", "compressor.wgate"),
}

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
    `only_under` a method some modules, by their last words, are built with a config.
    `fp8_beside_fp4` is a class whose checkpoints have block FP8 beside experts in four bits: the config of the method
    `fp8` says in what the routed experts are.
    `draft_head` is the name of an LM head that the draft class builds and no checkpoint stores.
    `loads_single_experts` is whether its loader knows the names of each expert's weights, which quantized ones have.
    `loads_mxfp4` is whether it loads stacks in MXFP4, and gives their method nothing but expert layers to hold.
    `tree` turns names of a checkpoint into those of the class's own modules, where these are not what it asks with;
    `draft_tree` does the same below an MTP layer.
    `asks` turns them into those that it asks with.
    `mapper` is what the class does to the config's names: one run of characters replaced, then one beginning.
    `drafts` is false where the draft class asks with the names of the decoder's layer 0: it is never run beside that.
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
    fp8_beside_fp4: bool = False
    loads_single_experts: bool = True
    loads_mxfp4: bool = False
    fuses_indexer_keys: bool = False
    tree: Renaming = ()
    draft_tree: Renaming = ()
    draft_head: str = ""
    asks: Renaming = ()
    mapper: tuple[Renaming, Renaming] = ((), ())
    drafts: bool = True
    draft_layer: str = "decoder"
    idle: frozenset[str] = frozenset()
    text_only: bool = False
    permutes_queries: bool = False
    asking: frozenset[str] = frozenset()

    def bars(self, tensor: Tensor) -> bool:
        """Whether the class builds a tensor's module without a config where others build it with one."""
        last, tail = tensor.path[-1], ".".join(tensor.path[-2:])
        return tensor.role in self.never or last in self.never_under[1] | self.only_under[1] or tail in self.part_of

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

    def fused(self, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """The name of the fused module that holds a tensor of that path, and those of its parts; None for its own.

        A part may be named by its last two words, where one alone is another part's.
        """
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
_NEMOTRON: Renaming = (
    ("backbone", "model"),
    ("embeddings", "embed_tokens"),
    ("mtp.layers", "model.layers"),
    ("A_log", "A"),
)
INDEX_QKV: Packed = {"index_qkv_proj": ("index_q_proj", "index_k_proj")}
_MINIMAX_M3: Renaming = (("block_sparse_moe", "mlp"),)
_MINIMAX_M3_TREE: Renaming = (
    *_MINIMAX_M3,
    ("language_model", ""),
    ("mlp.fc1", "fc1"),
    ("mlp.fc2", "fc2"),
    ("self_attn.out_proj", "self_attn.proj"),
    ("multi_modal_projector", "vision_tower.multi_modal_projector"),
    ("patch_merge_mlp", "vision_tower.patch_merge_mlp"),
)
_MIMO_DRAFT: Renaming = (("pre_mlp_layernorm", "post_attention_layernorm"),)
_GEMMA4: Renaming = (("experts", "moe.experts"),)
_GEMMA4_TREE: Renaming = (
    *_GEMMA4,
    ("router.per_expert_scale", "moe.per_expert_scale"),
    ("model", ""),
    *((f"{part}_proj.linear", f"qkv.{part}_proj") for part in "qkv"),
    *((f"{part}_proj.linear", f"gate_up.{part}_proj") for part in ("gate", "up")),
)
_GEMMA4_ASKS: Renaming = (
    *_GEMMA4,
    *((f"{part}_proj.linear", f"{part}_proj") for part in ("q", "k", "v", "gate", "up")),
)
_V4_LAYER: Renaming = (
    ("attn", "self_attn"),
    ("ffn", "mlp"),
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("w1", "gate_proj"),
    ("w2", "down_proj"),
    ("w3", "up_proj"),
)
_V4_APART: Renaming = (("compressor.norm", "compressor.keys_norm"),)
_V4_TOGETHER: Renaming = (("compressor.keys_norm", "compressor.norm"),)
_V4: Renaming = (
    *_V4_APART,
    ("layers", "model.layers"),
    *_V4_LAYER,
    ("embed", "model.embed_tokens"),
    ("head", "lm_head"),
    ("norm", "model.norm"),
    *((f"hc_head_{word}", f"model.hc_head_{word}") for word in ("fn", "base", "scale")),
    *_V4_TOGETHER,
)
_V4_DRAFT: Renaming = (*_V4_APART, *_V4_LAYER, ("norm", "shared_head.norm"), *_V4_TOGETHER)
_LATENT = {**QKV_A, **GATE_UP}
_LLAMA = ModelClass("LlamaForCausalLM", _DENSE, {}, block_scales_load=False)
MIXTRAL = ModelClass("MixtralForCausalLM", QKV, {}, head=False, asks=(("model.layers", "layers"),))
UNFUSED_MIXTRAL = ModelClass("QuantMixtralForCausalLM", QKV, {}, head=False)
_DEEPSEEK = ModelClass("DeepseekV2ForCausalLM", _LATENT, QKV_A)

CLASSES: dict[str, ModelClass] = {
    "LlamaForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": ModelClass("Qwen2ForCausalLM", _DENSE, {}),
    "Qwen3ForCausalLM": ModelClass("Qwen3ForCausalLM", _DENSE, {}),
    "Qwen3MoeForCausalLM": ModelClass("Qwen3MoeForCausalLM", _DENSE, _DENSE),
    "MixtralForCausalLM": MIXTRAL,
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
        loads_mxfp4=True,
    ),
    "GlmMoeDsaForCausalLM": ModelClass(
        "GlmMoeDsaForCausalLM", _LATENT, QKV_A, drops_nvfp4_draft=True, folds_shared="count"
    ),
    "Gemma3ForCausalLM": ModelClass("Gemma3ForCausalLM", _DENSE, _DENSE),
    "Gemma3ForConditionalGeneration": ModelClass(
        "Gemma3ForConditionalGeneration", _DENSE, _DENSE, tree=(("self_attn.out_proj", "self_attn.proj"),)
    ),
    "Gemma4ForConditionalGeneration": ModelClass(
        "Gemma4ForConditionalGeneration", _DENSE, _DENSE, tree=_GEMMA4_TREE, asks=_GEMMA4_ASKS
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
    "MiniMaxM3SparseForConditionalGeneration": ModelClass(
        "MiniMaxM3SparseForConditionalGeneration",
        {**_DENSE, **INDEX_QKV},
        {**_DENSE, **INDEX_QKV},
        folds_shared="any",
        tree=_MINIMAX_M3_TREE,
        asks=_MINIMAX_M3,
        mapper=(((".block_sparse_moe.", ".mlp."),), ()),
        idle=frozenset({"vision_tower.vision_model.post_layernorm"}),
    ),
    "MiMoV2FlashForCausalLM": ModelClass(
        "MiMoV2FlashForCausalLM",
        _DENSE,
        {},
        draft_tree=_MIMO_DRAFT,
        draft_layer="mtp_block",
    ),
    "DeepseekV4ForCausalLM": ModelClass(
        "DeepseekV4ForCausalLM",
        {**COMPRESSED, **GATE_UP},
        {},
        only_under=("fp8", frozenset({"wo_a"})),
        fp8_beside_fp4=True,
        tree=_V4,
        draft_tree=_V4_DRAFT,
        draft_head="model.shared_head.head",
        asks=_V4,
    ),
    "MiniMaxM2ForCausalLM": ModelClass("MiniMaxM2ForCausalLM", _DENSE, _DENSE, head=False),
    "NemotronHForCausalLM": ModelClass(
        "NemotronHForCausalLM",
        QKV,
        QKV,
        tree=_NEMOTRON,
        asks=(("backbone", "model"),),
        mapper=((), (("backbone.", "model."),)),
        asking=frozenset({"eh_proj"}),
    ),
}
"""By the architecture that `config.json` names."""

MIXTRAL_WITH_EXPERT_LAYER = frozenset({"", "fp8", "compressed-tensors"})
"""The methods under which Mixtral is built with one expert layer; any other builds one module an expert."""

TOWERS = frozenset({Role.VISION, Role.AUDIO})
