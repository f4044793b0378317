"""A conversion from end to end. Read this first.

contract ─units→ units ─shards→ layout      every output's file and place, from names and sizes alone
source headers ─check→ units                what is stored is what the contract was compiled for
claim the folder, check the disk           finished shards of an earlier run ─checksums→ kept, or written again
units ─pieces→ crew ─→ partial files ─→ shards
source unchanged? other files, index, hf_quant_config.json, config.json, and the folder is no more unfinished
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from precc.backend import Unsupported
from precc.contract import Contract, load_contract
from precc.contract.serial import ContractError
from precc.graph.shards import INDEX
from precc_converter.conversion.configuration import configuration_files, other_files
from precc_converter.conversion.crew import Crew, processes
from precc_converter.conversion.destination import Destination, claimed
from precc_converter.conversion.findings import DESTINATION, NO_CONFIGURATION, NotConverted, stop
from precc_converter.conversion.layout import Shard, index_of, shards_of
from precc_converter.conversion.piece import Done
from precc_converter.conversion.shards import check_shards, write_shards
from precc_converter.conversion.source import Source, open_source
from precc_converter.conversion.state import STATE
from precc_converter.conversion.units import units_of
from precc_converter.plan import PLAN_PATH, SHARD_BYTES, metadata, plan_of, plan_text

Report = Callable[[Done], None]
"""What is told of every finished piece."""


@dataclass(frozen=True)
class Conversion:
    """What is to be converted, decided before the destination is touched."""

    contract: Contract
    source: Source
    shards: tuple[Shard, ...]
    configuration: dict[str, str]
    others: tuple[str, ...]
    facts: dict[str, object]

    @property
    def other_bytes(self) -> int:
        """What is written beside the shards."""
        copied = sum(os.path.getsize(self.source.folder / path) for path in self.others)
        return copied + sum(map(len, self.configuration.values()))


def convert(
    source: str | Path,
    destination: str | Path,
    contract: str | Path,
    *,
    workers: int | None = None,
    device: str = "auto",
    max_shard_size: int = SHARD_BYTES,
    crew: AbstractContextManager[Crew] | None = None,
    started: Callable[[Conversion, Sequence[Shard]], Report] | None = None,
) -> Done:
    """This converts a checkpoint folder, or one safetensors file, as a compiled contract says.

    `contract` is the folder of a compile, or the `contract.json` in it. `workers` processes do the work, one a core if
    it is None; with one, this process does it, else the caller's main module has to be importable. `device` is `cpu`,
    `cuda`, or `auto` for a GPU where there is one. Shards hold at most `max_shard_size` bytes of tensors, unless one
    unit is larger. `crew` takes the place of `workers` (see `crew.py`). `started` is told what will be written when
    writing begins, and answers with what is then told of every finished piece.

    The bytes of tensors depend on the source and the contract alone, the files also on `max_shard_size`. An interrupted
    conversion goes on when it is called again with the same arguments. Raises NotConverted.
    """
    conversion = prepare(Path(source), Path(destination), Path(contract), max_shard_size)
    with claimed(Path(destination), conversion.facts, conversion.shards) as place:
        place.check_room(conversion.other_bytes)
        place.begin()
        with crew or processes(workers or cores()) as crew_:
            done = check_shards(place, crew_)
            report = started(conversion, place.unfinished) if started else _silent
            done += write_shards(place, conversion.source, crew_, device, report)
        conversion.source.check_unchanged()
        _write_rest(place, conversion)
    return done


def prepare(source: Path, destination: Path, compiled: Path, max_shard_size: int = SHARD_BYTES) -> Conversion:
    """Everything that can be known before the first byte is written. Raises NotConverted."""
    contract, folder = _contract(compiled)
    plan = _plan(contract, folder)
    checkpoint = open_source(source)
    _check_apart(checkpoint.folder, destination)
    units = units_of(contract)
    checkpoint.check(units)
    facts: dict[str, object] = {
        "precc": version("precc"),
        "contract": contract.digest,
        "plan": sha256(plan.encode()).hexdigest(),
        "source": {name: [size, time] for name, size, time in checkpoint.shards},
        "max_shard_size": max_shard_size,
    }
    return Conversion(
        contract=contract,
        source=checkpoint,
        shards=shards_of(units, max_shard_size, metadata(contract)),
        configuration=configuration_files(checkpoint.folder, folder, contract),
        others=tuple(other_files(checkpoint.folder)),
        facts=facts,
    )


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _silent(done: Done) -> None:
    """Nobody asked."""


def _contract(compiled: Path) -> tuple[Contract, Path]:
    """A contract, and the folder that it was compiled into."""
    try:
        return load_contract(compiled), compiled if compiled.is_dir() else compiled.parent
    except (ContractError, UnicodeDecodeError, RecursionError) as problem:
        raise stop(NO_CONFIGURATION, str(problem), "compile the policy again") from None
    except OSError as problem:
        help = "give the folder that `precc compile -o` wrote, or the contract.json in it"
        raise stop(NO_CONFIGURATION, f"{problem.filename}: {problem.strerror}", help) from None


def _plan(contract: Contract, folder: Path) -> str:
    """The text of a contract's plan, which has to be the one that was compiled, if there is one."""
    try:
        text = plan_text(plan_of(contract))
    except Unsupported as refusal:
        raise NotConverted(*refusal.findings) from None
    path = folder / PLAN_PATH
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != text:
        raise stop(NO_CONFIGURATION, f"{path} is not the plan of the contract beside it", "compile the policy again")
    return text


def _check_apart(source: Path, destination: Path) -> None:
    one, other = source.resolve(), destination.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise stop(
            DESTINATION,
            f"the destination {destination} and the source {source} lie in one another",
            "name a folder of its own for the new checkpoint: the source is never changed",
        )
    if (source / STATE).exists():
        raise stop(DESTINATION, f"the source {source} is itself an unfinished conversion", "finish it first")


def _write_rest(place: Destination, conversion: Conversion) -> None:
    """The files beside the shards; `config.json` last, then the folder is a checkpoint."""
    for path in conversion.others:
        place.copy(conversion.source.folder / path, path)
    index = index_of(conversion.shards)
    if index is not None:
        place.write(INDEX, json.dumps(index, indent=1) + "\n")
    for name, text in conversion.configuration.items():
        place.write(name, text)
    place.finish()
