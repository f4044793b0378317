"""SGLang itself builds small models from the artifacts, and gives each module the method that the read-back says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout import engine as real
from rollout.support import POLICIES, REFUSED, SERVER, SMALL, bound, emitted, errors, small_model

from precc.contract import Contract
from precc_sglang import backend
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind

pytestmark = pytest.mark.slow

SAFETENSORS = {
    "float8_e4m3fn": "F8_E4M3",
    "uint8": "U8",
    "float32": "F32",
    "bfloat16": "BF16",
    "int32": "I32",
    "int64": "I64",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[..., Any]]:
    """The worker that has SGLang."""
    with real.engine() as call:
        yield call


def built(
    engine: Callable[..., Any], contract: Contract, model: str, folder: Path, draft: bool = False
) -> dict[str, real.Built]:
    """The modules that SGLang builds from the contract's artifacts, by name."""
    artifacts = emitted(contract)
    real.write_checkpoint(folder, SMALL[model], artifacts)
    from precc_sglang.environment import environment

    arguments = yaml.safe_load(artifacts[SERVER])
    modules = engine(real.build, str(folder), arguments, environment(contract)["set"], draft)
    return {module.name: module for module in modules}


CASES = [(policy, model) for policy in POLICIES for model in SMALL]


@pytest.mark.parametrize("policy, model", CASES)
def test_every_module_gets_the_method_of_the_read_back(
    engine: Callable[..., Any], policy: str, model: str, tmp_path: Path
) -> None:
    """Every policy on every family: same prefix asked, same method, and parameters of the dtypes that are stored."""
    contract = bound(POLICIES[policy], small_model(model, tmp_path))
    assert bool(errors(contract)) == ((policy, model) in REFUSED)
    if (policy, model) in REFUSED:
        return
    modules = built(engine, contract, model, tmp_path)
    readings = dict(zip(contract.tensors, backend.read_back(contract, emitted(contract)), strict=True))
    choice = choice_of(contract)
    assert choice is not None
    checked = 0
    for module, entries in choice.modules.items():
        name = module.prefix.replace("{e}", "0")
        if module.draft or module.kind is Kind.NEVER:
            continue
        found = modules.get(name) or modules[f"model.{name}"]
        decision: Any = readings[entries[0].tensor].decision
        assert found.method == decision.method, (module, readings[entries[0].tensor])
        if found.asked is not None:
            assert found.asked == name
        held = {
            parameter.removeprefix("w13_").removeprefix("w2_"): dtype for parameter, dtype in found.parameters.items()
        }
        for part in decision.stored:
            word, dtype = part.split()
            if word == "weight_shape" and module.kind is Kind.EXPERTS:
                continue  # a placeholder there; its value is never used
            assert SAFETENSORS[held[word]] == dtype, (name, part, held)
        checked += 1
    assert checked >= contract.model.layers


@pytest.mark.parametrize("policy", ["two lines", "mxfp8", "mix with nvfp4", "fp8 blocks"])
@pytest.mark.parametrize("model", ["deepseek_v3", "glm4_moe"])
def test_the_draft_model_gets_the_method_of_the_read_back(
    engine: Callable[..., Any], policy: str, model: str, tmp_path: Path
) -> None:
    """The next-token layer is built by a class of its own, which asks under other names or drops the config."""
    extra = "" if policy == "two lines" else "@attention in @mtp: mxfp8\nkv_b_proj? in @mtp: bf16\n"
    extra = extra.replace("mxfp8", "fp8_block") if policy == "fp8 blocks" else extra
    contract = bound(POLICIES[policy] + extra, small_model(model, tmp_path))
    assert not errors(contract)
    modules = built(engine, contract, model, tmp_path, draft=True)
    readings = dict(zip(contract.tensors, backend.read_back(contract, emitted(contract)), strict=True))
    choice = choice_of(contract)
    assert choice is not None
    drafts = [
        (module, entries)
        for module, entries in choice.modules.items()
        if module.draft and module.kind is not Kind.NEVER
    ]
    assert drafts
    for module, entries in drafts:
        name = "lm_head" if module.kind is Kind.HEAD else module.prefix
        decision: Any = readings[entries[0].tensor].decision
        assert modules[name].method == decision.method, module
