"""gpt-oss as it is published: experts in MXFP4, which become the BF16 numbers that transformers makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from converter.checkpoints import OTHER_FILES, Weights, load_checkpoint, stored_bytes, write_shards
from converter.conversions import Case, case
from converter.models import config_of
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from precc_converter import NotConverted, audit

CONFIG = {**config_of("gpt_oss"), "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}
SQUARE = {**CONFIG, "intermediate_size": CONFIG["hidden_size"]}
"""As in the releases: nothing tells the axes of `down_proj` apart but the family's table."""

UNQUANTIZED = "default: bf16\n"
PACKED = ("_blocks", "_scales")


@pytest.mark.parametrize("config", [CONFIG, SQUARE], ids=["two widths", "one width"])
def test_experts_become_what_transformers_makes_of_them(config: dict[str, object], tmp_path: Path) -> None:
    """Bit for bit, in its order of axes; all else is copied, and nothing is left packed."""
    made = case(tmp_path / "case", config, UNQUANTIZED)
    before, found = load_checkpoint(made.source), load_checkpoint(made.convert(tmp_path / "out"))
    wanted = {name: value for name, value in before.items() if not name.endswith(PACKED)}
    for name in before:
        if name.endswith("_blocks"):
            own = name.removesuffix("_blocks")
            wanted[own] = convert_moe_packed_tensors(before[name], before[f"{own}_scales"])
    assert len(wanted) == len(before) - 2 * config["num_hidden_layers"]
    assert stored_bytes(found) == stored_bytes(wanted)


def test_experts_that_the_contract_leaves_in_mxfp4_keep_their_bytes(tmp_path: Path) -> None:
    """Stacked, with the server's own method for them; the checkpoint's `config.json` names the contract."""
    policy = "targets: sglang, converter\n@routed_experts: weight mxfp4, train bf16\n"
    made = case(tmp_path / "case", CONFIG, policy)
    out = made.convert(tmp_path / "out")
    assert stored_bytes(load_checkpoint(out)) == stored_bytes(load_checkpoint(made.source))
    quantization = json.loads((out / "config.json").read_text())["quantization_config"]
    assert (quantization["quant_method"], quantization["precc_contract"]) == ("mxfp4", made.contract.digest)
    assert audit(out, made.compiled, source=made.source).findings == ()


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """E8M0 has one NaN, 255; the message says in which tensor."""
    made = case(tmp_path / "case", CONFIG, UNQUANTIZED)
    name = "model.layers.1.mlp.experts.down_proj_scales"
    weights: Weights = load_checkpoint(made.source)
    weights[name][2, 5, 1] = 255
    damaged = Case(tmp_path / "damaged", made.compiled)
    damaged.source.mkdir()
    for other in ("config.json", *OTHER_FILES):
        (damaged.source / other).write_bytes((made.source / other).read_bytes())
    write_shards(damaged.source, weights, 1)
    with pytest.raises(NotConverted, match=r"experts\.down_proj.* holds NaN"):
        damaged.convert(tmp_path / "out")


def test_the_largest_scale_is_still_exact(tmp_path: Path) -> None:
    """The least scale makes subnormal numbers of BF16, and the largest with room for a 1.5 its greatest powers."""
    made = case(tmp_path / "case", CONFIG, UNQUANTIZED)
    weights = load_checkpoint(made.source)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    weights[f"{name}_scales"][0, 0] = 0
    weights[f"{name}_scales"][0, 1] = 254
    weights[f"{name}_blocks"][0, 1] = 0x13
    write_shards(made.source, weights, 2)
    found = load_checkpoint(made.convert(tmp_path / "out"))[name]
    assert found[0, 0, 1].item() == 1.5 * 2.0**127
    assert 0 < found[0, :, 0].abs()[found[0, :, 0] != 0].min().item() <= 2.0**-128
    assert found.dtype == torch.bfloat16
