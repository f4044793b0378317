"""What a group of a compressed-tensors config stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precc_sglang.families import FP8_CHANNEL, INT4, MXFP4_WEIGHTS

_SCHEME: Mapping[str, Any] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "strategy": None,
    "group_size": None,
    "dynamic": False,
    "actorder": None,
}
"""What compressed-tensors takes for an argument that is not there."""

_CHANNEL = {**_SCHEME, "type": "float", "strategy": "channel"}
_TOKEN = {**_SCHEME, "type": "float", "strategy": "token", "dynamic": True}
_GROUPS = {**_SCHEME, "num_bits": 4, "strategy": "group"}
_FLOATS = {**_GROUPS, "type": "float", "group_size": 32}
_SCALES = {"scale_dtype": "torch.uint8", "zp_dtype": None}
"""What is said of the scales of MXFP4, and read by no server."""


def scheme_of(group: Mapping[str, Any], form: str) -> str:
    """The name of the family that a group of a config declares under a format, or what it declares that none does."""
    weights, inputs = ({**_SCHEME, **(group.get(key) or {})} for key in ("weights", "input_activations"))
    size = weights["group_size"]
    if form == "pack-quantized" and weights == {**_GROUPS, "group_size": size} and inputs == _SCHEME:
        return f"{INT4.name} group {size}"
    if form == "mxfp4-pack-quantized" and {**_SCALES, **weights} == {**_SCALES, **_FLOATS} and inputs == _SCHEME:
        return MXFP4_WEIGHTS.name
    if form == "float-quantized" and (weights, inputs) == (_CHANNEL, _TOKEN):
        return FP8_CHANNEL.name
    return f"compressed-tensors {form}, weights {group.get('weights')}, inputs {group.get('input_activations')}"
