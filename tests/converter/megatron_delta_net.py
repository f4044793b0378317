"""One gated delta net in Megatron-Core's own module and in that of transformers, with the mapped weights of each other.

Run as a program: for each family, the largest output and how far both sides differ, as JSON on standard output. Of
flash-linear-attention, which Megatron's module asks for, there is the one function that it calls beside its own
reference for deterministic runs.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from converter.megatron_parameters import install, prepare
from converter.models import model
from torch.nn import functional

from precc_converter.trainer import TrainerNames
from precc_converter.trainer.values import to_huggingface

PREFIX = "decoder.layers.0.self_attention."
TOKENS = 96
_WIDTHS = ("linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")


class Projection(torch.nn.Module):
    """A linear layer as Megatron builds and calls it."""

    def __init__(self, input_size: int, output_size: int, **_: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(output_size, input_size))

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The product, and no bias."""
        return functional.linear(hidden, self.weight), None


class CentredNorm(torch.nn.Module):
    """An RMSNorm as TransformerEngine computes it with `zero_centered_gamma`."""

    def __init__(self, hidden_size: int, eps: float, **_: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size))
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scaled by one and the weight."""
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


def _unit(hidden: torch.Tensor) -> torch.Tensor:
    return hidden * torch.rsqrt((hidden * hidden).sum(-1, keepdim=True) + 1e-6)


def megatron(facts: dict[str, Any]) -> torch.nn.Module:
    """Megatron's module of a family's sizes."""
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.ssm import gated_delta_net
    from megatron.core.transformer import TransformerConfig

    gated_delta_net.HAVE_FLA, gated_delta_net.l2norm = True, _unit
    sizes = {key: facts[key] for key in facts if key.startswith("linear_") and isinstance(facts[key], int)}
    config = TransformerConfig(
        num_layers=1,
        hidden_size=facts["hidden_size"],
        num_attention_heads=facts["num_attention_heads"],
        activation_func=functional.silu,
        layernorm_epsilon=1e-6,
        use_cpu_initialization=True,
        perform_initialization=False,
        **sizes,
    )
    config.deterministic_mode = True
    parts = gated_delta_net.GatedDeltaNetSubmodules(Projection, CentredNorm, Projection)
    groups = ProcessGroupCollection.use_mpu_process_groups(required_pgs=["tp"])
    module: torch.nn.Module = gated_delta_net.GatedDeltaNet(config, parts, layer_number=1, pg_collection=groups)
    return module


def theirs(family: str, facts: dict[str, Any]) -> torch.nn.Module:
    """The module of transformers."""
    kept = (
        "hidden_size",
        "num_hidden_layers",
        "layer_types",
        *(key for key in facts if key.startswith("linear_num")),
        *_WIDTHS,
    )
    sizes = {key: list(facts[key]) if key == "layer_types" else facts[key] for key in kept}
    if family == "qwen3_next":
        from transformers.models.qwen3_next import configuration_qwen3_next, modeling_qwen3_next

        config = configuration_qwen3_next.Qwen3NextConfig(**sizes)
        return modeling_qwen3_next.Qwen3NextGatedDeltaNet(config, 0)
    from transformers.models.qwen3_5 import configuration_qwen3_5, modeling_qwen3_5

    return modeling_qwen3_5.Qwen3_5GatedDeltaNet(configuration_qwen3_5.Qwen3_5TextConfig(**sizes), 0)


@torch.no_grad()
def compared(family: str) -> dict[str, float]:
    """Random weights in Megatron's module, and the same under the checkpoint's names in that of transformers."""
    graph = model(family)
    facts, names = dict(graph.config), TrainerNames(graph)
    ours, other = megatron(facts), theirs(family, facts)
    torch.manual_seed(0)
    stored: dict[str, torch.Tensor] = {}
    for name, parameter in ours.named_parameters():
        parameter.copy_(torch.randn(parameter.shape) * 0.3)
        stored |= to_huggingface(names.place(PREFIX + name), parameter.detach())
    short = {name.partition(".linear_attn.")[2]: value for name, value in stored.items()}
    other.load_state_dict(short, strict=True)
    hidden = torch.randn(TOKENS, 1, facts["hidden_size"])
    mine, _ = ours(hidden, None)
    found = other(hidden.transpose(0, 1)).transpose(0, 1)
    return {"largest": float(found.abs().max()), "difference": float((found - mine).abs().max())}


def main() -> None:
    """Answer for each family. Megatron's own prints go to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    install()
    prepare()
    print(json.dumps({family: compared(family) for family in ("qwen3_next", "qwen3_5")}), file=answers)


if __name__ == "__main__":
    main()
