"""The checkpoint that is converted: where each of its tensors stands, and whether it is what the contract says."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precc.graph.errors import ModelError, nearest, or_list, shorten
from precc.graph.headers import Located, locate_tensors
from precc.graph.shards import INDEX as INDEX_FILE
from precc.graph.shards import is_beside
from precc_converter.conversion.findings import (
    INDEX,
    MISSING_OR_EXTRA,
    UNLIKE,
    UNREADABLE,
    NotConverted,
    counted,
    stop,
)
from precc_converter.conversion.low import check_small, without_alike
from precc_converter.conversion.objects import BESIDE, OUTSIDE, obstacle, shards_listed
from precc_converter.conversion.units import Unit
from precc_converter.written import StoredTensor

_UNUSED = "rotary_emb.inv_freq"
"""A buffer that old checkpoints hold and nothing reads."""

_CACHE_SCALES = (".k_scale", ".v_scale", ".kv_scale", ".q_scale")
"""What quantizers write for an FP8 cache; no decision of a contract has them."""

_GIVE = "give the folder of a checkpoint, or its one .safetensors file"
_READABLE = "see to the file, and whether this user may read it"
_ONE = "a folder holds the shards of one checkpoint: move the others out"
_COMPILE = "compile the policy for this checkpoint: give it as --model"


@dataclass(frozen=True)
class Source:
    """A checkpoint folder: its tensors by name, and each of its shards with its size and time of change."""

    folder: Path
    tensors: Mapping[str, Located]
    shards: tuple[tuple[str, int, int], ...]

    def check(self, units: Iterable[Unit]) -> None:
        """This compares what is stored with what the units read. Raises NotConverted for the first kind of fault."""
        units = tuple(units)
        wanted = {name: stored for unit in units for member in unit.members for name, stored in member.sources}
        self._check_names(wanted)
        faults = {name: stored for name, stored in wanted.items() if not _same(self.tensors[name], stored)}
        if faults:
            faults = without_alike(faults, units, self.tensors)
        if faults:
            raise self._unlike(list(faults), wanted)
        check_small(units, self.tensors)

    def check_unchanged(self) -> None:
        """This says whether the shards are still those whose headers were read. Raises NotConverted."""
        changed = [name for name, *facts in self.shards if [*_facts(self.folder / name)] != facts]
        if changed:
            raise stop(
                UNREADABLE,
                f"{self.folder}: {counted(changed)} changed while it was converted",
                "convert again into a new folder when nothing writes to the source",
            )

    def _check_names(self, wanted: Mapping[str, StoredTensor]) -> None:
        missing = [name for name in wanted if name not in self.tensors]
        extra = [name for name in self.tensors if name not in wanted and not name.endswith(_UNUSED)]
        if missing:
            near = nearest(missing[0], _alike(missing[0], extra), 1)
            help = f"the nearest name in it is {or_list(near)}; " if near else ""
            raise self._names(f"lacks {len(missing):,} tensors of the contract: {counted(missing)}", help)
        scales = [name for name in extra if name.endswith(_CACHE_SCALES)]
        if scales:
            problem = f"{self.folder} has scales of a KV cache, which the contract does not: {counted(scales)}"
            raise stop(MISSING_OR_EXTRA, problem, "take them out of the source: the server's cache then needs none")
        if extra:
            near = nearest(extra[0], _alike(extra[0], wanted), 1)
            help = f"the nearest name in the contract is {or_list(near)}; " if near else ""
            raise self._names(f"has {len(extra):,} tensors that the contract lacks: {counted(extra)}", help)

    def _names(self, problem: str, help: str) -> NotConverted:
        return stop(MISSING_OR_EXTRA, f"{self.folder} {problem}", help + _COMPILE)

    def _unlike(self, faults: Sequence[str], wanted: Mapping[str, StoredTensor]) -> NotConverted:
        name = faults[0]
        found, asked = self.tensors[name].stored, wanted[name]
        more = f" (and {len(faults) - 1:,} more tensors differ)" if len(faults) > 1 else ""
        what = f"is {found.dtype} {list(found.shape)}, the contract was compiled for {asked.dtype} {list(asked.shape)}"
        return stop(UNLIKE, f"{self.tensors[name].file}: `{name}` {what}{more}", _COMPILE)


def open_source(folder: Path) -> Source:
    """This reads the headers of a checkpoint folder, or of one safetensors file. Raises NotConverted."""
    where, files = _files(folder)
    tensors: dict[str, Located] = {}
    try:
        for file in files:
            found = locate_tensors(file)
            twice = next((name for name in found if name in tensors), None)
            if twice is not None:
                raise ModelError(f"{file}: `{shorten(twice, 100)}` also stands in {tensors[twice].file.name}", _ONE)
            tensors.update(found)
        shards = tuple((file.name, *_facts(file)) for file in files)
    except ModelError as problem:
        raise stop(UNREADABLE, problem.message, problem.help or _READABLE) from None
    return Source(where, tensors, shards)


def _files(folder: Path) -> tuple[Path, list[Path]]:
    """The folder, and its shards; those that some releases ship a second time for their own framework left aside."""
    if not folder.is_dir():
        _check_file(folder)
        return folder.parent, [folder]
    files = sorted(folder.glob("*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if not files:
        raise stop(UNREADABLE, f"{folder} has no safetensors files", _GIVE)
    _check_index(folder, {file.name for file in files})
    return folder, files


def _check_file(path: Path) -> None:
    """Whether what is no folder can be the one file of a checkpoint."""
    found = obstacle(path) or ("" if path.suffix == ".safetensors" else "is no safetensors file")
    if found:
        raise stop(UNREADABLE, f"{path} {found}", _GIVE)


def _check_index(folder: Path, there: Collection[str]) -> None:
    """Whether all shards are there that the index lists, if there is one."""
    index = folder / INDEX_FILE
    if not os.path.lexists(index):
        return
    absent = sorted(set(shards_listed(index).values()).difference(there))
    elsewhere = [name for name in absent if not is_beside(name)]
    if elsewhere:
        raise stop(INDEX, f"{index} lists {counted(elsewhere)}: {OUTSIDE}", BESIDE)
    if absent:
        raise stop(UNREADABLE, f"{folder}: its index lists {counted(absent)}, which is not there", "fetch it again")


def _facts(file: Path) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError as problem:
        raise stop(UNREADABLE, f"{file} cannot be read: {problem.strerror}", _READABLE) from None
    return status.st_size, status.st_mtime_ns


def _same(found: Located, wanted: StoredTensor) -> bool:
    return found.stored == (wanted.dtype, wanted.shape)


def _alike(name: str, others: Iterable[str]) -> list[str]:
    """The names of the same layer, or outside all layers: comparing with all 92,000 would take seconds."""
    layer = _layer(name)
    return [other for other in others if _layer(other) == layer]


def _layer(name: str) -> list[str]:
    *layer, rest = name.split(".", 3)
    return layer if len(layer) == 3 and rest else []
