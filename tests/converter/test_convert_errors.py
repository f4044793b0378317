"""What a conversion refuses: one finding that says what, where and what to do, and nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from converter.checkpoints import Weights, content
from converter.conversions import Case, case, compile_for
from converter.damaging import changed, first_shard
from rollout.support import SMALL

from precc.diagnostics import Diagnostic
from precc_converter import NotConverted
from precc_converter.conversion import destination
from precc_converter.conversion.findings import unwritable
from precc_converter.conversion.state import STATE

GATE = "model.layers.1.mlp.experts.2.gate_proj.weight"
INDEX = "model.safetensors.index.json"
KEYS = "model.layers.0.self_attn.k_proj.weight"


def refused(made: Case, out: Path) -> Diagnostic:
    """The one finding of a conversion that is refused and leaves no folder."""
    with pytest.raises(NotConverted) as refusal:
        made.convert(out)
    (finding,) = refusal.value.findings
    assert finding.help
    assert not out.exists()
    return finding


Weight = Callable[[Weights], object]
WEIGHTS: dict[str, tuple[Weight, str, tuple[str, ...]]] = {
    "missing": (lambda w: w.pop(GATE), "P603", ("lacks 1 tensors", GATE)),
    "extra": (lambda w: w.update(stray=torch.ones(2)), "P603", ("has 1 tensors", "stray")),
    "renamed": (
        lambda w: w.update({GATE.replace("gate_proj", "gate_prj"): w.pop(GATE)}),
        "P603",
        (GATE, "nearest", "gate_prj"),
    ),
    "of another shape": (lambda w: w.update({KEYS: w[KEYS][:-1].clone()}), "P601", (KEYS, "[127, 256]", "[128, 256]")),
    "of another dtype": (lambda w: w.update({KEYS: w[KEYS].half()}), "P601", (KEYS, "F16", "BF16")),
    "not a number": (
        lambda w: w[GATE].view(-1)[1000].fill_(torch.nan),
        "P602",
        (f"-of-00002.safetensors: `{GATE}` holds 1 value that is NaN or Inf, the first nan at [3, 232]",),
    ),
    "infinite": (lambda w: w[GATE].view(-1)[1000].fill_(-torch.inf), "P602", (GATE, "the first -inf at")),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_wrong_tensor_is_named(copied: Case, tmp_path: Path, name: str) -> None:
    """By its own name, with what it is and what it should be."""
    change, code, said = WEIGHTS[name]
    finding = refused(changed(copied, change), tmp_path / "out")
    assert finding.code == code
    for words in said:
        assert words in f"{finding.message} {finding.help}"


def test_a_scale_that_is_no_power_of_two_is_named_where_the_source_declares_such(tmp_path: Path) -> None:
    """Its codes are kept under a power of two, so any other value would be lost."""
    policy = "targets: sglang, converter\ndefault: mxfp8\nq_a_proj?, kv_a_proj_with_mqa?, kv_b_proj?: bf16\n"
    made = case(tmp_path, SMALL["deepseek_v3"], policy, fp8=True, power_of_two=True)
    name = "model.layers.0.mlp.down_proj.weight_scale_inv"
    changed(made, lambda weights: weights[name].mul_(1.5))
    finding = refused(made, tmp_path / "out")
    assert finding.code == "P601"
    assert name in finding.message


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight"])
def test_what_is_copied_holds_numbers_as_well(copied: Case, tmp_path: Path, name: str, value: float) -> None:
    """As the live export has it: with the file, how many, and where the first is, found part by part."""

    def change(weights: Weights) -> None:
        weights[name].view(-1)[3] = value
        weights[name].view(-1)[-1] = torch.nan

    finding = refused(changed(copied, change), tmp_path / "out")
    place = [0, 3] if name == "lm_head.weight" else [3]
    assert finding.code == "P602"
    assert f".safetensors: `{name}` holds 2 values that are NaN or Inf, the first {value} at {place}" in finding.message


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _longer_shape(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["lm_head.weight"]["shape"][0] += 1
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


FILES: dict[str, tuple[Callable[[Case], object], str]] = {
    "a truncated shard": (lambda made: _cut(first_shard(made)), "ends beyond the end of the file"),
    "an empty shard": (lambda made: os.truncate(first_shard(made), 0), "of-00002.safetensors is empty"),
    "a flipped bit in a header's length": (lambda made: _flip(first_shard(made), 7), "longer than the file"),
    "a flipped bit in a header": (lambda made: _flip(first_shard(made), 8), "not valid JSON"),
    "a header that lies": (lambda made: _longer_shape(first_shard(made)), "another length than its shape"),
    "a missing shard": (
        lambda made: first_shard(made).unlink(),
        "00001-of-00002.safetensors`, which is not there",
    ),
    "the same tensor twice": (
        lambda made: shutil.copy(first_shard(made), made.source / "model-00003-of-00003.safetensors"),
        "also stands in model-00001-of-00002.safetensors",
    ),
    "no weights": (lambda made: [path.unlink() for path in made.source.glob("*.safetensors")], "no safetensors files"),
    "no configuration": (lambda made: (made.source / "config.json").unlink(), "config.json is missing"),
    "a broken configuration": (lambda made: (made.source / "config.json").write_text("{"), "not valid JSON"),
    "a broken index": (lambda made: (made.source / INDEX).write_text("[]"), "holds no JSON object"),
    "an index of nothing": (lambda made: (made.source / INDEX).write_text('{"weight_map": {"a": 1}}'), "is no index"),
    "an index that is a folder": (lambda made: _instead(made.source / INDEX, Path.mkdir), "is a folder, no file"),
    "a shard that is a folder": (lambda made: _instead(first_shard(made), Path.mkdir), "Is a directory"),
    "a shard that is a pipe": (lambda made: _instead(first_shard(made), os.mkfifo), "is a named pipe, no file"),
    "a configuration that is a pipe": (
        lambda made: _instead(made.source / "config.json", os.mkfifo),
        "is a named pipe, no file",
    ),
    "a side file that is a pipe": (
        lambda made: _instead(made.source / "tokenizer.json", os.mkfifo),
        "tokenizer.json is a named pipe, no file",
    ),
    "a side file that links to nothing": (
        lambda made: _instead(made.source / "tokenizer.json", lambda path: path.symlink_to("blobs/7")),
        "tokenizer.json links to blobs/7, which is not there",
    ),
    "a side file that links to itself": (
        lambda made: _instead(made.source / "tokenizer.json", lambda path: path.symlink_to("tokenizer.json")),
        "tokenizer.json cannot be read: Too many levels",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_source_is_one_finding(copied: Case, tmp_path: Path, name: str) -> None:
    """Which file, and what is wrong with it."""
    change, said = FILES[name]
    change(copied)
    finding = refused(copied, tmp_path / "out")
    assert finding.code == "P604"
    assert said in finding.message
    assert str(copied.source) in finding.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "code", INDEX])
def test_what_this_user_may_not_read_is_named(copied: Case, tmp_path: Path, name: str) -> None:
    """Before anything is written, a folder like a file."""
    path = copied.source / name
    if not path.exists():
        path.mkdir()
    path.chmod(0)
    finding = refused(copied, tmp_path / "out")
    assert finding.code == "P604"
    assert f"{path} cannot be read: Permission denied" in finding.message


def test_a_linked_folder_is_copied_and_a_link_upwards_is_not_followed(copied: Case, tmp_path: Path) -> None:
    """As a checkpoint in a cache of linked files looks."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "run.py").write_text("pass\n")
    (copied.source / "code").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(copied.source)
    (copied.source / "here").symlink_to(copied.source)
    out = copied.convert(tmp_path / "out")
    assert (out / "code" / "run.py").read_text() == "pass\n"
    assert not (out / "here").exists()


