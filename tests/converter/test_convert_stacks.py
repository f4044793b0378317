"""Experts stacked in one 3-D tensor become what experts that stand one by one become."""

from __future__ import annotations

from pathlib import Path

import pytest
from converter.checkpoints import load_checkpoint, stored_bytes, weights_of
from converter.contracts import findings as plan_findings
from converter.conversions import Case, case, plain, stored
from converter.stacking import Order, stacked
from rollout.support import SMALL

from precc_converter import backend
from precc_converter.plan import PLAN_PATH

POLICY = "targets: sglang, converter\n@routed_experts: {spec}\nlayers[-1:]: bf16\n"
FORMATS = {
    "nvfp4": "nvfp4 per_token",
    "four_over_six": "nvfp4 per_token four_over_six",
    "mxfp8": "mxfp8",
    "fp8_block": "fp8_block",
    "int4": "weight int4 group 32, train bf16",
}
ORDERS = {
    "as they are multiplied": Order(),
    "transposed": Order(transposed=True),
    "interleaved": Order(interleaved=True),
    "transposed and interleaved": Order(transposed=True, interleaved=True),
    "gate and up in two": Order(separate=True),
    "gate and up in two, transposed": Order(separate=True, transposed=True),
}


@pytest.fixture(scope="module", params=FORMATS)
def single(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts that stand one by one, but for its last layer quantized."""
    policy = POLICY.format(spec=FORMATS[request.param])
    return case(tmp_path_factory.mktemp("single"), SMALL["qwen3_moe"], policy)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_stacked_experts_become_what_single_ones_become(single: Case, order: Order, tmp_path: Path) -> None:
    """The same names, shapes and bytes, in the last layer too: loaders know experts stacked or one by one, not both."""
    wanted = load_checkpoint(single.convert(tmp_path / "single"))
    found = load_checkpoint(stacked(single, order, tmp_path / "stacked").convert(tmp_path / "out"))
    assert stored_bytes(found) == stored_bytes(wanted)


def test_stacks_of_which_none_is_quantized_stay_stacked(tmp_path: Path) -> None:
    """Byte for byte, as their family's loader expects them."""
    policy = "targets: sglang, converter\n@attention: mxfp8\n"
    made = stacked(case(tmp_path / "single", SMALL["qwen3_moe"], policy), Order(transposed=True), tmp_path / "stacked")
    before, found = load_checkpoint(made.source), load_checkpoint(made.convert(tmp_path / "out"))
    experts = {name: value for name, value in before.items() if ".mlp.experts." in name}
    assert len(experts) == 2 * made.contract.model.layers
    assert stored_bytes({name: found[name] for name in experts}) == stored_bytes(experts)


@pytest.mark.parametrize("transposed", [False, True])
def test_stacks_in_fp8_are_dequantized_before_they_are_taken_apart(tmp_path: Path, transposed: bool) -> None:
    """Each block of 128×128 lies in one expert's matrix as it is stored."""
    single = case(tmp_path / "single", SMALL["qwen3_moe"], POLICY.format(spec=FORMATS["nvfp4"]))
    made = stacked(single, Order(transposed=transposed, fp8=True), tmp_path / "stacked")
    found, before = load_checkpoint(made.convert(tmp_path / "out")), load_checkpoint(made.source)
    experts = "model.layers.0.mlp.experts"
    spec = made.contract[f"{experts}.gate_up_proj"].decision.weight
    codes, scale = before[f"{experts}.gate_up_proj"], before[f"{experts}.gate_up_proj_scale_inv"]
    for expert in range(len(codes)):
        matrix = plain("w", {"w": codes[expert], "w_scale_inv": scale[expert]})
        halves = dict(zip(("gate_proj", "up_proj"), (matrix.t() if transposed else matrix).chunk(2), strict=True))
        for part, weight in halves.items():
            wanted = stored(f"{experts}.{expert}.{part}.weight", weight, spec, matrix.abs().max())
            assert stored_bytes({name: found[name] for name in wanted}) == stored_bytes(wanted)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_plan_of_stacked_experts_reads_back(single: Case, order: Order, tmp_path: Path) -> None:
    """It says how they are taken apart, by names with ranges, and counts what comes out."""
    contract = stacked(single, order, tmp_path).contract
    (artifact,) = backend.emit(contract)
    assert artifact.path == PLAN_PATH
    assert plan_findings(contract, artifact.text) == ()
    interleaved = '"interleaved": true' in artifact.text
    assert interleaved is order.interleaved
    assert len(weights_of(contract.model)) == contract.model.stored_tensors
