"""Audits of bytes: against the source, and by themselves."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from converter.audits import Conversions, Written
from converter.checkpoints import load_checkpoint
from converter.conversions import Case, case
from converter.stacking import Order, stacked
from rollout.support import SMALL
from safetensors.torch import load_file

EXPERT = "model.layers.1.mlp.experts.2"
GATE = f"{EXPERT}.gate_proj"
QUERY = "model.layers.1.self_attn.q_proj"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """The conversions that are audited, and damaged in copies."""
    return Conversions(tmp_path_factory)


FLIPPED = {
    "nvfp4_rl": (f"{GATE}.weight", f"{GATE}.weight_scale", f"{EXPERT}.down_proj.weight_scale_2", "lm_head.weight"),
    "mxfp8_e2e": (f"{QUERY}.weight", f"{GATE}.weight_scale_inv", "model.norm.weight"),
    "fp8_block": (f"{QUERY}.weight", f"{GATE}.weight_scale_inv"),
    "int4_w4a16": (f"{GATE}.weight_packed", f"{GATE}.weight_scale", f"{GATE}.weight_shape"),
}


@pytest.mark.parametrize(("policy", "name"), [(policy, name) for policy, names in FLIPPED.items() for name in names])
def test_one_flipped_bit_is_found(written: Conversions, tmp_path: Path, policy: str, name: str) -> None:
    """With the tensor, the file, the place in it and both bytes; headers alone cannot show it."""
    out = written(policy).copy(tmp_path / "out")
    located = out.locate(name)
    at = (located.end - located.start) // 2
    out.flip(name, at)
    assert out.audit().findings == ()
    finding = out.finding(source=out.case.source)
    assert torch.is_grad_enabled()
    assert finding.code == "P612"
    assert f"{located.file.name}: `{name}`" in finding.message
    assert f"one byte differs, at offset {at:,} of the tensor" in finding.message
    found, made = (int(byte, 16) for byte in re.findall(r"0x[0-9a-f]{2}", finding.message))
    assert found ^ made == 1


def test_another_scale_is_told_with_its_value(written: Conversions, tmp_path: Path) -> None:
    """Beside the bytes, which of a number in FP32 say little; packed codes have no value by themselves."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    name = f"{EXPERT}.down_proj.weight_scale_2"
    (before,) = (float(weights[name]) for file in out.shards if name in (weights := load_file(file)))
    out.change(name, lambda weights: weights[name].mul_(2))
    said = out.finding(source=out.case.source).message
    assert said.endswith(f": the value is {2 * before:.9g} instead of {before:.9g}")
    codes = written("nvfp4_rl").copy(tmp_path / "codes")
    codes.flip(f"{GATE}.weight", 5)
    assert "the value is" not in codes.finding(source=out.case.source).message


NORM = "model.norm.weight"


def test_a_source_with_nan_is_reported_though_the_same_is_stored(written: Conversions, tmp_path: Path) -> None:
    """As the converter refuses it: what a tool copied from such a source is no less wrong."""
    out = written("mxfp8_e2e").copy(tmp_path / "out")
    source = Written(out.case, shutil.copytree(out.case.source, tmp_path / "source"))
    for folder in (out, source):
        folder.change(NORM, lambda weights: weights[NORM][3].fill_(torch.nan))
    finding = out.finding(source=source.folder)
    assert finding.code == "P602"
    located = source.locate(NORM)
    assert finding.message == f"{located.file}: `{NORM}` holds 1 value that is NaN or Inf, the first nan at [3]"


SWAPPED = {
    "nvfp4_rl": (f"{EXPERT}.down_proj.weight_scale_2", "model.layers.0.mlp.experts.0.down_proj.weight_scale_2"),
    "mxfp8_e2e": (f"{GATE}.weight_scale_inv", f"{EXPERT}.up_proj.weight_scale_inv"),
    "fp8_block": (f"{QUERY}.weight", "model.layers.0.self_attn.q_proj.weight"),
}


@pytest.mark.parametrize("policy", SWAPPED)
def test_two_tensors_in_each_others_place_are_one_finding(written: Conversions, tmp_path: Path, policy: str) -> None:
    """What is wrong is that they were swapped, not that all their bytes differ."""
    out = written(policy).copy(tmp_path / "out")
    out.swap(*SWAPPED[policy])
    finding = out.finding(source=out.case.source)
    assert finding.code == "P612"
    assert "hold each other's bytes" in finding.message
    assert all(f"`{name}`" in finding.message for name in SWAPPED[policy])


def test_weights_of_another_source_are_one_finding_a_kind(written: Conversions, tmp_path: Path) -> None:
    """The first of them with its bytes, the others by their number."""
    out = written("nvfp4_rl")
    other = case(tmp_path, SMALL["qwen3_moe"], "nvfp4_rl", seed=1)
    done = out.audit(source=other.source)
    kinds = {finding.message.partition(" tensors are not")[0] for finding in done.findings}
    assert kinds == {"bf16 weight", "nvfp4 weight", "nvfp4 weight_scale", "nvfp4 weight_scale_2"}
    assert {finding.code for finding in done.findings} == {"P612"}
    assert done.agree == 0


