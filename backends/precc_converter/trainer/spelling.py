"""One parameter, several names: what the trainer calls its experts, its norms and an MTP layer's inner layer.

All spellings are read; one is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from precc.graph.model import EXPERT
from precc_converter.trainer.parameters import Parameter, numbered
from precc_converter.trainer.slots import INNER

LATER_INNER = "mtp_model_layer"
"""What Megatron-Core's main branch, and 0.19, call an MTP layer's inner layer; 0.16 calls it `transformer_layer`."""

_INNER = re.compile(rf"^(mtp\.layers\.\d+)\.{LATER_INNER}\.")
_GROUPED = re.compile(r"(\.experts\.linear_fc[12]\.(?:weight|bias))(\d+)$")
_SEQUENTIAL = re.compile(r"(\.experts)\.local_experts\.(\d+)(\.linear_fc[12]\.(?:weight|bias))$")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a trainer spells what can be spelled in two ways.

    `grouped` experts (`--moe-grouped-gemm`) are `mlp.experts.linear_fc1.weight7`, sequential ones
    `mlp.experts.local_experts.7.linear_fc1.weight`. `fused_norms` is how TransformerEngine's layers have them.
    `inner` is an MTP layer's inner layer.
    """

    grouped: bool = True
    fused_norms: bool = True
    inner: str = INNER

    def write(self, parameter: Parameter, expert: int | None = None) -> str:
        """This is a parameter's name; with an expert's number where there is one."""
        name = parameter.name if self.fused_norms or not parameter.alone else parameter.alone
        if parameter.experts is not None and not self.grouped:
            name = _sequential(name)
        return numbered(name.replace(f".{INNER}.", f".{self.inner}.", 1), expert)


def read_name(name: str) -> tuple[str, int | None]:
    """This is a name as `Parameter` writes it, an expert's number taken out."""
    name = _INNER.sub(rf"\1.{INNER}.", name)
    if found := _GROUPED.search(name):
        return name[: found.start()] + found[1] + EXPERT, int(found[2])
    if found := _SEQUENTIAL.search(name):
        return name[: found.start()] + found[1] + found[3] + EXPERT, int(found[2])
    return name, None


def _sequential(grouped: str) -> str:
    return grouped.removesuffix(EXPERT).replace(".experts.", f".experts.local_experts.{EXPERT}.", 1)
