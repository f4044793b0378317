"""The bytes of a checkpoint: against what its source becomes, or, without a source, whether a quantizer writes such.

The source goes through the converter's own function, so that what is compared is what `precc convert` would write. One
unit is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from precc.diagnostics import Diagnostic, error
from precc.graph.headers import Located
from precc_converter.auditing.faults import IMPOSSIBLE, OTHER_BYTES, UNREADABLE, Fault, Faults
from precc_converter.auditing.names import counted
from precc_converter.conversion.files import Files
from precc_converter.conversion.findings import NotConverted, WrongValues
from precc_converter.conversion.finite import check_kept
from precc_converter.conversion.group import DTYPES, outputs_of
from precc_converter.conversion.units import Member, Unit
from precc_converter.written import STORED_NAMES

SHOWN = 3
"""Tensors of one kind that are shown with their bytes; of more, the first."""

_READ = "see to the file"


@dataclass(frozen=True, slots=True)
class Task:
    """Units to be looked at by one worker: where their sources are (none without a source), and what they became."""

    units: tuple[Unit, ...]
    sources: Mapping[str, Located]
    stored: Mapping[str, Located]


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor whose bytes are others: the first of them, how many, and digests of what is stored and what should be.

    `kind` is its format and the last word of its name, `values` what is stored and what should be where that byte
    stands; none where bytes are no numbers by themselves.
    """

    name: str
    kind: str
    file: Path
    at: int
    found: int
    made: int
    values: tuple[float, float] | None
    count: int
    size: int
    stored: str
    wanted: str


@dataclass
class Looked:
    """What was found in the bytes of some tensors."""

    tensors: int = 0
    differences: list[Difference] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    findings: list[Diagnostic] = field(default_factory=list)

    def __iadd__(self, other: Looked) -> Looked:
        self.tensors += other.tensors
        self.differences += other.differences
        self.faults |= other.faults
        self.findings += other.findings
        return self


@torch.no_grad()
def look(task: Task) -> Looked:
    """This reads and compares the units of a task."""
    looked = Looked()
    with Files() as files:
        for unit in task.units:
            try:
                step = _compare if task.sources else _examine
                step(unit, task, files, looked)
            except WrongValues as problem:
                looked.findings += problem.in_file(task.sources[problem.name].file).findings
            except NotConverted as problem:
                looked.findings += problem.findings
            except OSError as problem:
                message = f"{problem.filename}: `{unit.name}` cannot be read: {problem.strerror}"
                looked.findings.append(error(UNREADABLE, message, help=_READ))
    return looked


def difference_findings(differences: list[Difference]) -> Iterator[Diagnostic]:
    """Each tensor that differs, or of many of one kind the first; two that hold each other's bytes are one finding."""
    wanted = {(one.kind, one.wanted): one for one in differences}
    told: set[str] = set()
    kinds: dict[str, list[Difference]] = {}
    for one in differences:
        other = wanted.get((one.kind, one.stored))
        if other is not None and other.stored == one.wanted:
            if not told & {one.name, other.name}:
                yield _swapped(one, other)
            told |= {one.name, other.name}
        else:
            kinds.setdefault(one.kind, []).append(one)
    for kind, ones in kinds.items():
        yield from map(_different, ones) if len(ones) <= SHOWN else (_many(kind, ones),)


# --- against the source ------------------------------------------------------------------------------


def _compare(unit: Unit, task: Task, files: Files, looked: Looked) -> None:
    sources = {name: _typed(files, task.sources[name]) for name in unit.source_names}
    check_kept(unit, sources)
    made = outputs_of(unit, sources)
    formats = {name: member.made.weight.format for member in unit.members for name, _ in member.outputs}
    for name, tensor in made.items():
        if name in task.stored:
            looked.tensors += 1
            looked.differences += _difference(name, formats[name], files, task.stored[name], tensor)


