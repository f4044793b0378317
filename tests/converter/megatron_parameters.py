"""The parameters of real Megatron-Core GPTModels, by name and shape, as JSON on standard output.

Run as a program with a JSON list of requests as its argument: `config` (TransformerConfig fields), `vocabulary`,
`tied`, `engine` (TransformerEngine's layer specs or Megatron's own layers). The model and its specs are Megatron's; of
TransformerEngine, whose kernels need a GPU, there are stand-ins that only allocate what its layers allocate.
`stages`: for each [layers, stages, chunks], Megatron's own first layer of every chunk of every stage.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import warnings
from typing import Any

import torch

from precc_te.upstream.standin import ROOT, Finder

warnings.simplefilter("ignore")


class Linear(torch.nn.Module):
    """What `transformer_engine.pytorch.Linear` allocates."""

    def __init__(self, in_features: int, out_features: int, *_: Any, bias: bool = True, **__: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(out_features, in_features))
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(out_features))


class LayerNormLinear(Linear):
    """What `transformer_engine.pytorch.LayerNormLinear` allocates."""

    def __init__(self, in_features: int, *rest: Any, **named: Any) -> None:
        super().__init__(in_features, *rest, **named)
        self.layer_norm_weight = torch.nn.Parameter(torch.zeros(in_features))


class GroupedLinear(torch.nn.Module):
    """What `transformer_engine.pytorch.GroupedLinear` allocates."""

    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, *_: Any, bias: bool = True, **__: Any
    ) -> None:
        super().__init__()
        for number in range(num_gemms):
            setattr(self, f"weight{number}", torch.nn.Parameter(torch.zeros(out_features, in_features)))
            if bias:
                setattr(self, f"bias{number}", torch.nn.Parameter(torch.zeros(out_features)))

    def init_fp8_metadata(self, **_: Any) -> None:
        """Nothing to prepare."""


class Norm(torch.nn.Module):
    """What `transformer_engine.pytorch.RMSNorm` allocates."""

    def __init__(self, hidden_size: int, *_: Any, **__: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size))


class DotProductAttention(torch.nn.Module):
    """What `transformer_engine.pytorch.DotProductAttention` allocates."""

    def __init__(self, num_attention_heads: int, *_: Any, softmax_type: str = "vanilla", **__: Any) -> None:
        super().__init__()
        if softmax_type == "learnable":
            self.softmax_offset = torch.nn.Parameter(torch.zeros(num_attention_heads))


class Silent:
    """Anything that allocates nothing."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return torch.nn.Identity()


def install() -> None:
    """This puts the stand-ins in place of TransformerEngine."""
    sys.meta_path.insert(0, Finder((ROOT,)))
    pytorch: Any = importlib.import_module(f"{ROOT}.pytorch")
    importlib.import_module(ROOT).pytorch = pytorch  # type: ignore[attr-defined]
    for name, layer in {
        "Linear": Linear,
        "LayerNormLinear": LayerNormLinear,
        "GroupedLinear": GroupedLinear,
        "RMSNorm": Norm,
        "DotProductAttention": DotProductAttention,
        "Fp8Padding": Silent,
        "Fp8Unpadding": Silent,
    }.items():
        setattr(pytorch, name, layer)
    offload: Any = importlib.import_module(f"{ROOT}.pytorch.cpu_offload")
    offload.get_cpu_offload_context = lambda *_, **__: (contextlib.nullcontext(), None)


def prepare() -> None:
    """One rank of one, and what Megatron asks of CUDA for a model."""
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    torch.cuda.Stream = torch.cuda.Event = Silent  # type: ignore[misc]
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)


def parameters(request: dict[str, Any]) -> dict[str, list[int]]:
    """The parameters and the persistent buffers of a model, by name."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    options, engine = request["config"], request["engine"]
    config = (MLATransformerConfig if options.get("multi_latent_attention") else TransformerConfig)(
        use_cpu_initialization=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        moe_token_dispatcher_type="alltoall",
        **options,
    )
    hybrid = options.get("experimental_attention_variant")
    spec = _hybrid(config) if hybrid else specs.get_gpt_decoder_block_spec(config, use_transformer_engine=engine)
    ahead = specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=engine) if config.mtp_num_layers else None
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=request["vocabulary"],
        max_sequence_length=64,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=request["tied"],
        mtp_block_spec=ahead,
    )
    held = {**dict(model.named_parameters()), **{n: b for n, b in model.named_buffers() if n in model.state_dict()}}
    return {name: list(tensor.shape) for name, tensor in held.items()}


def _hybrid(config: Any) -> Any:
    """Megatron's spec of layers that attend in two ways; its gated delta net asks whether it has kernels, no more."""
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as specs
    from megatron.core.ssm import gated_delta_net

    gated_delta_net.HAVE_FLA = True
    return specs.get_transformer_block_with_experimental_attention_variant_spec(config)


def stages(request: dict[str, Any]) -> list[list[list[int]]]:
    """Megatron's own first layer, [chunk][stage], of each layout asked for."""
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    found = []
    for layers, count, chunks in request["stages"]:
        config = TransformerConfig(
            num_layers=layers,
            hidden_size=64,
            num_attention_heads=4,
            pipeline_model_parallel_size=count,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
            pipeline_dtype=torch.bfloat16,
        )
        found.append(
            [
                [get_transformer_layer_offset(config, chunk if chunks > 1 else None, stage) for stage in range(count)]
                for chunk in range(chunks)
            ]
        )
    return found


def main() -> None:
    """Answer every request. Megatron's own prints go to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    install()
    prepare()
    requests = json.loads(sys.argv[1])
    print(json.dumps([(stages if "stages" in asked else parameters)(asked) for asked in requests]), file=answers)


if __name__ == "__main__":
    main()
