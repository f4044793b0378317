"""GPTQModel's `dynamic` and AutoAWQ's list are read as SGLang's own functions read them, on every layer of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from importing.judging import module_names, overrides, skipped
from importing.support import SAMPLES, decisions, model
from rollout.engine import engine

from precc.importing.readers import gptq
from precc.importing.readers.awq import contained
from precc.importing.reading import Document, Source

pytestmark = pytest.mark.slow

BASE = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False}
SAMPLE: dict[str, Any] = json.loads((SAMPLES / "gptq_dynamic.json").read_text())["quantization_config"]["dynamic"]


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., Any]]:
    """A worker with SGLang."""
    with engine() as asked:
        yield asked


@pytest.mark.parametrize(
    "name, dynamic", [("qwen3-8b", SAMPLE), ("qwen2.5-7b", {**SAMPLE, r".*\.1[0-2]\..*": {"bits": 8}})]
)
def test_the_first_exception_decides(ask: Callable[..., Any], name: str, dynamic: dict[str, Any]) -> None:
    """Skipped, changed, or left to the settings."""
    names = [layer for layer in module_names(model(name)) if layer != "lm_head"]
    section = {"quantization_config": {**BASE, "dynamic": dynamic}}
    source = Source("config.json", (Document("config.json", "config.json", "", section),))
    found = decisions(gptq.read(source, model(name)))
    for layer, changed in zip(names, ask(overrides, names, dynamic), strict=True):
        assert found[layer] == expected(changed), layer


def expected(changed: Any) -> str:
    """The decision that an answer of SGLang is."""
    if changed is False:
        return "None"
    settings = {**BASE, **(changed or {})}
    return f"weight int{settings['bits']} group {settings['group_size']}, train bf16"


@pytest.mark.parametrize("entry", ["gate", "mlp.gate", "model.layers.1", "layers.2.", "o_proj", "self_attn.q", ".1."])
def test_an_entry_is_a_part_of_a_name(ask: Callable[..., Any], entry: str) -> None:
    """Each entry alone."""
    names = module_names(model("qwen2.5-7b"))
    assert ask(skipped, names, [entry]) == [contained(entry).test(name) for name in names]