def _difference(name: str, form: str, files: Files, located: Located, made: Tensor) -> Iterator[Difference]:
    stored = _typed(files, located)
    found = _bytes(stored.to(made.dtype) if stored.dtype != made.dtype else stored)
    wanted = _bytes(made)
    if torch.equal(found, wanted):
        return
    apart = (found != wanted).nonzero()
    first = int(apart[0])
    yield Difference(
        name=name,
        kind=f"{form} {name.rpartition('.')[2]}",
        file=located.file,
        at=first,
        found=int(found[first]),
        made=int(wanted[first]),
        values=_values(stored, made, first // made.itemsize),
        count=len(apart),
        size=len(wanted),
        stored=_digest(found),
        wanted=_digest(wanted),
    )


def _values(stored: Tensor, made: Tensor, at: int) -> tuple[float, float] | None:
    """The numbers at a place of both, counted in elements; None for codes that are packed."""
    if not made.is_floating_point() or stored.numel() != made.numel():
        return None
    return float(stored.reshape(-1)[at]), float(made.reshape(-1)[at])


_SOURCE = "convert the source again, or give the source that it was made of"


def _different(one: Difference) -> Diagnostic:
    bytes_ = f"{one.count:,} of {one.size:,} bytes differ" if one.count > 1 else "one byte differs"
    first = "the first at" if one.count > 1 else "at"
    message = (
        f"{one.file.name}: `{one.name}` is not what the source becomes: {bytes_}, {first} offset {one.at:,} of the "
        f"tensor, {_instead(one)}"
    )
    return error(OTHER_BYTES, message, help=_SOURCE)


def _instead(one: Difference) -> str:
    """The first bytes that differ, and the values that they belong to."""
    values = "" if one.values is None else ": the value is {:.9g} instead of {:.9g}".format(*one.values)
    return f"{one.found:#04x} instead of {one.made:#04x}{values}"


def _many(kind: str, ones: list[Difference]) -> Diagnostic:
    first, count = ones[0], sum(one.count for one in ones)
    message = (
        f"{kind} tensors are not what the source becomes: {counted([one.name for one in ones])}, {count:,} of "
        f"{sum(one.size for one in ones):,} bytes; the first at offset {first.at:,} of `{first.name}`, "
        f"{_instead(first)}"
    )
    return error(
        OTHER_BYTES, message, help=f"{_SOURCE}: many differ, so it may be of other weights or another quantizer"
    )


def _swapped(one: Difference, other: Difference) -> Diagnostic:
    where = one.file.name if one.file == other.file else f"{one.file.name} and {other.file.name}"
    message = f"{where}: `{one.name}` and `{other.name}` hold each other's bytes"
    return error(OTHER_BYTES, message, help=_SOURCE)


# --- without a source --------------------------------------------------------------------------------


def _examine(unit: Unit, task: Task, files: Files, looked: Looked) -> None:
    for member in unit.members:
        for name, part in _parts(member):
            if name in task.stored:
                looked.tensors += 1
                located = task.stored[name]
                wrong = _CHECKS.get(part, _nothing)(_typed(files, located))
                if wrong is not None:
                    looked.faults.add(Fault(IMPOSSIBLE, wrong, _SOURCE), [name], located.file)


def _parts(member: Member) -> Iterator[tuple[str, str]]:
    """The stored tensors of a quantized member, each with what it holds."""
    weight = member.made.weight
    words = STORED_NAMES.get(weight.format, {}) if weight.is_quantized else {}
    parts = {word: part for part, word in words.items()}
    for name, _ in member.outputs:
        part = parts.get(name.rpartition(".")[2], "")
        yield name, f"{weight.format} {part}" if (f"{weight.format} {part}") in _CHECKS else part


def _nothing(tensor: Tensor) -> str | None:
    return None


def _e4m3_codes(tensor: Tensor) -> str | None:
    return "codes of E4M3 are NaN" if bool((tensor.view(torch.uint8) & 0x7F == 0x7F).any()) else None


def _e4m3_scales(tensor: Tensor) -> str | None:
    wrong = (tensor.view(torch.uint8) & 0x7F == 0x7F) | (tensor.view(torch.uint8) > 0x80)
    return "block scales in E4M3 are NaN or negative" if bool(wrong.any()) else None


def _e8m0_scales(tensor: Tensor) -> str | None:
    return "block scales in E8M0 are NaN" if bool((tensor.view(torch.uint8) == 0xFF).any()) else None


def _block_scales(tensor: Tensor) -> str | None:
    right = tensor.isfinite() & (tensor >= 0)
    return None if bool(right.all()) else "block scales are negative or not finite"


def _outer_scales(tensor: Tensor) -> str | None:
    right = tensor.isfinite() & (tensor > 0)
    return None if bool(right.all()) else "an outer scale is not above zero and finite"


_CHECKS: dict[str, Callable[[Tensor], str | None]] = {
    "fp8 codes": _e4m3_codes,
    "fp8_block codes": _e4m3_codes,
    "mxfp8 codes": _e4m3_codes,
    "nvfp4 block_scale": _e4m3_scales,
    "mxfp8 block_scale": _e8m0_scales,
    "block_scale": _block_scales,
    "outer_scale": _outer_scales,
    "input_scale": _outer_scales,
}
"""Format and part, or the part alone → what is wrong with a tensor, in words; None for nothing."""


# --- reading -------------------------------------------------------------------------------------------


def _read(files: Files, located: Located) -> bytearray:
    """The bytes of a tensor. Raises OSError."""
    data = bytearray(located.end - located.start)
    if files.fill(located.file, located.start, memoryview(data)) < len(data):
        raise OSError(0, "the file was cut meanwhile", str(located.file))
    return data


def _typed(files: Files, located: Located) -> Tensor:
    data = _read(files, located)
    raw = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return raw.view(DTYPES[located.stored.dtype]).reshape(located.stored.shape)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _digest(data: Tensor) -> str:
    return sha256(data.numpy().tobytes()).hexdigest()
