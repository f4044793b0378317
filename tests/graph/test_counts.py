"""The tables give exactly the tensors that published checkpoints hold."""

from __future__ import annotations

import pytest
from graph.checkpoint_files import small
from graph.expansion import expanded, facts, totals

from precc.graph import ModelGraph, catalogue, read_model
from precc.graph.config import describe


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
    ],
)
def test_a_graph_has_the_totals_of_the_published_checkpoint(name: str, tensors: int, elements: int) -> None:
    """Tensor and element counts, FP8 scales included, are those reported from real headers."""
    graph = read_model(name)
    assert (graph.stored_tensors, graph.stored_elements) == (tensors, elements)


@pytest.mark.parametrize("name", catalogue())
def test_every_catalogued_model_agrees_with_the_templates(name: str) -> None:
    """A second expansion, of the published templates, counts the same tensors and elements."""
    graph = read_model(name)
    assert (graph.stored_tensors, graph.stored_elements) == totals(*facts(name))


@pytest.mark.parametrize("name", catalogue())
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
