"""Live export writes what the converter writes, from whatever order and bucket, and says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from converter.live import POLICIES, contract, converted, in_megatron, opened, spelled_either_way, stored, weights
from converter.models import CONFIGS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from precc.contract import contract_to_json
from precc.graph.forms import Form
from precc_converter import LiveExporter
from precc_converter.live import (
    UnknownName,
)
from precc_converter.trainer import LATER_INNER, Spelling, TrainerNames

FAMILIES = sorted(CONFIGS)


def export(exporter: LiveExporter, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Everything that one session yields for one bucket."""
    with exporter.session(step=0) as session:
        return dict(session.add(tensors))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_megatrons_parameters_become_what_the_converter_writes(family: str, policy: str) -> None:
    """Every format and family: the same names, dtypes, shapes and bytes."""
    made = contract(policy, family)
    found = export(LiveExporter(made), in_megatron(made.model, weights(made)))
    assert stored(found.items()) == converted(made, weights(made))


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_neither_order_nor_buckets_nor_names_change_a_byte(data: st.DataObject) -> None:
    """Random names of either side, in random order, cut into random buckets whose memory is used again."""
    made = contract(data.draw(st.sampled_from(sorted(POLICIES))), data.draw(st.sampled_from(FAMILIES)))
    spelling = Spelling(
        grouped=data.draw(st.booleans()),
        fused_norms=data.draw(st.booleans()),
        inner=data.draw(st.sampled_from(["transformer_layer", LATER_INNER])),
    )
    places = list(TrainerNames(made.model).places())
    in_checkpoint = data.draw(st.lists(st.sampled_from(places), unique_by=lambda place: place.key))
    tensors = spelled_either_way(made, weights(made), spelling, in_checkpoint)
    order = data.draw(st.permutations(sorted(tensors)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order) - 1), max_size=12)))
    found: dict[str, Tensor] = {}
    with LiveExporter(made).session(step=1) as session:
        for start, stop in zip([0, *cuts], [*cuts, len(order)], strict=True):
            bucket = {name: tensors[name].clone() for name in order[start:stop]}
            for name, tensor in session.add(bucket):
                assert name not in found
                found[name] = tensor.clone()
            for tensor in bucket.values():
                tensor.fill_(7)
        assert (session.open_groups, session.open_bytes) == (0, 0)
    assert stored(found.items()) == converted(made, weights(made))


def test_a_group_leaves_when_its_last_tensor_comes() -> None:
    """Gate and up of an expert share an outer scale: the first waits, alone, and both leave with the second."""
    made = contract("mixed", "qwen3_moe")
    expert = "model.layers.1.mlp.experts.2"
    tensors = weights(made)
    session = opened(made)
    assert list(session.add({f"{expert}.gate_proj.weight": tensors[f"{expert}.gate_proj.weight"]})) == []
    assert (session.open_groups, session.open_bytes) == (1, 128 * 128 * 2)
    both = [name for name, _ in session.add({f"{expert}.up_proj.weight": tensors[f"{expert}.up_proj.weight"]})]
    parts = ("weight", "weight_scale", "weight_scale_2")
    assert sorted(both) == [f"{expert}.{part}_proj.{stored}" for part in ("gate", "up") for stored in parts]
    assert (session.open_groups, session.open_bytes) == (0, 0)
    assert (session.tensors, session.bytes) == (6, 2 * (128 * 64 + 128 * 8 + 4))


def test_what_the_server_joins_within_one_call_leaves_together() -> None:
    """SGLang drops a query down-projection that comes in a call without the key-value one."""
    made = contract("mixed", "deepseek_v3")
    tensors = in_megatron(made.model, weights(made))
    query, key_value = (f"decoder.layers.1.self_attention.linear_{part}_down_proj.weight" for part in ("q", "kv"))
    session = opened(made)
    assert list(session.batches({query: tensors[query]}, max_bytes=1)) == []
    (batch,) = session.batches({key_value: tensors[key_value]}, max_bytes=1)
    stored_parts = [name.removeprefix("model.layers.1.self_attn.") for name, _ in batch]
    assert sorted(stored_parts) == [
        f"{part}.{word}" for part in ("kv_a_proj_with_mqa", "q_a_proj") for word in ("weight", "weight_scale_inv")
    ]


