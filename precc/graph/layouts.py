"""The layouts in which tools store low precision, and which of them a weight is stored in.

They are those of ModelOpt's and compressed-tensors' exports, of DeepSeek's releases, of SGLang's `mxfp8` method, of
gpt-oss, and of the GPTQ and AWQ packers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import ceil

from precc.graph.errors import or_list
from precc.graph.forms import ROW, Block, Form, Layout, Matrix, Part, Shape, Unfit, Words

# --- shapes ------------------------------------------------------------------------------------------


def _whole(matrix: Matrix) -> Shape:
    return matrix.shape


def _packed(codes: int) -> Callable[[Matrix], Shape]:
    """So many codes in one element, along the summed axis."""
    return lambda matrix: matrix.of(matrix.rows, ceil(matrix.columns / codes))


def _blocked(matrix: Matrix) -> Shape:
    high = matrix.block[0] if matrix.block else matrix.rows
    return matrix.of(ceil(matrix.rows / high), matrix.groups)


def _one(matrix: Matrix) -> Shape:
    return matrix.stack


def _one_or_rows(matrix: Matrix) -> Shape:
    return (*matrix.stack, matrix.rows, 1) if matrix.block == ROW else matrix.stack


def _in_sixteens(matrix: Matrix) -> Shape:
    return (*matrix.stack, matrix.rows, matrix.groups, 16)


# --- the table ---------------------------------------------------------------------------------------

_FLOAT, _EXPONENT = ("F32", "BF16", "F16"), ("U8", "F8_E8M0")

_E4M3 = Part(("F8_E4M3",), _whole, exact=True)
_PAIRS = Part(("U8",), _packed(2), exact=True)
_SCALES = Part(_FLOAT, _blocked)
_SCALES_E4M3 = Part(("F8_E4M3",), _blocked)
_SCALES_E8M0 = Part(_EXPONENT, _blocked)
_SCALES_ANY = Part((*_FLOAT, "F8_E8M0"), _blocked)
_ONE = Part(_FLOAT, _one)
_GPTQ = {
    "qweight": Part(("I32",), lambda m: (ceil(m.columns / 8), m.rows), exact=True),
    "qzeros": Part(("I32",), lambda m: (m.groups, ceil(m.rows / 8))),
    "scales": Part(_FLOAT, lambda m: (m.groups, m.rows)),
}
_AWQ = {**_GPTQ, "qweight": Part(("I32",), lambda m: (m.columns, ceil(m.rows / 8)), exact=True)}
_ORDER = Part(("I32",), lambda m: (m.columns,))

_MX: tuple[Block, ...] = ((1, 32),)
_TILES: tuple[Block, ...] = ((128, 128),)
_GROUPS: tuple[Block, ...] = ((1, 32), (1, 64), (1, 128), ROW)

LAYOUTS = (
    Layout(
        "nvfp4",
        "ModelOpt",
        {"weight": _PAIRS, "weight_scale": _SCALES_E4M3, "weight_scale_2": _ONE},
        {"input_scale": _ONE},
        blocks=((1, 16),),
        output_major=True,
    ),
    Layout(
        "nvfp4",
        "compressed-tensors",
        {"weight_packed": _PAIRS, "weight_scale": _SCALES_E4M3, "weight_global_scale": _ONE},
        {"input_global_scale": _ONE},
        blocks=((1, 16),),
        output_major=True,
    ),
    Layout("fp8", "DeepSeek", {"weight": _E4M3, "weight_scale_inv": _SCALES_ANY}, blocks=_TILES),
    Layout("fp8", "DeepSeek-V4", {"weight": _E4M3, "scale": _SCALES_ANY}, blocks=_TILES),
    Layout(
        "fp8",
        "ModelOpt",
        {"weight": _E4M3, "weight_scale": Part(_FLOAT, _one_or_rows)},
        {"input_scale": _ONE},
        blocks=(None, ROW),
    ),
    Layout(
        "fp8",
        "compressed-tensors",
        {"weight": _E4M3, "weight_scale": _SCALES},
        {"input_scale": _ONE},
        blocks=_TILES,
    ),
    Layout("mxfp8", "SGLang", {"weight": _E4M3, "weight_scale_inv": _SCALES_E8M0}, blocks=_MX),
    Layout("mxfp8", "ModelOpt", {"weight": _E4M3, "weight_scale": _SCALES_E8M0}, blocks=_MX),
    Layout(
        "mxfp4",
        "gpt-oss",
        {"weight_blocks": Part(("U8",), _in_sixteens, exact=True), "weight_scales": Part(("U8",), _blocked)},
        blocks=_MX,
        output_major=True,
    ),
    Layout(
        "mxfp4",
        "compressed-tensors",
        {"weight_packed": _PAIRS, "weight_scale": _SCALES_E8M0},
        blocks=_MX,
        output_major=True,
    ),
    Layout(
        "mxfp4",
        "DeepSeek-V4",
        {"weight": Part(("I8", "U8"), _packed(2), exact=True), "scale": _SCALES_E8M0},
        blocks=_MX,
        output_major=True,
    ),
    Layout(
        "int8",
        "compressed-tensors",
        {"weight": Part(("I8",), _whole, exact=True), "weight_scale": _SCALES},
        blocks=(ROW, (1, 32), (1, 64), (1, 128)),
    ),
    Layout(
        "int4",
        "compressed-tensors",
        {
            "weight_packed": Part(("I32",), _packed(8), exact=True),
            "weight_scale": _SCALES,
            "weight_shape": Part(("I64", "I32"), lambda m: (2,)),
        },
        {
            "weight_zero_point": Part(("I32",), lambda m: m.of(ceil(m.rows / 8), m.groups)),
            "weight_g_idx": _ORDER,
        },
        blocks=_GROUPS,
        output_major=True,
    ),
    Layout("int4", "GPTQ", {**_GPTQ, "g_idx": _ORDER}, blocks=_GROUPS),
    Layout("int4", "AWQ", _AWQ, blocks=_GROUPS),
)
"""The first of a dtype is the usual one: what a form without words is stored in."""

CODES = tuple(dict.fromkeys(layout.codes for layout in LAYOUTS))
"""The words under which a weight itself can stand."""

COMPANIONS = tuple(
    dict.fromkeys(word for layout in LAYOUTS for word in (*layout.words, *layout.may) if word != "weight")
)
"""The words that stand beside a weight, or for it, in the order of the table."""

STACKED_PARTS: Mapping[str, tuple[str, ...]] = {
    "gate_up": ("gate_proj", "up_proj"),
    "gate": ("gate_proj",),
    "up": ("up_proj",),
    "down": ("down_proj",),
}
"""What a stack of experts holds, by the part of the tensor: the names of each expert's weights where they are stored
one by one."""


# --- from what is stored to its form, and back -------------------------------------------------------


class Unknown(Exception):
    """What is stored is no weight of that shape: the word at fault, and what is wrong with it."""

    def __init__(self, word: str, what: str) -> None:
        super().__init__(word, what)
        self.word = word
        self.what = what


def form_of(found: Words, shape: Shape, axis: int) -> Form:
    """This is how a weight of a shape, summed over an axis, is stored. Raises Unknown."""
    typed = [layout for layout in LAYOUTS if layout.is_named(found) and layout.is_typed(found)]
    unfit: list[tuple[Layout, Unfit]] = []
    for layout in typed:
        try:
            return Form(layout.dtype, layout.block_of(found, shape, axis), _words(layout, found))
        except Unfit as problem:
            unfit.append((layout, problem))
    if not unfit:
        raise _unnamed(found)
    word = unfit[0][1].word
    fit = dict.fromkeys(f"{list(one.wanted)} is {layout.format}" for layout, one in unfit if one.word == word)
    raise Unknown(word, f"has the shape {list(found[word].shape)}, where {' and '.join(fit)}")


def _words(layout: Layout, found: Words) -> tuple[str, ...]:
    """The words that are there, none if they are the usual ones."""
    words = tuple(word for word in (*layout.words, *layout.may) if word in found)
    usual = next(other for other in LAYOUTS if other.dtype == layout.dtype)
    return () if layout is usual and len(words) == len(layout.words) else words


def _unnamed(found: Words) -> Unknown:
    """What is said of words that no layout has together, or not with these dtypes."""
    word = next((word for word in CODES if word in found), next(iter(found)))
    said = f"is stored as {found[word].dtype}"
    lacks = dict.fromkeys(missing for layout in LAYOUTS for missing in _missing(layout, found))
    if lacks:
        return Unknown(word, f"{said} without {or_list(lacks)} beside it")
    named = [layout for layout in LAYOUTS if layout.is_named(found)]
    if named:
        unlike = next(word for word, part in named[0].words.items() if found[word].dtype not in part.dtypes)
        allowed = dict.fromkeys(dtype for layout in named for dtype in layout.words[unlike].dtypes)
        return Unknown(unlike, f"is stored as {found[unlike].dtype}, not as {' or '.join(allowed)}")
    if len(found) == 1:
        return Unknown(word, f"{said}, which is no dtype of a weight known here")
    return Unknown(word, f"{said} beside {or_list([*found][1:])}, which no known tool writes together")


def _missing(layout: Layout, found: Words) -> tuple[str, ...]:
    """The words that what is there lacks of a layout; none where it is not of that layout."""
    parts = {**layout.words, **layout.may}
    alike = all(word in parts and stored.dtype in parts[word].dtypes for word, stored in found.items())
    return tuple(word for word in layout.words if word not in found) if alike else ()


def recognize(found: Words) -> Layout | None:
    """The layout of what is stored under some words, by these and their dtypes; None for no known tool's.

    Where several have the same, it is the one whose scales fit codes of one byte.
    """
    typed = [layout for layout in LAYOUTS if layout.is_named(found) and layout.is_typed(found)]
    return next((layout for layout in typed if _fits_codes(layout, found)), typed[0] if typed else None)


def _fits_codes(layout: Layout, found: Words) -> bool:
    shape = found[layout.codes].shape
    try:
        layout.block_of(found, shape, len(shape) - 1)
    except (Unfit, IndexError):
        return False
    return True


@cache
def layout_of(form: Form) -> Layout:
    """The layout that a quantized form is stored in. Raises KeyError for one that no tool writes."""
    for layout in LAYOUTS:
        words = set(form.words or layout.words)
        is_named = layout.words.keys() <= words <= layout.words.keys() | layout.may.keys()
        if is_named and layout.dtype == form.dtype and form.block in layout.blocks:
            return layout
    raise KeyError(str(form))


def stored_shapes(form: Form, shape: Shape, axis: int) -> Iterator[tuple[str, Shape]]:
    """The words of a weight in a form, and the shape of each. Of a weight that is not quantized it is `weight`."""
    if form.apart:
        single = form._replace(apart=())
        for _ in range(shape[0] * len(form.apart)):
            yield from stored_shapes(single, taken_apart(form.apart, shape, axis), 1)
    elif not form.is_quantized:
        yield "weight", shape
    else:
        layout = layout_of(form)
        matrix = layout.matrix(shape, axis, form.block)
        yield from ((word, layout.shape(word, matrix)) for word in form.words or layout.words)


def taken_apart(parts: tuple[str, ...], shape: Shape, axis: int) -> Shape:
    """The shape of one expert's weight of a stack that is stored one by one: `[output, input]`."""
    stack = Matrix(shape, axis, None)
    return stack.rows // len(parts), stack.columns
