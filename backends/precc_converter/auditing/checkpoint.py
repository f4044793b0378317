"""The checkpoint that is audited: what its headers and its index say, and what of it cannot be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precc.diagnostics import Diagnostic, error, warning
from precc.graph.errors import ModelError
from precc.graph.headers import Located, open_header
from precc.graph.shards import INDEX as INDEX_FILE
from precc.graph.shards import is_beside
from precc_converter.auditing.faults import INDEX, MISSING_OR_EXTRA, UNREADABLE, Fault, Faults
from precc_converter.auditing.names import counted
from precc_converter.conversion.configuration import DIGEST
from precc_converter.conversion.findings import NotConverted
from precc_converter.conversion.objects import BESIDE, FETCH, OUTSIDE, shards_listed
from precc_converter.conversion.objects import read_object as read
from precc_converter.conversion.state import STATE

_REBUILD = "write the index anew from the headers: servers that follow it read the wrong file, or none"
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<at>\d+)-of-(?P<count>\d+)\.safetensors")


@dataclass
class Checkpoint:
    """A folder of safetensors, or one file, as far as it can be read.

    `lost` are shards that are not there or not readable, `digests` the contracts that the files name.
    """

    folder: Path
    files: Sequence[Path]
    tensors: dict[str, Located] = field(default_factory=dict)
    digests: dict[str, list[str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    index: Mapping[str, str] | None = None
    total_size: int | None = None
    findings: list[Diagnostic] = field(default_factory=list)

    def is_lost(self, name: str) -> bool:
        """Whether a tensor that is not there is, or may be, in a shard that is not there."""
        return bool(self.lost) and (self.index is None or self.index.get(name) in self.lost)

    def index_faults(self, known: Iterable[str]) -> Iterator[Diagnostic]:
        """Where the index and the headers disagree about tensors that are `known` to be right otherwise."""
        if self.index is None:
            return
        faults = Faults()
        for name in known:
            file, said = self.tensors[name].file, self.index.get(name)
            if said is None:
                faults.add(Fault(INDEX, f"{INDEX_FILE} does not list what is there", _REBUILD), [name], file)
            elif said != file.name and is_beside(said):
                what = f"{INDEX_FILE} says {said}, which does not hold it"
                faults.add(Fault(INDEX, what, _REBUILD), [name], file)
        yield from faults.findings()
        yield from self._total()

    def _total(self) -> Iterator[Diagnostic]:
        stored = sum(tensor.end - tensor.start for tensor in self.tensors.values())
        if self.total_size is not None and not self.lost and self.total_size != stored:
            message = f"{INDEX_FILE}: total_size is {self.total_size:,}, the shards hold {stored:,} bytes"
            yield warning(INDEX, message, help="correct it: loaders plan their memory by it")


def open_checkpoint(path: Path) -> Checkpoint:
    """This reads every header and the index of a checkpoint; what cannot be read is a finding of it."""
    if path.is_file():
        found = Checkpoint(path.parent, [path])
    else:
        files = sorted(path.glob("*.safetensors"))
        found = Checkpoint(path, [file for file in files if not file.name.startswith("consolidated")] or files)
        _read_index(found)
        _find_lost(found)
    for file in found.files:
        _read_shard(found, file)
    return found


def unfinished(path: Path) -> Diagnostic | None:
    """What is said of a folder that a conversion has not finished."""
    if not (path / STATE).exists():
        return None
    return error(UNREADABLE, f"{path} is an unfinished conversion", help="give the command that began it again")


def read_object(path: Path) -> Mapping[str, Any] | Diagnostic | None:
    """The object in a JSON file, or what is wrong with it; None where there is no such file."""
    if not os.path.lexists(path):
        return None
    try:
        return read(path)
    except NotConverted as problem:
        return problem.findings[0]


def _read_shard(found: Checkpoint, file: Path) -> None:
    try:
        tensors, metadata = open_header(file)
    except ModelError as problem:
        found.findings.append(error(UNREADABLE, problem.message, help=problem.help or FETCH))
        found.lost.add(file.name)
        return
    twice = [name for name in tensors if name in found.tensors]
    if twice:
        others = sorted({found.tensors[name].file.name for name in twice})
        message = f"{file.name} and {others[0]} both hold {counted(twice)}"
        help = "a folder holds the shards of one checkpoint: move the others out"
        found.findings.append(error(MISSING_OR_EXTRA, message, help=help))
    found.tensors.update(tensors)
    if DIGEST in metadata:
        found.digests.setdefault(str(metadata[DIGEST]), []).append(file.name)


def _read_index(found: Checkpoint) -> None:
    path = found.folder / INDEX_FILE
    if not os.path.lexists(path):
        _without_index(found)
        return
    try:
        found.index, facts = shards_listed(path), read(path).get("metadata")
    except NotConverted as problem:
        found.findings += problem.findings
        return
    total = facts.get("total_size") if isinstance(facts, Mapping) else None
    found.total_size = total if isinstance(total, int) else None
    outside = dict.fromkeys(file for file in found.index.values() if not is_beside(file))
    if outside:
        message = f"{path} lists {counted(list(outside), 'files')}: {OUTSIDE}"
        found.findings.append(error(INDEX, message, help=BESIDE))
        found.lost.update(outside)


def _without_index(found: Checkpoint) -> None:
    """Several shards need an index: `transformers` and others open what it names, and nothing else."""
    if len(found.files) > 1:
        message = f"{found.folder} holds {len(found.files):,} shards and no {INDEX_FILE}"
        found.findings.append(error(INDEX, message, help="write the index from the headers, or fetch it"))


def _find_lost(found: Checkpoint) -> None:
    """The shards that the index lists, or that the names of the others count, and that are not there."""
    there = {file.name for file in found.files}
    listed = filter(is_beside, dict.fromkeys((found.index or {}).values()))
    absent = [name for name in (*listed, *_counted_out(there)) if name not in there]
    for name in dict.fromkeys(absent):
        held = sum(file == name for file in (found.index or {}).values())
        with_ = f", which holds {held:,} tensors by {INDEX_FILE}" if held else ""
        found.findings.append(error(UNREADABLE, f"{found.folder / name} is missing{with_}", help=FETCH))
        found.lost.add(name)
    if not there and not absent:
        help = "give the folder of a checkpoint"
        found.findings.append(error(UNREADABLE, f"{found.folder} has no safetensors files", help=help))
        found.lost.add("")


def _counted_out(there: set[str]) -> Iterator[str]:
    """The shards of which some number themselves: `model-00002-of-00007.safetensors`."""
    for match in filter(None, map(_NUMBERED.fullmatch, sorted(there))):
        width = len(match["at"])
        first = 0 if f"{match['stem']}-{0:0{width}}-of-{match['count']}.safetensors" in there else 1
        for at in range(first, first + int(match["count"])):
            yield f"{match['stem']}-{at:0{width}}-of-{match['count']}.safetensors"
        return
