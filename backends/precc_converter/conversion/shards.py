"""Shards by a crew: each in pieces, put in place when its last piece is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass, field

from precc_converter.conversion.checksum import is_whole
from precc_converter.conversion.crew import Crew, lost_worker
from precc_converter.conversion.destination import Destination
from precc_converter.conversion.layout import Shard
from precc_converter.conversion.piece import Done, Piece, convert_piece, finish_shard
from precc_converter.conversion.source import Source
from precc_converter.conversion.units import Unit, batches

PIECE_BYTES = 64 << 20
"""Source bytes after which a piece is closed: enough to hide what handing it over costs."""

AHEAD = 2
"""Pieces a worker that are handed out: the one at work and the next."""


@dataclass
class Opened:
    """A shard that is being written, how many of its pieces are not yet there, and the CRC-32 of what is."""

    shard: Shard
    partial: str
    left: int
    crcs: dict[str, int] = field(default_factory=dict)


def check_shards(place: Destination, crew: Crew) -> Done:
    """This reads the shards that an earlier run finished, and has those written again that are damaged."""
    futures = {shard: crew.submit(is_whole, place.final(shard), len(shard.header), shard.sizes) for shard in place.kept}
    try:
        damaged = [shard for shard, future in futures.items() if not future.result()]
    except BrokenExecutor:
        raise lost_worker() from None
    place.discard(damaged)
    return Done(bytes_checked=sum(shard.size for shard in futures), damaged=tuple(shard.file for shard in damaged))


def write_shards(place: Destination, source: Source, crew: Crew, device: str, report: Callable[[Done], None]) -> Done:
    """This writes every shard that is not finished. Raises NotConverted; what is finished by then stays."""
    return _Writing(place, crew, report).run(source, device)


class _Writing:
    """The calls that the crew has in hand: for each, the shard that waits for it, or none for a shard's last."""

    def __init__(self, place: Destination, crew: Crew, report: Callable[[Done], None]) -> None:
        self._place = place
        self._crew = crew
        self._report = report
        self._calls: dict[Future[Done], Opened | None] = {}
        self._total = Done()

    def run(self, source: Source, device: str) -> Done:
        for shard in self._place.unfinished:
            pieces = list(batches(shard.units, PIECE_BYTES))
            opened = Opened(shard, self._place.partial(shard), len(pieces))
            for units in pieces:
                self._settle(below=AHEAD * self._crew.workers)
                piece = _piece(opened, units, source, self._crew.spread)
                self._calls[self._crew.submit(convert_piece, piece, device)] = opened
        self._settle(below=1)
        return self._total

    def _settle(self, below: int) -> None:
        """This waits until fewer calls than `below` are in hand."""
        while len(self._calls) >= below:
            for future in wait(self._calls, return_when=FIRST_COMPLETED).done:
                self._take(future, self._calls.pop(future))

    def _take(self, future: Future[Done], opened: Opened | None) -> None:
        try:
            done = future.result()
        except BrokenExecutor:
            raise lost_worker() from None
        self._total += done
        self._report(done)
        if opened is None:
            return
        opened.left -= 1
        opened.crcs |= done.crcs
        if not opened.left:
            final, header = self._place.final(opened.shard), opened.shard.sealed(opened.crcs)
            self._calls[self._crew.submit(finish_shard, opened.partial, final, header)] = None


def _piece(opened: Opened, units: tuple[Unit, ...], source: Source, durable: bool) -> Piece:
    sources = {name: source.tensors[name] for unit in units for name in unit.source_names}
    places = {name: opened.shard.places[name] for unit in units for name in unit.outputs}
    return Piece(opened.partial, units, sources, places, durable)
