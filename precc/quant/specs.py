"""Which decisions have a quantizer: the blocks, scales and scopes of each format, and the refusal of all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from precc.formats import FORMATS, Quantization
from precc.formats.table import Block, Scope

_MORE_BLOCKS: dict[str, tuple[Block, ...]] = {"nvfp4": ((16, 16),)}
"""What a policy may say instead of a format's own block."""
_MORE_SCALES: dict[str, tuple[str, ...]] = {"fp8_block": ("fp32",)}


class Choices(NamedTuple):
    """What a decision may say of one format; (None,) for what the format does not have."""

    blocks: tuple[Block | None, ...]
    scales: tuple[str | None, ...]
    scopes: tuple[Scope | None, ...]


@cache
def choices(name: str) -> Choices:
    """Those of a format, of weights and of inputs."""
    form = FORMATS[name]
    own: list[Block | None] = [form.weight_block, form.input_block]
    if form.groups:
        own = [(1, group) for group in form.groups]
    return Choices(
        tuple(dict.fromkeys((*own, *_MORE_BLOCKS.get(name, ())))),
        (form.block_scale, *_MORE_SCALES.get(name, ())),
        tuple(dict.fromkeys((*form.weight_scopes, *form.input_scopes))) or (None,),
    )


def require_spec(spec: Quantization, known: Sequence[str], *, any_group: bool = False) -> None:
    """This raises ValueError for a decision that no quantizer of the `known` formats fits, and TypeError for none.

    With `any_group` integers may have groups of any size, as other tools store them.
    """
    if not isinstance(spec, Quantization):
        raise TypeError(
            f"{spec!r} is a {type(spec).__name__}, no Quantization: take that of a contract, "
            "`load_contract(path)[name].decision.weight`, or make one, "
            "`precc.formats.Quantization('mxfp8', (1, 32), 'e8m0')`"
        )
    if spec.format not in known:
        raise ValueError(f"{spec.format} has no quantizer: there are {', '.join(known)}")
    wrong = next(_misfits(spec, any_group), None)
    if wrong is not None:
        raise ValueError(f"{spec.format} {wrong}")


def _misfits(spec: Quantization, any_group: bool) -> Iterator[str]:
    form, may = FORMATS[spec.format], choices(spec.format)
    is_group = any_group and form.groups and spec.block is not None and spec.block[0] == 1 <= spec.block[1]
    if spec.block not in may.blocks and not is_group:
        yield _apart("blocks of", may.blocks, spec.block)
    if spec.scale not in may.scales:
        yield _apart("block scales in", may.scales, spec.scale)
    if spec.scope not in may.scopes:
        yield _apart("outer scales", may.scopes, spec.scope)
    if spec.four_over_six is not None and spec.format != "nvfp4":
        yield "has no four-over-six, and this decision asks for it"
    if spec.block == (16, 16) and spec.scope != "per_tensor":
        yield f"has outer scales per_tensor above blocks of 16×16, and this decision {spec.scope}"


def _apart(what: str, may: Sequence[object], given: object) -> str:
    has = f"no {what.split()[0] if what.endswith((' of', ' in')) else what}"
    if may != (None,):
        has = f"{what} {', '.join(map(_word, may))}"
    return f"has {has}, and this decision {_word(given)}"


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value[0]}×{value[1]}" if isinstance(value, tuple) else str(value)
