"""Going on with an interrupted conversion: what is finished is kept if it is still what was written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from converter.checkpoints import content
from converter.conversions import Case, case
from rollout.support import SMALL
from safetensors import safe_open

from precc_converter import NotConverted, convert
from precc_converter.conversion import flow
from precc_converter.conversion.crew import Crew
from precc_converter.conversion.destination import Destination
from precc_converter.conversion.flow import Conversion
from precc_converter.conversion.piece import Done
from precc_converter.conversion.state import STATE

SIZE = 600_000
"""Bytes a shard: half a dozen of them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("made"), SMALL["qwen3_moe"], "nvfp4_rl")


@pytest.fixture(scope="module")
def right(made: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What has to come out."""
    return content(made.convert(tmp_path_factory.mktemp("right") / "out", max_shard_size=SIZE))


@pytest.fixture
def interrupted(made: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conversion that had written all shards when it was stopped."""

    def stopped(place: Destination, conversion: Conversion) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(flow, "_write_rest", stopped)
        with pytest.raises(KeyboardInterrupt):
            made.convert(tmp_path / "out", max_shard_size=SIZE)
    return tmp_path / "out"


def go_on(made: Case, out: Path, **options: Any) -> Done:
    """What the next run did."""
    return convert(
        made.source, out, made.compiled, **{"workers": 1, "device": "cpu", "max_shard_size": SIZE, **options}
    )


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _header(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def _swap(path: Path) -> None:
    """The first two tensors that differ and have one size, each with the other's bytes."""
    data, start = bytearray(path.read_bytes()), _header(path)
    header = json.loads(data[8:start])
    header.pop("__metadata__")
    spans = [slice(start + a, start + b) for a, b in (entry["data_offsets"] for entry in header.values())]
    for one in spans:
        for other in spans:
            if one.stop - one.start == other.stop - other.start and data[one] != data[other]:
                data[one], data[other] = data[other], data[one]
                path.write_bytes(data)
                return
    raise AssertionError("no two tensors of one size")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "the first byte of the tensors": lambda path: _flip(path, _header(path)),
    "the last byte": lambda path: _flip(path, -1),
    "a byte in the middle": lambda path: _flip(path, path.stat().st_size // 2),
    "a byte of the header": lambda path: _flip(path, _header(path) // 2),
    "the checksum itself": lambda path: _flip(path, path.read_bytes().index(b'"precc_crc32":"') + 16),
    "two tensors swapped": _swap,
    "a hole": lambda path: path.write_bytes(path.read_bytes()[:-4096] + bytes(4096)),
    "a cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "a longer file": lambda path: path.write_bytes(path.read_bytes() + b"0"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_shard_is_never_kept(made: Case, right: dict[str, bytes], interrupted: Path, name: str) -> None:
    """Written again, and the others left alone."""
    first, second, *_ = sorted(interrupted.glob("*.safetensors"))
    kept = second.stat().st_mtime_ns
    DAMAGE[name](first)
    done = go_on(made, interrupted)
    assert content(interrupted) == right
    assert second.stat().st_mtime_ns == kept
    assert 0 < done.bytes_out < sum(len(right[name]) for name in right if name.endswith(".safetensors")) / 2


def test_finished_shards_are_read_once_and_nothing_else_is(
    made: Case, right: dict[str, bytes], interrupted: Path
) -> None:
    """Each byte of them, counted; a first run reads nothing that it wrote."""
    done = go_on(made, interrupted)
    assert done.bytes_checked == sum(len(data) for name, data in right.items() if name.endswith(".safetensors"))
    assert (done.bytes_out, done.tensors, done.damaged) == (0, 0, ())
    assert content(interrupted) == right


def test_a_first_run_checks_nothing(made: Case, tmp_path: Path) -> None:
    """Its checksums are of the memory that it writes from."""
    assert go_on(made, tmp_path / "out").bytes_checked == 0


@pytest.mark.slow
def test_workers_check_as_well(made: Case, right: dict[str, bytes], interrupted: Path) -> None:
    """The damaged one is named."""
    _, second, *_ = sorted(interrupted.glob("*.safetensors"))
    _flip(second, -1)
    assert go_on(made, interrupted, workers=2).damaged == (second.name,)
    assert content(interrupted) == right


def test_a_damaged_shard_is_gone_if_the_run_stops_again(
    made: Case, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next one has nothing to be wrong about."""
    first, *others = sorted(interrupted.glob("*.safetensors"))
    _flip(first, -1)

    def stopped(place: Destination, source: object, crew: Crew, device: str, report: object) -> Done:
        raise NotConverted

    with monkeypatch.context() as patch:
        patch.setattr(flow, "write_shards", stopped)
        with pytest.raises(NotConverted):
            go_on(made, interrupted)
    assert sorted(interrupted.glob("*.safetensors")) == others
    assert (interrupted / STATE).exists()


def test_the_checksum_is_what_it_says(right: dict[str, bytes], made: Case, tmp_path: Path) -> None:
    """A CRC-32 over the CRC-32 of each tensor in the order of the file, computed here from the file alone."""
    for file in made.convert(tmp_path / "out", max_shard_size=SIZE).glob("*.safetensors"):
        data, start = file.read_bytes(), _header(file)
        header = json.loads(data[8:start])
        with safe_open(file, "pt") as shard:
            said = shard.metadata()["precc_crc32"]
        del header["__metadata__"]
        spans = sorted(entry["data_offsets"] for entry in header.values())
        each = b"".join(crc32(data[start + a : start + b]).to_bytes(4, "big") for a, b in spans)
        assert f"{crc32(each):08x}" == said