@pytest.mark.parametrize("most", [1, 5_000, 30_000, 1_000_000])
def test_batches_are_as_large_as_they_may_be_and_end_with_a_group(most: int) -> None:
    """Everything comes, in order; a batch over the limit is one group; two neighbours never fit into one."""
    groups = batched(1)
    ends = {group[-1][0]: size_of(group) for group in groups}
    batches = batched(most)
    assert [name for batch in batches for name, _ in batch] == [name for group in groups for name, _ in group]
    assert {batch[-1][0] for batch in batches} <= ends.keys()
    held = [[ends[name] for name, _ in batch if name in ends] for batch in batches]
    assert [sum(sizes) for sizes in held] == [size_of(batch) for batch in batches]
    assert all(sum(sizes) <= most or len(sizes) == 1 for sizes in held)
    assert all(sum(sizes) + following[0] > most for sizes, following in pairwise(held))


@cache
def batched(most: int) -> list[list[tuple[str, Tensor]]]:
    """A whole export in batches."""
    made = contract("mixed", "qwen3_moe")
    return list(opened(made).batches(in_megatron(made.model, weights(made)), most))


def size_of(batch: Sequence[tuple[str, Tensor]]) -> int:
    """The bytes of some tensors."""
    return sum(tensor.nbytes for _, tensor in batch)


def test_groups_that_never_wait_are_never_held() -> None:
    """In Megatron's order nothing waits: each parameter is whole."""
    made = contract("mixed", "qwen3_moe")
    session = opened(made)
    for name, tensor in in_megatron(made.model, weights(made)).items():
        list(session.add([(name, tensor)]))
        assert session.open_groups == 0


def test_an_fp8_checkpoints_contract_takes_a_trainers_bf16() -> None:
    """The decisions are those of the contract; what the checkpoint stored is not what the trainer holds."""
    from dataclasses import replace

    made = contract("mixed", "qwen3_moe")
    entries = tuple(
        replace(entry, tensor=replace(entry.tensor, form=Form("fp8", (128, 128))))
        if entry.decision.is_quantized
        else entry
        for entry in made.entries
    )
    model = replace(made.model, tensors=tuple(entry.tensor for entry in entries))
    stored_in_fp8 = replace(made, entries=entries, model=model)
    found = export(LiveExporter(stored_in_fp8), in_megatron(made.model, weights(made)))
    assert stored(found.items()) == converted(made, weights(made))


def test_norms_stored_in_fp32_are_taken_in_bf16() -> None:
    """Exact in the wider dtype; the narrower one of a wide tensor is refused."""
    made = contract("mixed", "deepseek_v32")
    name = "model.layers.0.input_layernorm.weight"
    rounded = weights(made)[name].to(torch.bfloat16)
    session = opened(made)
    ((_, tensor),) = session.add({name: rounded})
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, rounded.float())


def test_a_contracts_file_will_do(tmp_path: Path) -> None:
    """Read from where the compiler wrote it."""
    made = contract("mixed", "qwen3_moe")
    (tmp_path / "contract.json").write_text(json.dumps(contract_to_json(made)))
    exporter = LiveExporter(tmp_path)
    assert exporter.contract.digest == made.digest
    assert stored(export(exporter, weights(made)).items()) == converted(made, weights(made))


def test_a_trainer_without_the_mtp_layer_says_so() -> None:
    """Its tensors are then neither missed nor taken."""
    made = contract("mixed", "deepseek_v3")
    tensors = in_megatron(made.model, weights(made))
    mtp = {name for name in tensors if name.startswith("mtp.")}
    rest = {name: tensor for name, tensor in tensors.items() if name not in mtp}
    found = export(LiveExporter(made, without=["mtp"]), rest)
    wanted = {name: value for name, value in converted(made, weights(made)).items() if ".layers.2." not in name}
    assert stored(found.items()) == wanted
    for name in ("mtp.layers.0.enorm.weight", "model.layers.2.enorm.weight"):
        with pytest.raises(UnknownName, match=r"what this exporter leaves out \(mtp\); leave it out, too"):
            export(LiveExporter(made, without=["mtp"]), {name: tensors["mtp.layers.0.enorm.weight"]})
    with pytest.raises(ValueError, match="this model has no `vision` to export without; it has: mtp"):
        LiveExporter(made, without=["vision"])


def test_the_package_is_imported_without_torch() -> None:
    """The exporter is loaded when it is asked for."""
    code = (
        "import sys, precc_converter; assert 'torch' not in sys.modules; precc_converter.LiveExporter; "
        "assert 'torch' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
