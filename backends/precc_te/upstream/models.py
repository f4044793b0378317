"""Small real models: `GPTModel` from Megatron's own TransformerEngine layer specs, a rank's chunks at a time."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from precc_te.indexers import rhythm_of
from precc_te.upstream.wire import Layout, Structure

WIDTH = 32
EXPERTS = 2
"""Experts a layer: what holds for two local experts, the matchers are asked for all of them."""


def options(structure: Structure, layout: Layout, width: int = WIDTH) -> dict[str, Any]:
    """Megatron's configuration of a small model of that structure, but for its precision."""
    found: dict[str, Any] = {
        "num_layers": structure.layers,
        "hidden_size": width,
        "num_attention_heads": 4,
        "use_cpu_initialization": True,
        "perform_initialization": False,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "normalization": "RMSNorm",
        "persist_layer_norm": False,
        "bias_dropout_fusion": False,
        "gradient_accumulation_fusion": False,
        **_pipeline(structure, layout),
    }
    if any(structure.experts_in):
        found |= {
            "num_moe_experts": EXPERTS,
            "moe_ffn_hidden_size": WIDTH,
            "moe_layer_freq": [int(here) for here in structure.experts_in],
            "moe_grouped_gemm": layout.grouped,
            "moe_token_dispatcher_type": "alltoall",
        }
    if structure.shared:
        found["moe_shared_expert_intermediate_size"] = WIDTH
    if structure.mtp:
        found["mtp_num_layers"] = structure.mtp
    if structure.latent:
        found |= _LATENT | {"q_lora_rank": 16 if structure.query_rank else None}
    if structure.indexer_in:
        found |= _INDEXER | _rhythm(structure)
    if structure.linear_in:
        found |= _DELTA_NET | {"linear_attention_freq": [int(here) for here in structure.linear_in]}
    return found


_LATENT = {
    "multi_latent_attention": True,
    "kv_lora_rank": 16,
    "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 8,
    "v_head_dim": 8,
    "rope_type": "rope",
    "qk_layernorm": True,
}
_INDEXER = {
    "experimental_attention_variant": "dsa",
    "dsa_indexer_n_heads": 2,
    "dsa_indexer_head_dim": 16,
    "dsa_indexer_topk": 4,
}


_DELTA_NET = {
    "experimental_attention_variant": "gated_delta_net",
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 16,
    "attention_output_gate": True,
}


def _rhythm(structure: Structure) -> dict[str, Any]:
    """Which layers have an indexer, where not all do."""
    rhythm = rhythm_of(structure.layers, structure.indexer_in)
    if len(structure.indexer_in) == structure.layers or rhythm is None:
        return {}
    return {"dsa_indexer_topk_freq": rhythm.every, "dsa_indexer_skip_topk_offset": rhythm.offset}


def _pipeline(structure: Structure, layout: Layout) -> dict[str, Any]:
    """Equal stages where the layers divide, else a longer last one."""
    found: dict[str, Any] = {"pipeline_model_parallel_size": layout.pp}
    if layout.vpp > 1:
        found["virtual_pipeline_model_parallel_size"] = layout.vpp
    if structure.layers % layout.pp:
        found["num_layers_in_last_pipeline_stage"] = last_stage(structure.layers, layout.pp)
    return found


def last_stage(layers: int, pp: int) -> int:
    """How many layers are left for the last stage when the others hold equally many, rounded down."""
    return layers - (pp - 1) * (layers // pp)


def initialize(layout: Layout, rank: int) -> None:
    """This makes the process one rank of a job, without the others."""
    import torch
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if torch.distributed.is_initialized():
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", rank=rank, world_size=layout.pp, store=FakeStore())
    virtual = layout.vpp if layout.vpp > 1 else None
    parallel_state.initialize_model_parallel(1, layout.pp, virtual, create_gloo_process_groups=False)


def without_cuda() -> None:
    """What Megatron asks of CUDA when it builds a model has an answer on any machine."""
    import torch

    from precc_te.upstream.standin import Silent

    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    torch.cuda.Stream = torch.cuda.Event = Silent  # type: ignore[misc]
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]


