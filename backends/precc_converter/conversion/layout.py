"""Where every output stands before a byte is read: names and sizes alone decide it.

So any worker can write any tensor at any time, and every run of the same plan and shard size makes the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from precc_converter.conversion.checksum import BLANK, KEY, checksum, with_checksum
from precc_converter.conversion.units import Unit
from precc_converter.written import BYTES, StoredTensor

ALIGNMENT = 8
"""Of the first tensor in a file; wider elements stand first, so that each is aligned to its own size."""


@dataclass(frozen=True, eq=False)
class Shard:
    """One output file: its header, the units in it, and where in the file each tensor begins, in that order.

    The header has no checksum yet: that follows from the tensors.
    """

    file: str
    header: bytes
    units: tuple[Unit, ...]
    places: Mapping[str, int]
    size: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each tensor, as they stand in the file."""
        return tuple(end - start for start, end in pairwise((*self.places.values(), self.size)))

    def sealed(self, crcs: Mapping[str, int]) -> bytes:
        """The header with the checksum of tensors whose own are known."""
        return with_checksum(self.header, checksum(crcs[name] for name in self.places))


def shards_of(units: Sequence[Unit], max_bytes: int, metadata: Mapping[str, str]) -> tuple[Shard, ...]:
    """The files of a conversion, in order; a unit that does not fit under `max_bytes` starts the next one."""
    runs = list(_filled(units, max_bytes))
    return tuple(_shard(shard_name(at, len(runs)), run, metadata) for at, run in enumerate(runs))


def shard_name(at: int, count: int) -> str:
    """The name of a shard, as the loaders of Hugging Face checkpoints expect it."""
    return "model.safetensors" if count == 1 else f"model-{at + 1:05}-of-{count:05}.safetensors"


def index_of(shards: Sequence[Shard]) -> dict[str, Any] | None:
    """`model.safetensors.index.json`: which file holds which tensor; None where there is one file only."""
    if len(shards) == 1:
        return None
    total = sum(unit.bytes_out for shard in shards for unit in shard.units)
    names = {name: shard.file for shard in shards for unit in shard.units for name in unit.outputs}
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(names.items()))}


def _filled(units: Sequence[Unit], max_bytes: int) -> Iterator[list[Unit]]:
    held: list[Unit] = []
    size = 0
    for unit in units:
        if held and size + unit.bytes_out > max_bytes:
            yield held
            held, size = [], 0
        held.append(unit)
        size += unit.bytes_out
    if held:
        yield held


def _shard(file: str, units: Sequence[Unit], metadata: Mapping[str, str]) -> Shard:
    shown: dict[str, Any] = {"__metadata__": {**metadata, KEY: BLANK}}
    starts: dict[str, int] = {}
    end = 0
    for name, stored in _widest_first(units):
        starts[name], start, end = end, end, end + stored.bytes
        shown[name] = {"dtype": stored.dtype, "shape": list(stored.shape), "data_offsets": [start, end]}
    header = _header(shown)
    places = {name: len(header) + start for name, start in starts.items()}
    return Shard(file, header, tuple(units), places, len(header) + end)


def _widest_first(units: Iterable[Unit]) -> list[tuple[str, StoredTensor]]:
    outputs = ((name, stored) for unit in units for name, stored in unit.outputs.items())
    return sorted(outputs, key=lambda item: -BYTES[item[1].dtype])


def _header(shown: Mapping[str, Any]) -> bytes:
    """The first bytes of a safetensors file: the length of the JSON, and the JSON filled up with spaces."""
    text = json.dumps(shown, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
