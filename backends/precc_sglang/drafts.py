"""The modules of a draft class that calls its one layer the decoder's layer 0."""

from __future__ import annotations

from dataclasses import replace

from precc.backend import Outside
from precc.graph.model import Tensor
from precc_sglang.model_class import ModelClass
from precc_sglang.names import module_of

LAYER_ZERO = ("model", "layers", "0")


def is_drafted_as_first(tensor: Tensor, built: ModelClass) -> bool:
    """Whether a tensor of an MTP layer is held by a draft class whose names are those of the decoder."""
    return tensor.mtp is not None and not built.drafts


def drafted_as_first(tensor: Tensor, built: ModelClass) -> Outside | None:
    """The module of such a class, by the prefix that it asks with; None for what is no operand."""
    words = tensor.path[tensor.outer_depth :]
    if words[0] != "layers":
        name = ".".join(words)
        return Outside(name, "in the draft model, built without a config") if tensor.is_gemm else None
    inner = replace(tensor, path=(*LAYER_ZERO, *words[2:]), layer=0, mtp=None, outer=None, outer_depth=0)
    module = module_of(inner, built)
    why = "in the draft model, by the name of the decoder's layer 0"
    return None if module is None else Outside(module.prefix, why)
