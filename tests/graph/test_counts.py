"""The tables give exactly the tensors that published checkpoints hold."""

from __future__ import annotations

import pytest
from graph.checkpoint_files import small
from graph.expansion import TEMPLATES, expanded, facts, totals

from precc.graph import ModelGraph, catalogue, read_model
from precc.graph.config import describe

TEMPLATED = [name for name in catalogue() if facts(name)[0]["architectures"][0] in TEMPLATES]
"""The models whose architecture has published templates; `test_transformers` has others."""


@pytest.mark.parametrize(
    "name, tensors, elements",
    [
        ("qwen3-30b-a3b", 18_867, 30_532_122_624),
        ("qwen3-0.6b", 311, 751_632_384),
        ("qwen3-4b", 398, 4_022_468_096),
        ("deepseek-v2-lite", 5_291, 15_706_484_224),
        ("deepseek-v3", 91_991, 684_531_386_000),
        ("deepseek-r1", 91_991, 684_531_386_000),
        ("deepseek-v3.2", 92_425, 685_396_921_376),
        ("qwen3-next-80b-a3b", 75_944, 81_324_862_720),
        ("qwen3.5-35b-a3b", 1_811, 35_951_822_704),
        ("qwen3-vl-30b-a3b", 882, 31_070_754_032),
        ("minimax-m2.7", 96_103, 228_703_644_928),
        ("gpt-oss-20b", 459, 11_956_805_184),
        ("gpt-oss-20b-bf16", 411, 20_914_757_184),
        ("step-3.7-flash", 1_471, 201_365_316_160),
    ],
)
def test_a_graph_has_the_totals_of_the_published_checkpoint(name: str, tensors: int, elements: int) -> None:
    """Tensor and element counts, FP8 scales included, are those reported from real headers."""
    graph = read_model(name)
    assert (graph.stored_tensors, graph.stored_elements) == (tensors, elements)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("gpt-oss-120b", 116_829_156_672),
        ("gemma-3-1b", 999_885_952),
        ("gemma-3-4b", 4_300_079_472),
        ("gemma-3-12b", 12_187_325_040),
        ("gemma-3-27b", 27_432_406_640),
        ("llama-4-scout", 108_641_793_536),
        ("llama-4-maverick", 401_583_781_376),
        ("kimi-k3", 2_779_931_837_184),
    ],
)
def test_a_graph_has_the_parameters_that_the_hub_counts(name: str, parameters: int) -> None:
    """Towers and all, as the model pages of these checkpoints say."""
    assert read_model(name).parameters == parameters


@pytest.mark.parametrize("name", TEMPLATED)
def test_every_catalogued_model_agrees_with_the_templates(name: str) -> None:
    """A second expansion, of the published templates, counts the same tensors and elements."""
    graph = read_model(name)
    assert (graph.stored_tensors, graph.stored_elements) == totals(*facts(name))


@pytest.mark.parametrize("name", TEMPLATED)
def test_every_tensor_has_the_name_and_shape_of_the_templates(name: str) -> None:
    """Name by name and shape by shape, on a smaller copy of the model."""
    config, stored = facts(name)
    config = small(config)
    graph = describe(config, name, stored).graph(name)
    ours = {(stored_name(t.path, t.parameter), t.count, t.shape) for t in graph.tensors}
    assert ours == {(row[0], row[1], row[2]) for row in expanded(config, stored)}
    assert len(ours) == len(graph.tensors)


def stored_name(path: tuple[str, ...], parameter: str) -> str:
    """A tensor's name with `{e}` for the expert."""
    return ".".join((*path, parameter) if parameter else path)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3", "glm-4.5-air"])
def test_cost_does_not_grow_with_experts(name: str) -> None:
    """256, 2,560 and 25,600 experts are as many objects: a tensor of all experts is one."""

    def graph(experts: int) -> ModelGraph:
        config, _ = facts(name)
        key = "num_experts" if "num_experts" in config else "n_routed_experts"
        return describe({**config, key: experts}, name).graph(name)

    graphs = [graph(experts) for experts in (256, 2_560, 25_600)]
    assert len({len(g.tensors) for g in graphs}) == 1
    assert [g.expert_count for g in graphs] == [256, 2_560, 25_600]
