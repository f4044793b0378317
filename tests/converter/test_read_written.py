"""What the converter writes is a model again: the one that was converted, stored as the policy says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from converter.checkpoints import load_checkpoint, names_of
from converter.conversions import Case, case
from converter.models import CONFIGS, config_of
from rollout.support import SMALL

from precc.cli import main
from precc.formats import Quantization
from precc.graph import ModelGraph, read_model
from precc.graph.forms import BF16
from precc.graph.model import Tensor
from precc.resolve.extends import shipped_policies
from precc_converter import NotConverted, audit

READY = sorted(path.stem for path in shipped_policies().glob("*.prec"))
CONVERTED = "targets: converter\ndefault: {spec}\n"
KEPT_STACKED = ("gpt_oss",)
"""Families whose stacks stay: their biases do."""

FORMATS = {
    "fp8": "weight fp8, input fp8 per_token, train bf16",
    "fp8 channels": "weight fp8 per_channel, input fp8 per_token, train bf16",
    "fp8_block": "fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4 per_token",
    "int4": "weight int4 group 32, train bf16",
}


def logical(model: ModelGraph) -> list[Tensor]:
    """The tensors without how they are stored."""
    return [replace(tensor, form=BF16) for tensor in model.tensors]


def read_again(made: Case, folder: Path) -> ModelGraph:
    """The model that a conversion wrote, after it was compared with its source and its contract."""
    found, source = read_model(str(made.convert(folder))), read_model(str(made.source))
    assert logical(found) == logical(source)
    assert (found.architecture, found.layers, found.parameters) == (
        source.architecture,
        source.layers,
        source.parameters,
    )
    assert found.stored_tensors == len(load_checkpoint(folder))
    assert list(stored(found)) == list(decided(made, found))
    return found


def stored(model: ModelGraph) -> Iterator[tuple[str, str, object]]:
    """The format of each weight, and what shares a scale there."""
    for tensor in model.tensors:
        yield tensor.name, tensor.form.format, tensor.form.block if tensor.form.is_quantized else None


def decided(made: Case, model: ModelGraph) -> Iterator[tuple[str, str, object]]:
    """The same by the contract."""
    contract = made.contract
    for tensor in model.tensors:
        weight = contract[next(names_of(tensor))].decision.weight
        yield tensor.name, weight.format, _block(weight) if weight.is_quantized else None


def _block(weight: Quantization) -> tuple[int, int] | None:
    """A scale for each output channel is a block as wide as a row; those of 16×16 blocks are stored once a row."""
    if weight.scope == "per_channel":
        return 1, 0
    return (1, 16) if weight.block == (16, 16) else weight.block


@pytest.mark.parametrize("policy", READY)
def test_what_a_ready_policy_writes_is_the_model_again(tmp_path: Path, policy: str) -> None:
    """Names, shapes, roles and order are those of the source; every stored tensor is one of its weights'."""
    read_again(case(tmp_path, SMALL["qwen3_moe"], policy), tmp_path / "out")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_from_fp8_is_the_model_again(tmp_path: Path, form: str) -> None:
    """With latent attention, a shared expert and an MTP layer."""
    made = case(
        tmp_path,
        config_of("deepseek_v3"),
        f"{CONVERTED.format(spec=FORMATS[form])}{{q_b_proj,kv_b_proj}}: bf16\n",
        fp8=True,
    )
    read_again(made, tmp_path / "out")


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_is_read_again(tmp_path: Path, family: str) -> None:
    """Experts that the family stacks are written one by one, and are the stack that they were."""
    form = "bf16" if family in KEPT_STACKED else "nvfp4 per_token"
    made = case(tmp_path, config_of(family), f"targets: converter\n@routed_experts: {form}\n")
    found = read_again(made, tmp_path / "out")
    stacked = family not in KEPT_STACKED and any(tensor.stacked for tensor in found.tensors)
    assert any(tensor.form.apart for tensor in found.tensors) is stacked


@pytest.mark.parametrize("form", ["fp8", "mxfp8", "nvfp4", "int4"])
def test_what_was_written_is_a_source_for_a_contract_of_its_own(tmp_path: Path, form: str) -> None:
    """Not for the one that it was written by, whose source has other tensors."""
    made = case(tmp_path, SMALL["qwen3_moe"], CONVERTED.format(spec=FORMATS[form]))
    out = made.convert(tmp_path / "out")
    with pytest.raises(NotConverted) as caught:
        Case(out, made.compiled).convert(tmp_path / "again")
    assert [finding.code for finding in caught.value.findings] == ["P603"]
    assert not (tmp_path / "again").exists()
    assert main(["compile", "nvfp4_rl", "--model", str(out), "-o", str(tmp_path / "compiled again")]) == 0
    again = Case(out, tmp_path / "compiled again")
    converted = again.convert(tmp_path / "again")
    assert audit(converted, again.compiled, source=out).findings == ()