def test_an_index_that_leaves_its_folder_is_called_that(copied: Case, tmp_path: Path) -> None:
    """Nothing is missing: it lies elsewhere."""
    index = json.loads((copied.source / INDEX).read_text())
    index["weight_map"][GATE] = "../other/model-00001-of-00002.safetensors"
    (copied.source / INDEX).write_text(json.dumps(index))
    finding = refused(copied, tmp_path / "out")
    assert finding.code == "P609"
    assert "lists `../other/model-00001-of-00002.safetensors`: a path that leaves the folder" in finding.message


NO_SOURCES: dict[str, tuple[Callable[[Case], Path], str]] = {
    "nothing": (lambda made: made.source / "nosuch", "nosuch is missing"),
    "another file": (lambda made: made.source / "config.json", "config.json is no safetensors file"),
    "one shard of several": (first_shard, "lacks"),
}


@pytest.mark.parametrize("name", NO_SOURCES)
def test_what_is_no_source_is_refused_with_what_to_give(copied: Case, tmp_path: Path, name: str) -> None:
    """A folder, or the one file in it."""
    source, said = NO_SOURCES[name]
    finding = refused(Case(source(copied), copied.compiled), tmp_path / "out")
    assert said in finding.message
    assert "give" in str(finding.help)


COMPILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no contract": (lambda out: (out / "contract.json").unlink(), "contract.json"),
    "an edited contract": (
        lambda out: (out / "contract.json").write_text((out / "contract.json").read_text().replace("nvfp4", "mxfp8")),
        "contract.json",
    ),
    "no server's artifacts": (lambda out: shutil.rmtree(out / "sglang"), "has no sglang/quantization_config.json"),
    "another contract's artifacts": (
        lambda out: (out / "sglang/quantization_config.json").write_text('{"precc_contract": "0"}'),
        "is of the contract 0",
    ),
    "another plan": (
        lambda out: (out / "converter/plan.json").write_text("{}"),
        "is not the plan of the contract beside it",
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_folder_that_is_not_whole_is_refused(copied: Case, tmp_path: Path, name: str) -> None:
    """What the server would read has to be of the same contract."""
    change, said = COMPILED[name]
    change(copied.compiled)
    finding = refused(copied, tmp_path / "out")
    assert finding.code == "P608"
    assert said in finding.message


@pytest.mark.parametrize("place", ["source", "source/inside", "."])
def test_source_and_destination_may_not_lie_in_one_another(copied: Case, tmp_path: Path, place: str) -> None:
    """The source is never written to."""
    before = content(copied.source)
    with pytest.raises(NotConverted, match=r"P605.*lie in one another"):
        copied.convert(tmp_path / place)
    assert content(copied.source) == before


def test_a_folder_with_files_in_it_is_refused_and_kept(original: Case, tmp_path: Path) -> None:
    """Nothing of somebody else's is overwritten, weights that precc did not write included."""
    (tmp_path / "out").mkdir()
    before = {"config.json": b"{}", "model.safetensors": (original.source / first_shard(original).name).read_bytes()}
    for name, data in before.items():
        (tmp_path / "out" / name).write_bytes(data)
    with pytest.raises(NotConverted, match=r"P605.*not empty: it holds `config.json`, and no unfinished conversion"):
        original.convert(tmp_path / "out")
    assert content(tmp_path / "out") == before


def test_a_finished_conversion_is_called_that_and_kept(original: Case, tmp_path: Path) -> None:
    """For the same contract with how to make sure of it, for another one with which it is."""
    out = original.convert(tmp_path / "out")
    before = content(out)
    with pytest.raises(NotConverted) as refusal:
        original.convert(out)
    (finding,) = refusal.value.findings
    mine = original.contract.digest[:12]
    assert (finding.code, finding.message) == ("P605", f"{out} is already finished for this contract, {mine}")
    assert "`precc audit --source`" in str(finding.help)
    other = Case(original.source, compile_for(original.source, "mxfp8_e2e", tmp_path / "compiled"))
    said = f"P605.*is the finished conversion for another contract, {mine}; this is {other.contract.digest[:12]}"
    with pytest.raises(NotConverted, match=said):
        other.convert(out)
    assert content(out) == before


DESTINATIONS = {
    "a file": ("out", "File exists", "name a new or an empty folder"),
    "below a file": ("out/inside", "Not a directory", "name a new or an empty folder"),
    "a long name": ("x" * 300, "File name too long", "name a folder with a shorter path"),
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_what_can_be_no_folder_is_no_matter_of_room(original: Case, tmp_path: Path, name: str) -> None:
    """The system's own word, and what helps against it."""
    (tmp_path / "out").write_text("")
    place, said, help = DESTINATIONS[name]
    with pytest.raises(NotConverted) as refusal:
        original.convert(tmp_path / place)
    (finding,) = refusal.value.findings
    assert finding.code == "P605"
    assert said in finding.message
    assert help in str(finding.help)
    assert "room" not in str(finding.help)


@pytest.mark.parametrize(
    "number, code, help",
    [
        (errno.ENOSPC, "P606", "make room"),
        (errno.EDQUOT, "P606", "make room"),
        (errno.EFBIG, "P606", "--max-shard-size"),
        (errno.EROFS, "P605", "may write"),
        (errno.EACCES, "P605", "may write"),
        (errno.EIO, "P605", "see to the disk"),
    ],
)
def test_a_write_that_fails_is_told_by_its_cause(number: int, code: str, help: str) -> None:
    """Only a full disk is a matter of room."""
    (finding,) = unwritable("out/model.safetensors", OSError(number, os.strerror(number))).findings
    assert finding.code == code
    assert finding.message == f"out/model.safetensors cannot be written: {os.strerror(number)}"
    assert help in str(finding.help)


def test_two_conversions_do_not_write_into_one_folder(original: Case, tmp_path: Path) -> None:
    """The second is refused while the first holds the folder."""
    out = tmp_path / "out"
    out.mkdir()
    with (out / STATE).open("w") as state:
        fcntl.flock(state, fcntl.LOCK_EX)
        with pytest.raises(NotConverted, match=r"P605.*another conversion is writing"):
            original.convert(out)
        (out / STATE).unlink()
    original.convert(out)


def test_a_disk_without_room_is_refused_before_anything_is_written(
    original: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both figures are said."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(destination.shutil, "disk_usage", lambda _: usage)
    finding = refused(original, tmp_path / "out")
    assert finding.code == "P606"
    assert "1,000,000 free" in finding.message