@pytest.mark.slow
def test_any_number_of_workers_finds_the_same(
    written: Conversions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    for name in (f"{GATE}.weight", "lm_head.weight"):
        out.flip(name, 5)
    monkeypatch.setattr("precc_converter.auditing.flow.TASK_BYTES", 500_000)
    alone, several = (out.audit(source=out.case.source, workers=workers) for workers in (1, 2))
    assert len(alone.findings) == 2
    assert alone == several


def test_a_sample_is_chosen_by_its_seed(written: Conversions, tmp_path: Path) -> None:
    """Over all seeds every unit comes, and a flipped bit is found in the samples that hold it."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.flip(f"{GATE}.weight", 5)
    done = [out.audit(source=out.case.source, sample=20, seed=seed) for seed in range(12)]
    assert {(audit.bytes.units, audit.bytes.seed) for audit in done if audit.bytes} == {(20, n) for n in range(12)}
    assert {len(audit.findings) for audit in done} == {0, 1}
    assert out.audit(source=out.case.source, sample=20, seed=3) == done[3]


IMPOSSIBLE: dict[str, tuple[str, str, int, str]] = {
    "nan codes": ("mxfp8_e2e", f"{QUERY}.weight", 0x7F, "codes of E4M3 are NaN"),
    "nan block codes": ("fp8_block", f"{QUERY}.weight", 0xFF, "codes of E4M3 are NaN"),
    "nan scales": ("nvfp4_rl", f"{GATE}.weight_scale", 0x7F, "block scales in E4M3 are NaN or negative"),
    "negative scales": ("nvfp4_rl", f"{GATE}.weight_scale", 0xB0, "block scales in E4M3 are NaN or negative"),
    "nan exponents": ("mxfp8_e2e", f"{QUERY}.weight_scale_inv", 0xFF, "block scales in E8M0 are NaN"),
    "a nan scale of a block": (
        "fp8_block",
        f"{QUERY}.weight_scale_inv",
        0xFF,
        "block scales are negative or not finite",
    ),
    "a nan scale of a group": ("int4_w4a16", f"{GATE}.weight_scale", 0xFF, "block scales are negative or not finite"),
    "no outer scale": ("nvfp4_rl", f"{EXPERT}.down_proj.weight_scale_2", 0, "an outer scale is not above zero"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_bytes_that_no_quantizer_writes_are_found_without_a_source(
    written: Conversions, tmp_path: Path, name: str
) -> None:
    """In a sample of all units."""
    policy, tensor, byte, said = IMPOSSIBLE[name]
    out = written(policy).copy(tmp_path / "out")
    located = out.locate(tensor)
    with located.file.open("r+b") as file:
        file.seek(located.start)
        file.write(bytes([byte]) * 4)
    assert out.audit().findings == ()
    finding = out.finding(sample=10**6)
    assert finding.code == "P613"
    assert said in finding.message
    assert tensor in finding.message


@pytest.mark.parametrize("order", [Order(), Order(transposed=True, interleaved=True), Order(separate=True)], ids=str)
def test_a_checkpoint_from_stacked_experts_is_audited_too(tmp_path: Path, order: Order) -> None:
    """Each expert's weights stand under names of their own, and gate and up share a scale."""
    flat = case(tmp_path / "flat", SMALL["qwen3_moe"], "targets: converter\nexperts.*: nvfp4 per_token\n")
    made = stacked(flat, order, tmp_path / "stacked")
    out = Written(made, made.convert(tmp_path / "out"))
    done = out.audit(source=made.source)
    assert done.findings == ()
    assert done.checked == done.agree == len(load_checkpoint(out.folder))
    out.flip(f"{GATE}.weight_scale_2", 1)
    assert out.finding(source=made.source).code == "P611"


def test_a_source_of_another_model_is_said(written: Conversions, tmp_path: Path) -> None:
    """Beside what the headers show: by its configuration, and by the first tensor that it lacks."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    other = case(tmp_path, SMALL["qwen3"], "bf16")
    findings = {finding.code: finding.message for finding in out.audit(source=other.source).findings}
    assert findings.keys() == {"P603", "P610"}
    assert str(other.source) in findings["P603"]
    assert findings["P610"].startswith("config.json is not that of the source: `architectures` is ")


def test_a_source_that_is_not_finite_is_said(tmp_path: Path) -> None:
    """The tensor has no right bytes; all others are compared."""
    made = case(tmp_path, SMALL["qwen3_moe"], "nvfp4_rl")
    out = Written(made, made.convert(tmp_path / "out"))
    source = Written(Case(made.source, made.compiled), made.source)
    name = f"{GATE}.weight"
    source.change(name, lambda weights: weights[name].view(-1)[7].fill_(torch.nan))
    finding = out.finding(source=made.source)
    assert finding.code == "P602"
    assert name in finding.message
