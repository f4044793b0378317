"""The tables against a second source: what transformers builds on the meta device and would save.

transformers is not the first source, since what it saves is not what is published, in these points:

- multi-token prediction is never built, and a tied head is often there;
- Qwen3.5-MoE's experts are saved one by one, where the release stacks them;
- Qwen3-VL-MoE's stacks are saved as they are multiplied, where the release has them the other way round;
- Gemma-3's vision tower loses a component of its names;
- Kimi-K2.5's reverse mapping, written for the vision tower, renames the language model's layers as well, and leaves
  two modules beside the tower where the library has them;
- stored dtypes and scales are unknown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from graph.expansion import facts

from precc.graph import ModelGraph, catalogue, read_model
from precc.graph.config import describe
from precc.graph.layouts import STACKED_PARTS, taken_apart
from precc.graph.model import Tensor
from precc.graph.shrinking import Small, shrink

pytestmark = pytest.mark.slow

Shapes = dict[str, tuple[int, ...]]

MODELS = {describe(facts(name)[0], name).family.name: name for name in reversed(catalogue())}
"""A model of each family."""

UNLIKE = ("deepseek_v4", "kimi_k3")
"""Families whose class in the library has other names than what is published, or that it has no class of."""

FAMILIES = [family for family in sorted(MODELS) if family not in UNLIKE]

OTHER_FIELDS = ("quantization_config", "rope_scaling")
"""Of no tensor, and in words of other libraries."""


@pytest.fixture(scope="module")
def small() -> dict[str, Small]:
    """A small model of every family, with its configuration."""
    return {family: shrink(read_model(MODELS[family]), layers=4) for family in FAMILIES}


@pytest.fixture(scope="module")
def saved(small: dict[str, Small]) -> Mapping[str, Shapes]:
    """What transformers saves of each, in one process for all: importing it takes longest."""
    configs = {family: _plain(model.config) for family, model in small.items()}
    script = str(Path(__file__).with_name("meta_models.py"))
    done = subprocess.run([sys.executable, script], input=json.dumps(configs), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        family: {name: tuple(shape) for name, shape in tensors.items()}
        for family, tensors in json.loads(done.stdout).items()
    }


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in OTHER_FIELDS}
    return {key: _plain(value) if isinstance(value, dict) else value for key, value in kept.items()}


def tables(model: ModelGraph) -> Shapes:
    """The names and shapes of the table, without MTP layers."""
    tensors = [tensor for tensor in model.tensors if tensor.mtp is None]
    return {name: tensor.shape for tensor in tensors for name in names_of(tensor)}


def names_of(tensor: Tensor) -> Iterator[str]:
    """The stored name of each expert's tensor, or the one name."""
    return (f"{module}.{tensor.parameter}" if tensor.parameter else module for module in tensor.modules())


def _one_by_one(model: ModelGraph) -> Shapes:
    found = tables(model)
    for tensor in (tensor for tensor in model.tensors if tensor.stacked):
        del found[tensor.name]
        parts = STACKED_PARTS[tensor.part]
        shape = taken_apart(parts, tensor.shape, tensor.contraction)
        prefix = ".".join(tensor.path[:-1])
        found |= {f"{prefix}.{at}.{part}.weight": shape for at in range(tensor.stacked) for part in parts}
    return found


def _turned(model: ModelGraph) -> Shapes:
    stacks = {
        tensor.name: (tensor.shape[0], tensor.shape[2], tensor.shape[1]) for tensor in model.tensors if tensor.stacked
    }
    return {**tables(model), **stacks}


RENAMED: Mapping[str, Mapping[str, str]] = {
    "kimi_k25": {
        "language_model.model.layers.": "language_model.model.blocks.",
        "mm_projector.pre_norm.": "model.mm_projector.pre_norm.",
        "vision_tower.patch_embed.proj.": "vision_tower.encoder.patch_embed.proj.",
    },
    "minimax_m3": {".mlp.": ".block_sparse_moe."},
    "gemma3": {"vision_tower.vision_model.": "vision_tower."},
}
"""What is released → what the library saves it as."""


EXCEPTIONS: Mapping[str, Callable[[ModelGraph], Shapes]] = {
    "qwen3_5_moe": _one_by_one,
    "qwen3_vl_moe": _turned,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_has_the_names_and_shapes_that_transformers_saves(
    family: str, small: dict[str, Small], saved: Mapping[str, Shapes]
) -> None:
    """Name by name, after the exceptions above."""
    model = small[family].graph
    wanted = EXCEPTIONS.get(family, tables)(model)
    for released, saved_as in RENAMED.get(family, {}).items():
        wanted = {name.replace(released, saved_as): shape for name, shape in wanted.items()}
    found = dict(saved[family])
    if model.config["tie_word_embeddings"] and not model.config["lm_head_stored"]:
        found = {name: shape for name, shape in found.items() if not name.endswith("lm_head.weight")}
    assert found == wanted
