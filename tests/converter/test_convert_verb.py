"""`precc convert` as it is typed: output, progress, status."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from converter.checkpoints import content
from converter.conversions import Case, case
from rollout.support import SMALL

from precc.cli import main
from precc_converter.conversion.layout import shards_of
from precc_converter.conversion.piece import Done
from precc_converter.conversion.progress import Progress, clock_text
from precc_converter.conversion.units import units_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("made"), SMALL["qwen3_moe"], "nvfp4_rl")


def run(made: Case, out: Path, *options: str) -> int:
    """The status of a conversion by one worker."""
    fixed = ("--contract", str(made.compiled), "--workers", "1", "--device", "cpu")
    return main(["convert", str(made.source), str(out), *fixed, *options])


def test_it_says_in_one_line_what_it_wrote(made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing on the error stream, which is no terminal here."""
    assert run(made, tmp_path / "out") == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'out'}: 159 tensors in 1 shard, contract {made.contract.digest[:12]}\n"
    assert said.err == ""


def test_machines_get_figures(made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes are those of tensors, read and written."""
    assert run(made, tmp_path / "out", "--output-format", "json", "--max-shard-size", "0.5MB") == 0
    shown = json.loads(capsys.readouterr().out)
    shards = list((tmp_path / "out").glob("*.safetensors"))
    assert (shown["contract"], shown["shards"], shown["tensors"]) == (made.contract.digest, len(shards), 159)
    assert sum(path.stat().st_size for path in shards) - 40_000 < shown["bytes_written"] < shown["bytes_read"]
    assert set(shown["seconds"]) == {"reading", "quantizing", "writing"}


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_refusal_is_a_finding_with_status_1(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    """As a text for people beside the output, as JSON on it for machines."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert run(made, tmp_path / "out", "--output-format", format) == 1
    said = capsys.readouterr()
    if format == "json":
        (finding,) = json.loads(said.out)["findings"]
        assert finding["code"] == "P605"
    else:
        assert said.err.startswith("error[P605]")
        assert said.out == ""
    assert content(tmp_path / "out") == {"notes.txt": b"mine"}


@pytest.mark.parametrize(
    "options",
    [("--workers", "0"), ("--max-shard-size", "much"), ("--max-shard-size", "0"), ("--device", "tpu")],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_a_usage_error(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """Status 2, one line, nothing written."""
    assert run(made, tmp_path / "out", *options) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, said",
    [
        (("--workers", "0"), "argument --workers: `0` is no number from 1"),
        (("--workers", "-3"), "argument --workers: `-3` is no number from 1"),
        (("--max-shard-size", "much"), "argument --max-shard-size: `much` is no size from 1 byte: 5GB, 500MB"),
    ],
)
def test_a_value_out_of_range_is_told_with_the_range(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    """Which is in the help, too."""
    assert run(made, tmp_path / "out", *options) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("contract", ["nowhere", "SOURCE", "SOURCE/tokenizer.json.gz"])
def test_both_verbs_take_no_contract_for_a_mistake_on_the_command_line(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], contract: str
) -> None:
    """The same status, and the same words."""
    wrong = contract.replace("SOURCE", str(made.source))
    said = []
    for command in (["convert", str(made.source), str(tmp_path / "out")], ["audit", str(made.source)]):
        assert main([*command, "--contract", wrong]) == 2
        said.append(capsys.readouterr().err.replace("convert", "audit"))
    assert f"`{wrong}` is no folder that `precc compile -o` wrote, and no contract.json" in said[0]
    assert said[0] == said[1]


def test_an_edited_contract_is_told_once_what_to_do(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By both verbs."""
    text = (made.compiled / "contract.json").read_text().replace("nvfp4", "mxfp8")
    (tmp_path / "contract.json").write_text(text)
    for command in (["convert", str(made.source), str(tmp_path / "out")], ["audit", str(made.source)]):
        assert main([*command, "--contract", str(tmp_path)]) == 1
        assert capsys.readouterr().err.count("compile the policy again") == 1


def test_the_finished_folder_given_again_is_called_finished(
    made: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 1, as the help says; nothing in it changes."""
    out = tmp_path / "out"
    run(made, out)
    before = content(out)
    capsys.readouterr()
    assert run(made, out) == 1
    assert f"error[P605]: {out} is already finished for this contract" in capsys.readouterr().err
    assert content(out) == before


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def progress(made: Case, stream: io.StringIO, times: list[float]) -> Progress:
    """The progress of a whole conversion under a clock that says these times."""
    shards = shards_of(units_of(made.contract), 10**9, {})
    return Progress(shards, stream, iter(times).__next__)


def test_progress_tells_tensors_bytes_rate_and_time_left(made: Case) -> None:
    """One line, written over itself."""
    stream = Terminal()
    shown = progress(made, stream, [0.0, 2.0, 4.0])
    half = shown.bytes // 2
    shown(Done(tensors=80, bytes_in=half))
    shown(Done(tensors=79, bytes_in=shown.bytes - half))
    shown.close()
    first, second = stream.getvalue().removeprefix("\r").split("\r")
    assert first == "80 of 159 tensors, 0.00 of 0.01 GB read, 0.00 GB/s, 0:02 left\x1b[K"
    assert second.startswith("159 of 159 tensors")
    assert second.endswith("0:00 left\x1b[K\n")


def test_progress_is_silent_where_there_is_no_terminal(made: Case) -> None:
    """A log is no place for it."""
    stream = io.StringIO()
    shown = progress(made, stream, [0.0, 2.0])
    shown(Done(tensors=159, bytes_in=shown.bytes))
    shown.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("seconds, said", [(0.4, "0:00"), (61, "1:01"), (3_600, "1:00:00"), (36_061.6, "10:01:02")])
def test_times_are_told_as_clocks_do(seconds: float, said: str) -> None:
    """Hours only where there are some."""
    assert clock_text(seconds) == said
