"""The words in which it is said how a weight is stored: its form, and the layouts that tools write.

A weight in low precision is several tensors: codes, scales, sometimes zero points. Each has a *word*, the last
component of its name: `weight_scale_inv` beside `weight`. Where a weight is a bare parameter (a stack of experts) its
own name takes the place of `weight`: `gate_up_proj`, `gate_up_proj_scale_inv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from precc.graph.headers import Stored
from precc.records import record

Shape: TypeAlias = tuple[int, ...]
Block: TypeAlias = tuple[int, int]
"""Output × input elements that share a scale; no input elements stand for all of a row."""

ROW: Block = (1, 0)
"""One scale for each output channel."""

Words: TypeAlias = Mapping[str, Stored]
"""What is stored of one weight, by word."""

UNQUANTIZED: Mapping[str, str] = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
"""The dtypes of weights that are stored as they are → the graph's word."""


class Form(NamedTuple):
    """How one weight is stored: what its numbers are, what shares a scale, and the words of its tensors.

    `dtype` is `bf16`, `fp16`, `fp32`, or `fp8`, `mxfp8`, `nvfp4`, `mxfp4`, `int8`, `int4`. `block` is None where one
    scale is for the whole weight, and where there is none. No `words` stand for the usual ones of a dtype. `apart` are
    the names of each expert's weights where a stack of experts is stored one by one: `gate_proj`, `up_proj`.
    """

    dtype: str = "bf16"
    block: Block | None = None
    words: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def is_quantized(self) -> bool:
        return self.dtype not in UNQUANTIZED.values()

    @property
    def format(self) -> str:
        """The name of its format: `fp8_block` for FP8 in blocks."""
        return "fp8_block" if self.dtype == "fp8" and self.block not in (None, ROW) else self.dtype

    def __str__(self) -> str:
        """`bf16`, `fp8 in 128×128 blocks`, `fp8 with a scale a row`."""
        if self.block is None:
            return self.dtype
        scales = "with a scale a row" if self.block == ROW else f"in {self.block[0]}×{self.block[1]} blocks"
        return f"{self.dtype} {scales}"


BF16 = Form()
"""What a weight is stored in that nothing is said of."""


class Matrix(NamedTuple):
    """A weight that is cut into blocks: `axis` is the one that is summed over, the other of the last two is the output
    axis, and what stands before them is a stack."""

    shape: Shape
    axis: int
    block: Block | None

    @property
    def stack(self) -> Shape:
        return self.shape[:-2]

    @property
    def rows(self) -> int:
        return self.shape[2 * len(self.shape) - 3 - self.axis]

    @property
    def columns(self) -> int:
        return self.shape[self.axis]

    @property
    def groups(self) -> int:
        """The blocks along the summed axis."""
        wide = self.block[1] if self.block else 0
        return ceil(self.columns / wide) if wide else 1

    def output_major(self) -> Matrix:
        """The same with the summed axis last."""
        return Matrix((*self.stack, self.rows, self.columns), len(self.shape) - 1, self.block)

    def of(self, rows: int, columns: int) -> Shape:
        """As many stacked matrices of another size, their axes in the same order."""
        last = self.axis == len(self.shape) - 1
        return (*self.stack, rows, columns) if last else (*self.stack, columns, rows)


@record
class Part:
    """One stored tensor of a weight: the dtypes that it may have, and its shape.

    Codes have exactly that shape; of scales, trailing axes of one may be left out or added.
    """

    dtypes: tuple[str, ...]
    shape: Callable[[Matrix], Shape]
    exact: bool = False

    def fits(self, shape: Shape, matrix: Matrix) -> bool:
        """Whether a tensor of a shape is that part of a matrix."""
        wanted = self.shape(matrix)
        return shape == wanted or (not self.exact and _bare(shape) == _bare(wanted))


def _bare(shape: Shape) -> Shape:
    end = len(shape)
    while end and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


@record
class Layout:
    """One tool's way to store weights of one dtype: the words that must be there, codes first, and those that may be.

    `blocks` are those that its scales may be for; the first that fits the shapes counts. Packed codes are stored
    `output_major`, whatever the order of axes is that a stack has.
    """

    dtype: str
    writer: str
    words: Mapping[str, Part]
    may: Mapping[str, Part] = MappingProxyType({})
    blocks: tuple[Block | None, ...] = (None,)
    output_major: bool = False

    @property
    def format(self) -> str:
        """The name of its format."""
        return Form(self.dtype, self.blocks[0]).format

    @property
    def codes(self) -> str:
        """The word of its codes."""
        return next(iter(self.words))

    def is_named(self, found: Words) -> bool:
        """Whether all its words are there, and no other but a bias."""
        return self.words.keys() <= found.keys() <= self.words.keys() | self.may.keys() | {"bias"}

    def is_typed(self, found: Words) -> bool:
        """Whether the words that must be there have dtypes that they may have."""
        return all(found[word].dtype in part.dtypes for word, part in self.words.items())

    def block_of(self, found: Words, shape: Shape, axis: int) -> Block | None:
        """The block for which everything has the right shape. Raises Unfit."""
        for block in self.blocks:
            matrix = self.matrix(shape, axis, block)
            unfit = [word for word, part in self._parts(found) if not part.fits(found[word].shape, matrix)]
            if not unfit:
                return block
        raise Unfit(unfit[0], self.shape(unfit[0], matrix))

    def matrix(self, shape: Shape, axis: int, block: Block | None) -> Matrix:
        """A weight as this layout stores it."""
        whole = Matrix(shape, axis, block)
        return whole.output_major() if self.output_major else whole

    def shape(self, word: str, matrix: Matrix) -> Shape:
        """The shape of what stands under a word."""
        return (self.words.get(word) or self.may[word]).shape(matrix)

    def _parts(self, found: Words) -> Iterator[tuple[str, Part]]:
        parts = {**self.words, **self.may}
        return ((word, parts[word]) for word in parts if word in found)


class Unfit(Exception):
    """A tensor of another shape than its layout gives it."""

    def __init__(self, word: str, wanted: Shape) -> None:
        super().__init__(word)
        self.word = word
        self.wanted = wanted
