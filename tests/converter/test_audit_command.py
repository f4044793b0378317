"""`precc audit` as a command: what it prints, its exit status, and what it costs."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from converter.audits import Conversions, replaced
from converter.conversions import compile_for
from counting import calls
from rollout.support import SMALL

from precc.cli import main
from precc.contract import load_contract
from precc_converter import audit
from precc_converter.auditing.promises import promises_of
from precc_converter.written import BYTES

HEAD = "lm_head.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """The conversions that are audited, and damaged in copies."""
    return Conversions(tmp_path_factory)


def test_a_clean_audit_says_how_much_was_compared(written: Conversions, capsys: pytest.CaptureFixture[str]) -> None:
    """And which bytes were looked at; status 0."""
    out = written("nvfp4_rl")
    command = ["audit", str(out.folder), "--contract", str(out.case.compiled)]
    assert main(command) == 0
    agree = f"{out.folder}: 159 of 159 tensors agree with contract {out.case.contract.digest[:12]}\n"
    assert capsys.readouterr().out == f"{agree}no findings\n"
    assert main([*command, "--source", str(out.case.source), "--sample", "20", "--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{agree}bytes: ")
    assert said.endswith(" tensors, in 20 of 75 units, chosen by seed 7\nno findings\n")


def test_findings_are_printed_with_what_to_do(
    written: Conversions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.change(HEAD, replaced(HEAD))
    assert main(["audit", str(out.folder), "--contract", str(out.case.compiled)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("error[P603]: tensors of the contract are missing: `lm_head.weight`\n   = help: convert")
    assert f"{out.folder}: 158 of 159 tensors agree" in said
    assert said.endswith("\n1 error\n")


def test_the_json_has_its_documented_shape(
    written: Conversions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Findings as in a lint."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.change(HEAD, replaced(HEAD))
    command = ["audit", str(out.folder), "--contract", str(out.case.compiled), "--output-format", "json"]
    assert main(command) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["checked"], shown["agree"]) == (159, 158)
    assert [finding["code"] for finding in shown["findings"]] == ["P603"]
    assert shown.keys() == {"checked", "agree", "findings"}
    main([*command, "--sample", "3"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["bytes"].keys() == {"units", "of", "tensors", "seed"}
    assert (shown["bytes"]["units"], shown["bytes"]["seed"]) == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--contract", "OUT"], "there is no checkpoint `nowhere`"),
        (["CHECKPOINT", "--contract", "nowhere"], "`nowhere` is no folder that `precc compile -o` wrote"),
        (["CHECKPOINT", "--contract", "OUT", "--source", "nowhere"], "there is no checkpoint `nowhere`"),
        (["CHECKPOINT", "--contract", "OUT", "--sample", "0"], "argument --sample: `0` is no number from 1"),
        (["CHECKPOINT"], "--contract"),
    ],
)
def test_a_mistake_on_the_command_line_is_status_2(
    written: Conversions, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """One line that says which."""
    out = written("nvfp4_rl")
    places = {"CHECKPOINT": str(out.folder), "OUT": str(out.case.compiled)}
    assert main(["audit", *(places.get(word, word) for word in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_damaged_contract_is_a_finding(
    written: Conversions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was compared; status 1."""
    (tmp_path / "contract.json").write_text("{}")
    command = ["audit", str(written("nvfp4_rl").folder), "--contract", str(tmp_path)]
    assert main(command) == 1
    assert "error[P608]" in capsys.readouterr().err
    assert main([*command, "--output-format", "json"]) == 1
    assert [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]] == ["P608"]


FEW, MANY = 32, 256
CALLS_A_TENSOR = 12
"""Python functions called for one stored tensor, those that read its header included."""


def test_many_experts_cost_a_few_calls_a_tensor(tmp_path: Path) -> None:
    """Headers and names are looked at once each, so that 46,000 tensors take about a second."""
    made = {experts: _empty(tmp_path / str(experts), experts) for experts in (FEW, MANY)}
    counts = {experts: calls(partial(audit, *places)) for experts, places in made.items()}
    tensors = {experts: audit(*places).checked for experts, places in made.items()}
    assert tensors[MANY] > 4_000
    assert (counts[MANY] - counts[FEW]) / (tensors[MANY] - tensors[FEW]) < CALLS_A_TENSOR


def _empty(folder: Path, experts: int) -> tuple[Path, Path]:
    """A checkpoint of headers, with holes for weights, and its contract."""
    folder.mkdir()
    config = {**SMALL["qwen3_moe"], "num_experts": experts}
    (folder / "config.json").write_text(json.dumps(config))
    compiled = compile_for(folder / "config.json", "mxfp8_e2e", folder / "compiled")
    quantization = json.loads((compiled / "sglang/quantization_config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    header, end = {}, 0
    for promise in promises_of(load_contract(compiled)):
        for word, stored in promise.stored.items():
            start, end = end, end + _bytes(stored.dtype, stored.shape)
            header[promise.name(word)] = {"dtype": stored.dtype, "shape": stored.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    file = folder / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(file, 8 + len(text) + end)
    assert audit(folder, compiled).findings == ()
    return folder, compiled


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    size = BYTES[dtype]
    for side in shape:
        size *= side
    return size
