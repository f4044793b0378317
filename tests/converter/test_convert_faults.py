"""Faults at random points: after each there are the right bytes or a clear refusal, and never a false success."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from converter import faults
from converter.checkpoints import content
from converter.conversions import Case, case
from rollout.support import SMALL

from precc_converter import NotConverted, convert
from precc_converter.conversion.crew import Crew, processes
from precc_converter.conversion.state import STATE

pytestmark = pytest.mark.slow

SHARD = 500_000
"""Bytes a shard: half a dozen of them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("made"), SMALL["qwen3_moe"], "nvfp4_rl", shards=3)


@pytest.fixture
def copied(made: Case, tmp_path: Path) -> Case:
    """The same, its source to be damaged."""
    return Case(shutil.copytree(made.source, tmp_path / "source"), made.compiled)


@pytest.fixture(scope="module")
def right(made: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What has to come out."""
    return content(made.convert(tmp_path_factory.mktemp("right") / "out", max_shard_size=SHARD))


@pytest.fixture(scope="module")
def steps(made: Case, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a conversion does to files, step by step."""
    return faults.steps_of(made, tmp_path_factory.mktemp("steps") / "out", max_shard_size=SHARD)


def assert_no_false_success(out: Path, right: dict[str, bytes]) -> None:
    """A folder that could be taken for a model is one; any other shows that it is unfinished."""
    if not out.exists():
        return
    found = content(out)
    whole = {name: data for name, data in found.items() if not name.startswith(".")}
    assert {name: right.get(name) for name in whole} == whole
    if "config.json" in whole:
        assert whole == right
    elif found:
        assert STATE in found


@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again_it_goes_on_to_the_same_bytes(
    made: Case, right: dict[str, bytes], steps: list[str], tmp_path: Path, seed: int
) -> None:
    """Wherever each of the runs dies."""
    rng, out = random.Random(seed), tmp_path / "out"
    for _ in range(5):
        status, _ = faults.attempt(made, out, rng.randrange(len(steps) // 2), faults.die, max_shard_size=SHARD)
        assert status in (-signal.SIGKILL, 0)
        assert_no_false_success(out, right)
        if status == 0:
            break
    else:
        made.convert(out, max_shard_size=SHARD)
    assert content(out) == right


def moments(steps: list[str]) -> dict[str, list[int]]:
    """The steps of each moment at which a conversion may die."""
    named = [at for at, step in enumerate(steps) if step.startswith("replace model")]
    return {
        "during a shard": [at for at, step in enumerate(steps) if step == "pwrite" and at < named[-1]],
        "between shards": [at + offset for at in named[:-1] for offset in (0, 1, 2)],
        "during the final files": list(range(named[-1] + 1, len(steps) - 1)),
    }


@pytest.mark.parametrize("moment", ["during a shard", "between shards", "during the final files"])
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(
    made: Case, right: dict[str, bytes], steps: list[str], tmp_path: Path, moment: str
) -> None:
    """Four points of each, drawn once and for all."""
    for at in random.Random(moment).sample(moments(steps)[moment], 4):
        out = tmp_path / f"out-{at}"
        status, _ = faults.attempt(made, out, at, faults.die, max_shard_size=SHARD)
        assert status == -signal.SIGKILL
        assert_no_false_success(out, right)
        finished = {path.name: path.stat().st_mtime_ns for path in out.glob("*.safetensors")}
        assert made.convert(out, max_shard_size=SHARD)
        assert content(out) == right
        assert {name: (out / name).stat().st_mtime_ns for name in finished} == finished


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes; skipped where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system needs more rights than this user has")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_disk_that_fills_up_is_a_finding_and_room_is_all_it_needs(
    made: Case, right: dict[str, bytes], steps: list[str], tmp_path: Path, seed: int
) -> None:
    """Another process takes the free bytes at some point of the writing."""
    writes = [at for at, step in enumerate(steps) if step == "pwrite"]
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        out, filler = disk / "out", disk / "filler"
        at = random.Random(seed).choice(writes[: len(writes) // 2])
        assert faults.attempt(made, out, at, faults.FillDisk(filler), max_shard_size=SHARD) == (1, ["P606"])
        assert_no_false_success(out, right)
        assert faults.attempt(made, out, None, None, max_shard_size=SHARD) == (1, ["P606"])
        filler.unlink()
        made.convert(out, max_shard_size=SHARD)
        assert content(out) == right


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(made: Case, tmp_path: Path) -> None:
    """The sizes of all files are known before."""
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        assert faults.attempt(made, disk / "out", None, None) == (1, ["P606"])
        assert list(disk.iterdir()) == []


DAMAGE: dict[str, Callable[[Path], faults.Fault]] = {
    "cut": faults.Cut,
    "unreadable": faults.Unreadable,
    "rewritten": faults.Rewritten,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("seed", range(2))
def test_a_source_that_fails_while_it_is_read_is_a_finding(
    copied: Case, right: dict[str, bytes], steps: list[str], tmp_path: Path, damage: str, seed: int
) -> None:
    """A file that ends early, that cannot be read, that is not what it was."""
    reads = [at for at, step in enumerate(steps) if step == "preadv"]
    at = random.Random(seed).choice(reads[: len(reads) // 2])
    fault = DAMAGE[damage](copied.source)
    assert faults.attempt(copied, tmp_path / "out", at, fault, max_shard_size=SHARD) == (1, ["P604"])
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_in_a_header_is_refused_or_without_effect(
    copied: Case, right: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """Names, dtypes, shapes, offsets, lengths: one bit anywhere."""
    rng = random.Random(seed)
    file = rng.choice(sorted(copied.source.glob("*.safetensors")))
    data = bytearray(file.read_bytes())
    at = rng.randrange(8 + int.from_bytes(data[:8], "little"))
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    try:
        copied.convert(tmp_path / "out", max_shard_size=SHARD)
        codes = set()
    except NotConverted as refusal:
        codes = {finding.code for finding in refusal.findings}
    assert codes <= {"P601", "P603", "P604"}
    assert (tmp_path / "out").exists() is (not codes)
    assert codes or content(tmp_path / "out") == right


@pytest.mark.parametrize("seed", range(10))
def test_a_truncated_shard_is_refused(copied: Case, tmp_path: Path, seed: int) -> None:
    """Wherever it ends."""
    rng = random.Random(seed)
    file = rng.choice(sorted(copied.source.glob("*.safetensors")))
    os.truncate(file, rng.randrange(file.stat().st_size))
    with pytest.raises(NotConverted, match="P604"):
        copied.convert(tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Struck:
    """A crew that loses one of its workers at some call."""

    spread = False

    def __init__(self, crew: Crew, at: int) -> None:
        self.workers = crew.workers
        self._crew = crew
        self._left = at

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This hands a call on, or something that kills who takes it."""
        self._left -= 1
        if self._left == 0:
            return self._crew.submit(os.abort)
        return self._crew.submit(function, *arguments)


@contextmanager
def struck(workers: int, at: int) -> Iterator[Crew]:
    """Real worker processes, one of which dies."""
    with processes(workers) as crew:
        yield Struck(crew, at)


@pytest.mark.parametrize("at", [1, 5])
def test_a_worker_that_dies_is_a_finding_and_the_next_run_goes_on(
    made: Case, right: dict[str, bytes], tmp_path: Path, at: int
) -> None:
    """What was finished before is kept."""
    out = tmp_path / "out"
    with pytest.raises(NotConverted, match="P607"):
        convert(made.source, out, made.compiled, device="cpu", max_shard_size=SHARD, crew=struck(2, at))
    assert_no_false_success(out, right)
    assert content(made.convert(out, max_shard_size=SHARD)) == right


def _begin(made: Case, out: Path, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "precc", "convert", str(made.source), str(out), "--contract", str(made.compiled)]
    command += ["--workers", "2", "--device", "cpu", "--max-shard-size", str(SHARD)]
    process = subprocess.Popen(command, **options)
    while not list(out.glob(".*.partial")):
        assert process.poll() is None
        time.sleep(0.01)
    return process


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def test_killed_with_its_workers_at_work_none_of_them_stays(
    made: Case, right: dict[str, bytes], tmp_path: Path
) -> None:
    """And the folder is free for the next run."""
    out = tmp_path / "out"
    process = _begin(made, out)
    children = _children(process)
    process.kill()
    process.wait()
    assert_no_false_success(out, right)
    assert content(made.convert(out, max_shard_size=SHARD)) == right
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}/fd").exists() and _alive(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_a_second_conversion_into_the_same_folder_is_refused_while_the_first_goes_on(
    made: Case, right: dict[str, bytes], tmp_path: Path
) -> None:
    """Two real processes; the first one's bytes are right."""
    out = tmp_path / "out"
    process = _begin(made, out)
    with pytest.raises(NotConverted, match=r"P605.*another conversion"):
        made.convert(out, max_shard_size=SHARD)
    assert process.wait() == 0
    assert content(out) == right


STOPS: dict[str, tuple[Callable[[int], None], int]] = {
    "Ctrl-C": (lambda process: os.kill(process, signal.SIGINT), 130),
    "a scheduler": (lambda process: os.kill(process, signal.SIGTERM), 143),
    "a scheduler that stops the workers, too": (lambda process: os.killpg(process, signal.SIGTERM), 143),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_stopped_conversion_says_so_in_a_line_and_goes_on(
    made: Case, right: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    """What is kept, and no half-written file, no process and no semaphore left behind."""
    out = tmp_path / "out"
    stop, status = STOPS[name]
    process = _begin(made, out, stderr=subprocess.PIPE, start_new_session=True)
    stop(process.pid)
    _, said = process.communicate()
    assert process.returncode == status
    finished = len([*out.glob("*.safetensors")])
    shards = sum(name.endswith(".safetensors") for name in right)
    kept = f"interrupted: {finished} of {shards} shards are finished and kept, the same command goes on"
    nothing = "interrupted before a shard was finished: the same command begins again"
    assert said.decode() == f"precc: {kept if finished else nothing}\n"
    assert not list(out.glob(".*.partial"))
    assert content(made.convert(out, max_shard_size=SHARD)) == right


def test_the_mark_says_what_is_being_made(made: Case, steps: list[str], tmp_path: Path) -> None:
    """For whoever finds the folder later."""
    out = tmp_path / "out"
    faults.attempt(made, out, len(steps) // 2, faults.die, max_shard_size=SHARD)
    mark = json.loads((out / STATE).read_text())
    assert mark["contract"] == made.contract.digest
    assert "unfinished" in mark["note"]
