"""`precc verify`: whether a compiled folder still says what its contract says."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.commands import Run, edit

QWEN = "qwen3-30b-a3b"


@pytest.fixture
def out(run: Run, project: Path) -> Path:
    """A compiled folder."""
    assert run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out").status == 0
    return project / "out"


def test_a_fresh_output_agrees_for_every_target(run: Run, out: Path) -> None:
    """Every tensor of every target is read back."""
    shown = run("verify", "out", "--output-format", "json")
    assert shown.status == 0
    assert shown.json == {"checked": 3 * 18_867, "agree": 3 * 18_867, "findings": []}
    text = run("verify", "out")
    assert "sglang: 18,867 of 18,867 tensors agree" in text.out
    assert text.out.endswith("no findings\n")


def test_a_changed_and_a_missing_file_are_named(run: Run, out: Path) -> None:
    """Also files that decide nothing, such as the report."""
    (out / "report.html").write_text("")
    (out / "te/env.sh").unlink()
    shown = run("verify", "out", "--output-format", "json")
    assert shown.status == 1
    messages = [item["message"] for item in shown.json["findings"] if item["code"] == "P509"]
    assert messages == ["report.html was changed after it was written", "te/env.sh is missing"]


def test_an_artifact_that_decides_otherwise_is_found_by_the_engines_rules(run: Run, out: Path) -> None:
    """The converter's plan says MXFP8 where the contract says NVFP4; its hash in the manifest is right."""
    edit(out, "converter/plan.json", "nvfp4", "mxfp8")
    shown = run("verify", "out", "--output-format", "json").json
    assert shown["agree"] < shown["checked"]
    assert {item["code"] for item in shown["findings"]} & {"P501", "P502"}
    assert "P509" not in {item["code"] for item in shown["findings"]}


def test_an_artifact_that_cannot_be_read_is_refused_as_a_whole(run: Run, out: Path) -> None:
    """No count of tensors, as if each had been looked at; the other targets are compared all the same."""
    (out / "converter/plan.json").write_text("{")
    shown = run("verify", "out")
    assert shown.status == 1
    whole = "converter: the artifacts are refused as a whole, so none of 18,867 tensors is decided"
    assert whole in shown.out.splitlines()
    assert "sglang: 18,867 of 18,867 tensors agree" in shown.out
    assert "error[P502]" in shown.out


def test_an_edited_contract_is_found_by_its_own_digest(run: Run, out: Path) -> None:
    """Nothing is compared with a contract that is not what it says."""
    edit(out, "contract.json", '"format": "nvfp4"', '"format": "mxfp4"')
    shown = run("verify", "out", "--output-format", "json")
    assert shown.status == 1
    assert shown.json["checked"] == 0
    assert "it was edited after it was compiled" in shown.json["findings"][0]["message"]


def test_the_contract_of_another_compile_is_found(run: Run, out: Path) -> None:
    """Valid by itself, and not the one of this manifest."""
    assert run("compile", "mxfp8_e2e", "--model", QWEN, "-o", "other").status == 0
    (out / "contract.json").write_bytes((out.parent / "other/contract.json").read_bytes())
    shown = run("verify", "out", "--output-format", "json").json
    messages = [item["message"] for item in shown["findings"]]
    assert "contract.json was changed after it was written" in messages
    assert "MANIFEST.json and contract.json have different digests" in messages


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": "", "precc": "", "targets": 1, "files": {}}'])
def test_a_folder_without_a_manifest_of_ours_is_a_usage_error(run: Run, out: Path, text: str) -> None:
    """As is one that is not there, and one whose manifest names a path outside."""
    (out / "MANIFEST.json").write_text(text)
    result = run("verify", "out")
    assert (result.status, result.out) == (2, "")
    assert "MANIFEST.json: not" in result.err
    (out / "MANIFEST.json").unlink()
    assert "was not written by a compile" in run("verify", "out").err
    assert "there is no folder `nowhere`" in run("verify", "nowhere").err
