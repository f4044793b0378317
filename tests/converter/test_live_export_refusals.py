"""What a live export refuses, each with one sentence that says which tensor and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from converter.live import contract, in_megatron, opened, weights
from torch import Tensor

import precc_converter
from precc.contract.serial import ContractError
from precc_converter import LiveExporter, live
from precc_converter.live import (
    CameTwice,
    MissingTensors,
    NotFiniteTensor,
    SessionFailed,
    UnknownName,
    WrongShape,
    WrongTensor,
)

GATE = "model.layers.1.mlp.experts.2.gate_proj.weight"
FC1 = "decoder.layers.1.mlp.experts.linear_fc1.weight2"


def refused(bucket: Any) -> str:
    """What a session says of a bucket, and that it is over then."""
    session = opened(contract("mixed", "qwen3_moe"))
    with pytest.raises((UnknownName, WrongShape, WrongTensor, CameTwice, NotFiniteTensor)) as refusal:
        list(session.add(bucket))
    with pytest.raises(SessionFailed, match="this session is over"):
        list(session.add({}))
    return str(refusal.value)


def test_a_tensor_that_comes_twice_is_refused() -> None:
    """Under one name, or under the trainer's and the checkpoint's."""
    tensors = weights(contract("mixed", "qwen3_moe"))
    both = {**in_megatron(contract("mixed", "qwen3_moe").model, tensors), GATE: tensors[GATE]}
    assert refused({name: both[name] for name in (FC1, GATE)}) == (
        f"`{GATE}` came a second time in this session; each tensor comes once a step"
    )


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """Of either side."""
    assert "did you mean `model.layers.1.mlp.experts.2.gate_proj.weight`?" in refused(
        {"model.layers.1.mlp.experts.2.gate_porj.weight": torch.zeros(1)}
    )
    assert f"names come without wrappers; did you mean `{FC1}`?" in refused({f"module.{FC1}": torch.zeros(1)})


def test_another_shape_is_refused() -> None:
    """A shard that was not gathered, on either side."""
    assert refused({GATE: torch.zeros(64, 128, dtype=torch.bfloat16)}) == (
        f"`{GATE}` has shape [64, 128], in this model [128, 128]; gather its shards first"
    )
    assert "[136, 128], in this model [128, 128]; leave out the rows that only pad it" in refused(
        {"lm_head.weight": torch.zeros(136, 128, dtype=torch.bfloat16)}
    )
    assert "has shape [128, 128], in this model [256, 128]; gather its shards first" in refused(
        {FC1: torch.zeros(128, 128, dtype=torch.bfloat16)}
    )


def test_another_dtype_is_refused() -> None:
    """FP32 master weights, rounded here, would not be what the trainer multiplies with."""
    assert refused({GATE: torch.zeros(128, 128)}) == (
        f"`{GATE}` is float32, the contract was compiled for bfloat16; "
        "hand over what the trainer computes with, unrounded"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [GATE, "model.norm.weight"])
def test_a_value_that_is_no_number_is_refused(name: str, value: float) -> None:
    """One anywhere, also in what is not quantized."""
    tensor = weights(contract("mixed", "qwen3_moe"))[name].clone()
    tensor.view(-1)[-1] = value
    last = [size - 1 for size in tensor.shape]
    assert refused({name: tensor}).startswith(
        f"`{name}` holds 1 value that is NaN or Inf, the first {value} at {last}; nothing that was exported"
    )
    tensor.view(-1)[5:] = value
    assert f"holds {tensor.numel() - 5:,} values that are NaN or Inf" in refused({name: tensor})


def test_a_wrapped_tensor_is_refused() -> None:
    """What a trainer holds quantized or sharded has bytes of its own."""

    class Quantized(Tensor):
        pass

    wrapped = torch.zeros(128, 128, dtype=torch.bfloat16).as_subclass(Quantized)
    assert refused({GATE: wrapped}).startswith(f"`{GATE}` is a Quantized, not a plain tensor; hand over")


@pytest.mark.parametrize(
    "name, tensor, said",
    [
        (7, torch.zeros(1), "a tensor came under 7, a int; its name is a text"),
        (GATE, [1.0], f"`{GATE}` is a list, not a plain tensor"),
        (GATE, None, f"`{GATE}` is a NoneType, not a plain tensor"),
        (
            GATE,
            torch.empty(128, 128, dtype=torch.bfloat16, device="meta"),
            f"`{GATE}` is on the meta device and holds no values; hand over the weight that is trained",
        ),
        (GATE, torch.eye(128).to_sparse(), f"`{GATE}` is stored as torch.sparse_coo; hand it over dense"),
    ],
)
def test_what_is_no_weight_under_a_name_is_refused(name: object, tensor: object, said: str) -> None:
    """Before any of it is looked at."""
    assert refused({name: tensor}).startswith(said)


@pytest.mark.parametrize(
    "bucket, said",
    [
        (5, "a int came, where tensors come by name: a mapping, or an iterable of pairs of name and tensor"),
        ("abc", "a str came, where tensors come by name"),
        (None, "a NoneType came, where tensors come by name"),
        ([GATE], "a str came for a pair, where tensors come by name"),
        ([torch.zeros(2)], "a Tensor came for a pair, where tensors come by name"),
    ],
)
def test_what_is_no_bucket_is_refused(bucket: object, said: str) -> None:
    """As every other refusal, by what it is and what it should be."""
    assert refused(bucket).startswith(said)


@pytest.mark.parametrize("step", ["x", -1, None, 1.5, True])
def test_a_step_is_a_number(step: Any) -> None:
    """It is written in the log, and shown by the server."""
    with pytest.raises(ValueError, match=f"step is {step!r}: give the number of the trainer's step, from 0"):
        LiveExporter(contract("mixed", "qwen3_moe")).session(step=step)


def test_a_contract_that_is_not_there_is_told_with_what_to_give(tmp_path: Path) -> None:
    """As a contract that cannot be read."""
    said = f"there is no contract at {tmp_path / 'nope'}: No such file or directory; give a Contract, the folder"
    with pytest.raises(ContractError, match=said):
        LiveExporter(tmp_path / "nope")


@pytest.mark.parametrize("take", ["add", "batches"])
def test_nothing_is_taken_outside_with(take: str) -> None:
    """Nobody would check that everything came."""
    session = LiveExporter(contract("mixed", "qwen3_moe")).session(step=0)
    with pytest.raises(SessionFailed, match="was not entered, and would never be checked: open it by `with`"):
        list(session.add({}) if take == "add" else session.batches({}, 1))


def test_what_is_refused_can_be_caught_by_the_packages_names() -> None:
    """Those that the page of the live export lists."""
    page = (Path(__file__).parents[2] / "docs" / "live-export.md").read_text(encoding="utf-8")
    listed = page[page.index("## What is refused") : page.index("## Evidence")]
    names = set(re.findall(r"`([A-Z]\w+)`", listed)) - {"LiveExporter", "DTensor", "QuantizedTensor"}
    assert names >= {"UnknownName", "WrongShape", "SessionFailed"}
    for name in names - {"ValueError"}:
        assert getattr(precc_converter, name) is getattr(live, name)
        assert name in precc_converter.__all__


def test_what_never_came_is_named_at_the_end() -> None:
    """By the checkpoint's name and the trainer's, with the groups that wait for it."""
    made = contract("mixed", "qwen3_moe")
    rest = {name: tensor for name, tensor in weights(made).items() if name != GATE}
    with pytest.raises(MissingTensors) as refusal, LiveExporter(made).session(step=0) as session:
        list(session.add(rest))
    assert refusal.value.names == (GATE,)
    assert str(refusal.value) == (
        f"1 of 35 tensors never came: `{GATE}` (in Megatron-Core `{FC1}`); groups that still wait for some of them: 1"
    )


def test_a_bucket_that_was_not_read_to_its_end_ends_the_session() -> None:
    """What was not taken has not been exported."""
    made = contract("mixed", "qwen3_moe")
    tensors = weights(made)
    with (
        pytest.raises(SessionFailed, match="did not export everything: the tensors of a bucket were not all taken"),
        LiveExporter(made).session(step=0) as session,
    ):
        next(iter(session.add(tensors)))


def test_a_refusal_that_was_caught_still_fails_the_session(tmp_path: Path) -> None:
    """Else a step with a hole in it would look complete."""
    made = contract("mixed", "qwen3_moe")
    log = tmp_path / "evidence.jsonl"

    def go_on_regardless() -> None:
        with LiveExporter(made).session(step=0, evidence=log) as session:
            list(session.add(weights(made)))
            with pytest.raises(UnknownName):
                list(session.add({"nothing": torch.zeros(1)}))

    with pytest.raises(SessionFailed, match="did not export everything: `nothing` is no parameter"):
        go_on_regardless()
    assert log.read_text() == ""
