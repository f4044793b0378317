"""What Miles' converters do with a tensor: their lists and checks, and the exclusion list that they write.

From `tools/convert_hf_to_mxfp8.py:29-140` and `tools/convert_hf_to_nvfp4.py:34-100,206-221,353-363`, and
`tools/convert_hf_to_fp8.py:129-157`, which has no way to leave anything out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc_miles.forms import FP8_BLOCK, MXFP8, NVFP4, Form
from precc_miles.names import Hit, checkpoint_name, hit

DENIED: tuple[str, ...] = (
    "layernorm",
    "embed",
    "router",
    "mlp.gate.",
    "norm",
    "lm_head",
    "eh_proj",
    "weights_proj",
    "head.",
    "wo_a",
    "ffn.gate.",
    "compressor.",
)
"""Parts of names that the FP8 and MXFP8 converters leave as they are."""

_DENIED: Mapping[str, tuple[str, ...]] = {
    MXFP8.name: DENIED,
    FP8_BLOCK.name: (*DENIED, "vision_tower", "mm_projector"),
}

_EXPERT_MARKERS = (".experts.", ".shared_experts.")
_EXPERT_PARTS = ("w1", "w2", "w3", "gate_proj", "up_proj", "down_proj", "gate_up_proj")
_EXPERT_TAILS = tuple(f".{part}.weight" for part in _EXPERT_PARTS)
_QKV = (".q_proj", ".k_proj", ".v_proj")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The converter's arguments: the form, layers at start and end in BF16, and parts of names to leave out."""

    form: Form
    start: int = 0
    end: int = 0
    exceptions: tuple[str, ...] = ()

    def layer_prefixes(self, layers: int) -> tuple[str, ...]:
        """The prefixes of the layers that the counts leave out."""
        kept = (*range(self.start), *range(layers - self.end, layers))
        return tuple(f"model.layers.{layer}." for layer in kept)

    def quantizes(self, tensor: Tensor, layers: int) -> Hit:
        """Whether the tool quantizes a stored tensor; None where it does so with some experts of the range only."""
        if not takes(self.form, tensor):
            return False
        left = hit((*self.exceptions, *self.layer_prefixes(layers)), checkpoint_name(tensor), tensor.experts)
        return None if left is None else not left


def takes(form: Form, tensor: Tensor) -> bool:
    """Whether a tool quantizes a tensor unless it is told otherwise. What does not divide stays, without a word."""
    name = checkpoint_name(tensor)
    if len(tensor.shape) < 2 or not name.endswith(".weight") or tensor.shape[-1] % form.divisor:
        return False
    if form is NVFP4:
        return any(marker in name for marker in _EXPERT_MARKERS) and name.endswith(_EXPERT_TAILS)
    return not any(part in name for part in _DENIED[form.name])


def listed(conversion: Conversion, model: ModelGraph) -> tuple[str, ...]:
    """The exclusion list that the tool writes into `config.json`.

    That of FP8 has every name without `.weight`, wherever that stands in it: `indexer.weights_proj` is not found again.
    """
    entries = dict.fromkeys(conversion.layer_prefixes(model.layers))
    for tensor in model.tensors:
        if conversion.quantizes(tensor, model.layers) is True:
            continue
        if conversion.form is FP8_BLOCK:
            entries[checkpoint_name(tensor).replace(".weight", "")] = None
        elif tensor.parameter == "weight":
            entries |= dict.fromkeys(_entries(conversion, tensor, model.layers))
    return tuple(entries)


def _entries(conversion: Conversion, tensor: Tensor, layers: int) -> Iterator[str]:
    """What one tensor that stays adds to the list. Routed experts add nothing to that of MXFP8, and all of their layer
    to that of NVFP4."""
    module = ".".join(tensor.path)
    if f".{EXPERT}." not in f".{module}.":
        yield module
        if conversion.form is NVFP4 and module.endswith(_QKV):
            yield f"{module.rpartition('.')[0]}.qkv_proj"
    elif conversion.form is NVFP4:
        yield from _leaves(conversion, tensor, layers)
        yield module.partition(f".{EXPERT}.")[0]


def _leaves(conversion: Conversion, tensor: Tensor, layers: int) -> Iterator[str]:
    """The experts that stay, by name, unless the counts leave their layer out."""
    whole = hit(conversion.layer_prefixes(layers), checkpoint_name(tensor), tensor.experts)
    left = hit(conversion.exceptions, checkpoint_name(tensor), tensor.experts) is True
    if whole is not True and (left or not takes(conversion.form, tensor)):
        yield from tensor.modules()
