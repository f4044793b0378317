"""How the source of one tensor is stored: which of the graph's forms are read, under which names, as what numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from precc.contract.fold import braced
from precc.formats import Quantization
from precc.formats.storage import Part
from precc.graph import forms
from precc.graph.forms import ROW, Form
from precc.graph.layouts import layout_of, stored_shapes, taken_apart
from precc.graph.model import Tensor

PARTS: Mapping[str, Part] = {
    "weight": "codes",
    "weight_packed": "codes",
    "weight_blocks": "codes",
    "weight_scale_inv": "block_scale",
    "weight_scale": "block_scale",
    "weight_scales": "block_scale",
    "scale": "block_scale",
    "weight_scale_2": "outer_scale",
    "weight_global_scale": "outer_scale",
    "weight_shape": "shape",
    "input_scale": "input_scale",
    "input_global_scale": "input_scale",
}
"""What stands under a word of a layout; with another word (zero points, an order of columns) a weight is not read."""

RECIPROCAL = frozenset({"weight_global_scale", "input_global_scale"})
"""The words of compressed-tensors under which one over a scale is stored."""

_SPECS: Mapping[tuple[str, forms.Block | None], Quantization] = {
    ("fp8", (128, 128)): Quantization("fp8_block", (128, 128), "fp32"),
    ("fp8", None): Quantization("fp8", scope="per_tensor"),
    ("fp8", ROW): Quantization("fp8", scope="per_channel"),
    ("mxfp8", (1, 32)): Quantization("mxfp8", (1, 32), "e8m0"),
    ("mxfp4", (1, 32)): Quantization("mxfp4", (1, 32), "e8m0"),
    ("nvfp4", (1, 16)): Quantization("nvfp4", (1, 16), "e4m3", "per_tensor"),
}
"""A stored dtype and its block → the numbers that they stand for, as a decision would say it."""

_INTEGERS = ("int8", "int4")
_PACKED = ("int4", "nvfp4", "mxfp4")
_CODES = 8

Source: TypeAlias = tuple[str, str, tuple[int, ...]]
"""A stored tensor: its name, or what its name's last word is replaced by, its dtype and its shape."""

PLAIN: Mapping[str, str] = {word: dtype for dtype, word in forms.UNQUANTIZED.items()}
"""The graph's word for a dtype that is no low precision → that of safetensors."""


def is_read(tensor: Tensor) -> bool:
    """Whether the converter knows the numbers of what is stored for a tensor."""
    form = tensor.form
    if not form.is_quantized:
        return form == Form(form.dtype, apart=form.apart)
    try:
        words = words_of(form)
    except KeyError:
        return False
    known = (form.dtype, form.block) in _SPECS or (form.dtype in _INTEGERS and form.block is not None)
    return known and all(word in PARTS for word in words) and not _has_part_of_group(tensor)


def _has_part_of_group(tensor: Tensor) -> bool:
    """Whether a row of packed codes ends within a group, or within what eight of them are packed in."""
    wide = (tensor.form.block or ROW)[1] or _CODES
    return tensor.form.dtype in _PACKED and bool(tensor.shape[tensor.contraction] % wide)


@lru_cache(maxsize=256)
def numbers_of(form: Form, columns: int) -> Quantization:
    """What a form's codes and scales stand for, `columns` being the elements of a row."""
    if form.dtype in _INTEGERS:
        assert form.block is not None
        return Quantization(form.dtype, (1, form.block[1] or columns), "bf16")
    return _SPECS[form.dtype, form.block]


@lru_cache(maxsize=256)
def words_of(form: Form) -> Mapping[str, forms.Part]:
    """The words that a form's tensors stand under, codes first, each with the dtypes that it may have."""
    if not form.is_quantized:
        return {"weight": forms.Part((PLAIN[form.dtype],), lambda matrix: matrix.shape, exact=True)}
    layout = layout_of(form._replace(apart=()))
    parts = {**layout.words, **layout.may}
    return {word: parts[word] for word in form.words or layout.words}


def parts_of(form: Form) -> Mapping[str, Part]:
    """What stands under each word of a form; the one scale of FP8 without blocks is an outer one."""
    alone = form.dtype == "fp8" and form.block in (None, ROW)
    return {word: "outer_scale" if alone and PARTS[word] == "block_scale" else PARTS[word] for word in words_of(form)}


def stored_tensors(tensor: Tensor) -> tuple[Source, ...]:
    """What is read for a tensor: beside its name, dtype and shape; codes first. A range stands for all experts.

    Raises KeyError for a form that is not read.
    """
    if not is_read(tensor):
        raise KeyError(str(tensor.form))
    axis = tensor.contraction if tensor.contracted else len(tensor.shape) - 1
    return _stored(tensor.form, tensor.shape, axis, tensor.parameter or tensor.path[-1])


@lru_cache(maxsize=4096)
def _stored(form: Form, shape: tuple[int, ...], axis: int, own: str) -> tuple[Source, ...]:
    return tuple(_sources(form, shape, axis, own))


def _sources(form: Form, shape: tuple[int, ...], axis: int, own: str) -> Iterator[Source]:
    if not form.is_quantized and not form.apart:
        yield "", PLAIN[form.dtype], shape
        return
    if form.apart:
        single = taken_apart(form.apart, shape, axis)
        every = braced(range(shape[0]))
        for part in form.apart:
            stored = _words(form._replace(apart=()), single, 1)
            yield from ((f"{every}.{part}.{word}", dtype, found) for word, dtype, found in stored)
        return
    for word, dtype, found in _words(form, shape, axis):
        name = named(own, word)
        yield ("" if name == own else name), dtype, found


def named(own: str, word: str) -> str:
    """The last component of the name under which a word stands: a bare parameter's name takes the place of `weight`."""
    if own == "weight":
        return word
    return own + word.removeprefix("weight") if word.startswith("weight") else f"{own}_{word}"


def _words(form: Form, shape: tuple[int, ...], axis: int) -> Iterator[Source]:
    """The words of one weight with their usual dtypes and their shapes."""
    parts, usual = words_of(form), {"F32": "BF16"} if form.dtype in _INTEGERS else {}
    for word, found in stored_shapes(form, shape, axis):
        dtype = parts[word].dtypes[0]
        yield word, usual.get(dtype, dtype), found


def form_to_json(form: Form) -> dict[str, Any]:
    """A form as the plan writes it: only what is set."""
    shown: dict[str, Any] = {"dtype": form.dtype}
    if form.block is not None:
        shown["block"] = list(form.block)
    shown |= {key: list(words) for key, words in (("words", form.words), ("apart", form.apart)) if words}
    return shown


def form_from_json(shown: dict[str, Any]) -> Form:
    """The form that a plan names."""
    block = shown.get("block")
    words, apart = (tuple(shown.get(key, ())) for key in ("words", "apart"))
    return Form(shown["dtype"], (block[0], block[1]) if block else None, words, apart)
