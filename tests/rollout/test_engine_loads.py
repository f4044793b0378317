"""SGLang's own loader fills every parameter from a checkpoint that holds what the backend says is stored.

The loader checks no completeness: a scale under another name would leave a parameter as it was allocated. So every
parameter is poisoned first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout import engine as real
from rollout.support import MXFP8, POLICIES, REFUSED, SERVER, SMALL, bound, emitted, small_model

from precc.contract import Contract
from precc_sglang import backend
from precc_sglang.environment import environment

pytestmark = pytest.mark.slow

DERIVED = ("blockscale_swizzled", ".k_scale", ".v_scale", "weight_g_idx", "g_idx_sort_indices", "weight_shape")
"""Parameters that no checkpoint of ours has: computed after loading, of a cache without scales, of another order."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[..., Any]]:
    """The worker that has SGLang."""
    with real.engine() as call:
        yield call


def written(name: str, shape: tuple[int, ...], stored: tuple[str, ...], group: int) -> dict[str, Any]:
    """The tensors of one weight as they are stored, with values that are not the poison."""
    import torch

    if not stored:
        return {f"{name}.weight": torch.ones(shape, dtype=torch.bfloat16)}
    rows, columns = shape
    shapes: dict[str, tuple[int, ...]] = {
        "weight F8_E4M3": shape,
        "weight U8": (rows, columns // 2),
        "weight_packed I32": (rows, columns // 8),
        "weight_scale_inv U8": (rows, columns // 32),
        "weight_scale_inv F32": (ceil(rows / 128), ceil(columns / 128)),
        "weight_scale F8_E4M3": (rows, columns // 16),
        "weight_scale F32": (rows, 1) if len(stored) == 2 else (),
        "weight_scale BF16": (rows, columns // max(group, 1)),
    }
    dtypes = {
        "F8_E4M3": torch.float8_e4m3fn,
        "U8": torch.uint8,
        "I32": torch.int32,
        "F32": torch.float32,
        "BF16": torch.bfloat16,
    }
    made = {}
    for part in stored:
        word, dtype = part.split()
        if word == "weight_shape":
            made[f"{name}.{word}"] = torch.tensor(shape, dtype=torch.int64)
        else:
            made[f"{name}.{word}"] = torch.ones(shapes.get(part, ()), dtype=torch.float32).to(dtypes[dtype])
    return made


def checkpoint(contract: Contract, folder: Path) -> None:
    """A checkpoint file with every tensor of the main model, in the formats that the backend decides."""
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for tensor, decided in zip(contract.tensors, backend.decides(contract), strict=True):
        if tensor.mtp is not None:
            continue
        group = int(decided.method.rpartition(" ")[2]) if "group" in decided.method else 0
        for module in tensor.modules():
            if tensor.parameter == "weight":
                tensors |= written(module, tensor.shape, decided.stored, group)
            else:
                full = ".".join(filter(None, (module, tensor.parameter)))
                tensors[full] = torch.ones(tensor.shape, dtype=torch.float32)
    save_file(tensors, folder / "model.safetensors")


CASES = [(policy, model) for policy in POLICIES for model in SMALL if (policy, model) not in REFUSED]


def unwritten(engine: Callable[..., Any], contract: Contract, model: str, folder: Path) -> list[str]:
    """The parameters that stay poisoned, those left aside that no checkpoint of ours has."""
    artifacts = emitted(contract)
    real.write_checkpoint(folder, SMALL[model], artifacts)
    arguments = yaml.safe_load(artifacts[SERVER])
    found = engine(real.load, str(folder), arguments, environment(contract)["set"])
    return [name for name in found if not name.endswith(DERIVED)]


@pytest.mark.parametrize("policy, model", CASES)
def test_every_parameter_is_loaded(engine: Callable[..., Any], policy: str, model: str, tmp_path: Path) -> None:
    """No scale goes by a name that the loader drops. NVFP4's input scales, where none are stored, stay 1."""
    contract = bound(POLICIES[policy], small_model(model, tmp_path))
    checkpoint(contract, tmp_path)
    methods = {decided.method for decided in backend.decides(contract)}
    unstored = bool(methods & {"nvfp4_token", "nvfp4_weights"})
    left = unwritten(engine, contract, model, tmp_path)
    assert [name for name in left if not (unstored and name.endswith("input_scale"))] == []


def test_the_llama_class_loses_the_scales_that_a_rule_refuses(engine: Callable[..., Any], tmp_path: Path) -> None:
    """P702 is a fact of this version: the weights load, the scales do not, and nothing is said."""
    contract = bound(MXFP8, small_model("llama", tmp_path))
    checkpoint(contract, tmp_path)
    left = unwritten(engine, contract, "llama", tmp_path)
    assert left
    assert all(name.endswith("weight_scale_inv") for name in left)


def test_a_scale_under_another_name_is_seen(engine: Callable[..., Any], tmp_path: Path) -> None:
    """The poison shows what a wrong name would do."""
    from safetensors.torch import load_file, save_file

    contract = bound(POLICIES["mix with nvfp4"], small_model("qwen3_moe", tmp_path))
    checkpoint(contract, tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({name.replace("_scale_inv", "_scale"): value for name, value in load_file(path).items()}, path)
    left = unwritten(engine, contract, "qwen3_moe", tmp_path)
    assert any(name.endswith("qkv_proj.weight_scale_inv") for name in left)
