"""What Miles' live export does with a trained weight: its lists of Megatron names, and its layer counts.

From `miles/backends/megatron_utils/megatron_to_hf/processors/quantizer_{mxfp8,nvfp4,fp8}.py`, which a run in `raw`
mode calls with each parameter's name. The number of an MTP layer is compared with the counts as if it were a decoder
layer's (`quantizer_mxfp8.py:19-36`), and no list but that of NVFP4 reads what the converter left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from precc.graph.model import Tensor
from precc_miles.forms import FP8_BLOCK, MXFP8, NVFP4, Form
from precc_miles.names import Hit, Linear, checkpoint_name, hit

_EXPERTS = frozenset(f"mlp.{kind}.linear_fc{number}" for kind in ("experts", "shared_experts") for number in (1, 2))

_SHARED_LIST = _EXPERTS | {
    "self_attention.linear_proj",
    "self_attention.linear_qkv",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
    "self_attention.linear_q_proj",
    "self_attention.linear_q_down_proj",
    "self_attention.linear_q_up_proj",
    "self_attention.linear_kv_down_proj",
    "self_attention.linear_kv_up_proj",
    "self_attention.wq_b",
}
INDEXER_KEYS = "self_attention.wk"

_ALLOWED: Mapping[str, frozenset[str]] = {
    NVFP4.name: _EXPERTS,
    MXFP8.name: _SHARED_LIST,
    FP8_BLOCK.name: _SHARED_LIST
    | {f"self_attention.linear_attn.{part}" for part in ("in_proj_qkv", "in_proj_z", "out_proj")},
}
"""The linear layers whose weights are quantized on their way to the server."""


@dataclass(frozen=True, slots=True)
class Export:
    """The exporter's arguments: the form of the checkpoint that the run names, layer counts, and parts of names.

    `flagged` is `--first-last-layers-bf16`, without which the counts are not read. `interleaved` is the model's
    `indexer_rope_interleave`.
    """

    form: Form
    flagged: bool = False
    start: int = 1
    end: int = 1
    exceptions: tuple[str, ...] = ()
    interleaved: bool = False

    def quantizes(self, tensor: Tensor, linear: Linear | None, layers: int, listed: Collection[str]) -> Hit:
        """Whether a tensor is quantized; None where it is so for some experts only. `listed` is the converter's."""
        if linear is None or not takes(self.form, linear, self.interleaved):
            return False
        if self._counted(linear, layers) or (self.form is NVFP4 and _is_listed(tensor, listed)):
            return False
        left = hit(self.exceptions, linear.parameter, tensor.experts) if self.form.exceptions else False
        return None if left is None else not left

    def _counted(self, linear: Linear, layers: int) -> bool:
        number = linear.layer if linear.mtp is None else linear.mtp
        if not self.flagged or number is None or not self.form.counts:
            return False
        return number < self.start or number >= layers - self.end


def takes(form: Form, linear: Linear, interleaved: bool) -> bool:
    """Whether the exporter quantizes a linear layer unless it is told otherwise."""
    if linear.suffix == INDEXER_KEYS:
        return form is not NVFP4 and not interleaved
    return linear.suffix in _ALLOWED[form.name]


def _is_listed(tensor: Tensor, listed: Collection[str]) -> bool:
    """Whether the list names a tensor, or a module that it is below. Entries that end in a dot match nothing."""
    words = checkpoint_name(tensor).split(".")
    return any(".".join(words[:length]) in listed for length in range(1, len(words) + 1))