def chunks(structure: Structure, layout: Layout, fields: Mapping[str, Any], width: int = WIDTH) -> list[Any]:
    """The model of this rank: one GPTModel, or one for each virtual chunk. `fields` are further ones of its config."""
    import torch
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    config = (MLATransformerConfig if structure.latent else TransformerConfig)(
        **{**options(structure, layout, width), "pipeline_dtype": torch.bfloat16, **fields}
    )
    return [_chunk(config, stage) for stage in (range(layout.vpp) if layout.vpp > 1 else (None,))]


def _chunk(config: Any, stage: int | None) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs

    spec = _decoder_spec(config, stage)
    ahead = None
    if config.mtp_num_layers and spec.layer_specs:
        ahead = specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=_uses_te(config), vp_stage=stage)
    place = {"ignore_virtual": stage is None, "vp_stage": stage}
    return GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=32,
        max_sequence_length=16,
        position_embedding_type="rope",
        mtp_block_spec=ahead,
        pre_process=parallel_state.is_pipeline_first_stage(**place),
        post_process=parallel_state.is_pipeline_last_stage(**place),
        vp_stage=stage,
    ).train()


def _decoder_spec(config: Any, stage: int | None) -> Any:
    from megatron.core.models.gpt import gpt_layer_specs as specs

    if config.experimental_attention_variant is None:
        return specs.get_gpt_decoder_block_spec(config, use_transformer_engine=_uses_te(config), vp_stage=stage)
    variants = importlib.import_module("megatron.core.models.gpt.experimental_attention_variant_module_specs")
    try:
        return variants.get_transformer_block_with_experimental_attention_variant_spec(config, vp_stage=stage)
    except ValueError:  # 0.16 has the attention's spec, and leaves it to the caller to build the block
        attention = variants.get_dsa_module_spec_for_backend(config, specs.TESpecProvider())
    config.experimental_attention_variant = None
    block = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=_uses_te(config), vp_stage=stage)
    layers = [_with_attention(layer, attention) for layer in block.layer_specs]
    config.experimental_attention_variant = "dsa"
    return replace(block, layer_specs=layers)


def _uses_te(config: Any) -> bool:
    return bool(config.transformer_impl == "transformer_engine")


def _with_attention(layer: Any, attention: Any) -> Any:
    return replace(layer, submodules=replace(layer.submodules, self_attention=attention))


def visit(model: Any) -> None:
    """This runs Megatron's own forward of the decoder and the MTP block; every linear layer below is reached.

    The linear layers of a decoder or MTP layer are called one after the other in place of the layer's own forward,
    inside whatever contexts Megatron entered for it.
    """
    import torch

    hidden = torch.zeros(2, 1, model.config.hidden_size)
    for layer in model.decoder.layers:
        layer.forward = _reach(layer, (hidden, None))
    model.decoder.set_input_tensor(hidden)
    model.decoder(hidden_states=hidden, attention_mask=None)
    for layer in _ahead(model):
        inner = getattr(layer, "transformer_layer", None) or layer.mtp_model_layer
        inner.forward = _reach(inner, (hidden, None))
        layer._concat_embeddings = _reach(layer.eh_proj, hidden)
        layer._proj_and_transformer_layer(hidden, hidden)


def _ahead(model: Any) -> Iterator[Any]:
    block = getattr(model, "mtp", None)
    return iter(() if block is None else block.layers)


def _reach(root: Any, answer: Any) -> Callable[..., Any]:
    """A forward that only calls every linear layer at or below a module."""

    def forward(*_: Any, **__: Any) -> Any:
        import torch

        for module in root.modules():
            if hasattr(module, "te_quant_params"):
                module(torch.zeros(2, 1, 1), *([[2]] if hasattr(module, "num_gemms") else []))
        return answer

    return forward
