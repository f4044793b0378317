"""Checkpoints in low precision: whoever stored them, they are the model that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest
from graph.checkpoint_files import Entry, entries, write_checkpoint
from graph.stored_forms import WRITTEN, Entries, in_layout, quantized

from precc.graph import ModelError, ModelGraph, read_model
from precc.graph.config import describe
from precc.graph.forms import BF16
from precc.graph.layouts import LAYOUTS, layout_of
from precc.graph.model import Tensor
from precc.graph.shrinking import shrink
from precc.pipeline import compile_policy
from precc.resolve.extends import shipped_policies
from precc.source import SourceFile

QUERY = "model.layers.1.self_attn.q_proj"
EXPERT = "model.layers.1.mlp.experts.3.up_proj"


def model(name: str, **changes: Any) -> tuple[dict[str, Any], ModelGraph, Entries]:
    """A small model of a family: its configuration, its graph, and what an unquantized checkpoint of it stores."""
    large = read_model(name)
    config = {**shrink(large, 3, range(6) if large.expert_count else ()).config, **changes}
    config.pop("quantization_config", None)
    graph = describe(config, name).graph(name)
    return config, graph, entries(graph)


def logical(graph: ModelGraph) -> list[Tensor]:
    """The tensors without how they are stored."""
    return [replace(tensor, form=BF16) for tensor in graph.tensors]


def written(folder: Path, name: str, change: Callable[[ModelGraph, Entries], Entries]) -> ModelGraph:
    """The graph of a small checkpoint after something was done to what it stores."""
    config, graph, stored = model(name)
    return read_model(str(write_checkpoint(folder / name, config, change(graph, stored))))


def blocks(tensor: Tensor, block: tuple[int, int] | None) -> tuple[str, int, int]:
    """How many blocks a weight has: a group as long as a row is one scale a row."""
    rows, columns = tensor.shape
    high, wide = block or tensor.shape
    return tensor.name, ceil(rows / high), ceil(columns / wide) if wide else 1


@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3"])
def test_every_layout_is_the_same_model(tmp_path: Path, name: str, case: str) -> None:
    """Names, shapes, roles and order are those of the unquantized model; every stored tensor is accounted for."""
    config, graph, plain = model(name)
    stored = in_layout(graph, plain, WRITTEN[case])
    found = read_model(str(write_checkpoint(tmp_path / name, config, stored)))
    assert logical(found) == logical(graph)
    low = [tensor for tensor in found.tensors if quantized(tensor)]
    assert {(t.dtype, t.form.format) for t in low} == {(WRITTEN[case].dtype, WRITTEN[case].format)}
    assert {blocks(t, t.stored_block) for t in low} == {blocks(t, WRITTEN[case].block) for t in low}
    assert found.stored_tensors == len(stored)
    assert found.stored_elements == sum(prod(shape) for _, shape in stored.values())
    assert found.config["quantization"] == WRITTEN[case].format


def test_every_layout_of_the_table_is_among_the_cases(tmp_path: Path) -> None:
    """But gpt-oss', which is for stacks alone."""
    seen = set()
    for case, way in WRITTEN.items():
        config, graph, plain = model("qwen3-4b")
        found = read_model(str(write_checkpoint(tmp_path / case, config, in_layout(graph, plain, way))))
        layouts = (layout_of(tensor.form) for tensor in found.tensors if quantized(tensor))
        seen |= {(layout.dtype, layout.writer) for layout in layouts}
    assert {(one.dtype, one.writer) for one in LAYOUTS} - seen == {("mxfp4", "gpt-oss")}


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "glm-4.5-air"])
@pytest.mark.parametrize("case", ["fp8 blocks", "nvfp4 with static inputs", "int4", "fp8"])
def test_a_policy_decides_the_same_whatever_the_checkpoint_stores(tmp_path: Path, name: str, case: str) -> None:
    """The digest of a contract is over names, shapes and decisions."""
    config, graph, plain = model(name)
    folders = [
        write_checkpoint(tmp_path / "plain", config, plain),
        write_checkpoint(tmp_path / "low", config, in_layout(graph, plain, WRITTEN[case])),
    ]
    text = (shipped_policies() / "nvfp4_rl.prec").read_text(encoding="utf-8")
    digests = set()
    for folder in folders:
        binding = compile_policy(SourceFile("nvfp4_rl.prec", text), read_model(str(folder)), ()).binding
        assert binding is not None
        digests.add(binding.contract.digest)
    assert len(digests) == 1


def test_one_checkpoint_may_hold_several_formats(tmp_path: Path) -> None:
    """Attention in FP8, experts in NVFP4, one of them left as it was: a range for each run of one form."""

    def mix(graph: ModelGraph, plain: Entries) -> Entries:
        fp8, nvfp4 = (in_layout(graph, plain, WRITTEN[case]) for case in ("fp8 blocks", "nvfp4"))
        attention = {name: one for name, one in fp8.items() if "self_attn" in name}
        experts = {name: one for name, one in nvfp4.items() if ".experts." in name and EXPERT not in name}
        low = {*attention, *experts}
        modules = {name.rpartition(".")[0] for name in low}
        return {**{n: one for n, one in plain.items() if n.rpartition(".")[0] not in modules}, **attention, **experts}

    found = written(tmp_path, "qwen3-30b-a3b", mix)
    parts = [t for t in found.tensors if t.layer == 1 and t.path[-1] == "up_proj"]
    assert [(t.experts, str(t.form)) for t in parts] == [
        (range(3), "nvfp4 in 1×16 blocks"),
        (range(3, 4), "bf16"),
        (range(4, 6), "nvfp4 in 1×16 blocks"),
    ]
    assert found.config["quantization"] == "mixed"


def test_a_head_in_low_precision_is_read_as_well(tmp_path: Path) -> None:
    """No rule protects what a checkpoint has already quantized."""

    def pack(graph: ModelGraph, plain: Entries) -> Entries:
        rows, columns = plain.pop("lm_head.weight")[1]
        return {**plain, **{f"lm_head.{w}": one for w, one in WRITTEN["nvfp4"].entries(rows, columns).items()}}

    found = written(tmp_path, "qwen3-8b", pack)
    assert {t.name: t.dtype for t in found.tensors}["lm_head.weight"] == "nvfp4"


def test_scales_of_the_cache_belong_to_no_weight(tmp_path: Path) -> None:
    """ModelOpt stores them beside keys and values; they are not among the tensors of the graph."""

    def scaled(graph: ModelGraph, plain: Entries) -> Entries:
        return {**plain, f"{QUERY[:-6]}k_proj.k_scale": ("F32", ()), f"{QUERY[:-6]}v_proj.v_scale": ("F32", (1,))}

    assert written(tmp_path, "qwen3-4b", scaled).layers == 3
    with pytest.raises(ModelError, match=r"v_scale` is no tensor"):
        written(tmp_path, "qwen3-4b", lambda _, plain: {**plain, "model.layers.1.mlp.v_scale": ("F32", ())})


# --- stacks of experts -------------------------------------------------------------------------------


def stack_of(graph: ModelGraph) -> dict[str, Tensor]:
    """The stacks of experts of a model by their names."""
    return {tensor.name: tensor for tensor in graph.tensors if tensor.stacked}


def test_mxfp4_stacks_are_the_stacks_of_the_model(tmp_path: Path) -> None:
    """gpt-oss stores `[experts, output, blocks, 16]` of what its table has as `[experts, input, output]`."""

    def pack(graph: ModelGraph, plain: Entries) -> Entries:
        made = dict(plain)
        for name, tensor in stack_of(graph).items():
            experts, columns, rows = tensor.shape
            del made[name]
            made[f"{name}_blocks"] = "U8", (experts, rows, columns // 32, 16)
            made[f"{name}_scales"] = "U8", (experts, rows, columns // 32)
        return made

    config, graph, plain = model("gpt-oss-20b")
    stored = pack(graph, plain)
    found = read_model(str(write_checkpoint(tmp_path / "m", config, stored)))
    assert logical(found) == logical(graph)
    assert {str(t.form) for t in found.tensors if t.stacked} == {"mxfp4 in 1×32 blocks"}
    assert (found.stored_tensors, found.stored_elements) == (
        len(stored),
        sum(prod(shape) for _, shape in stored.values()),
    )


@pytest.mark.parametrize("case", [None, "nvfp4", "fp8 blocks", "mxfp8", "int4"])
@pytest.mark.parametrize("name", ["gpt-oss-20b", "qwen3.5-35b-a3b"])
def test_a_stack_may_be_stored_one_expert_by_one(tmp_path: Path, name: str, case: str | None) -> None:
    """As the converter writes it for servers: gate, up and down of each expert, under the names of its own module."""

    def apart(graph: ModelGraph, plain: Entries) -> Entries:
        made = dict(plain)
        for stack, tensor in stack_of(graph).items():
            parts = ("gate_proj", "up_proj") if tensor.part == "gate_up" else ("down_proj",)
            axis = tensor.contraction
            rows, columns = tensor.shape[3 - axis] // len(parts), tensor.shape[axis]
            one = WRITTEN[case].entries(rows, columns) if case else {"weight": ("BF16", (rows, columns))}
            del made[stack]
            for expert in range(tensor.shape[0]):
                for part in parts:
                    prefix = f"{stack.rpartition('.')[0]}.{expert}.{part}"
                    made |= {f"{prefix}.{word}": entry for word, entry in one.items()}
        return made

    config, graph, plain = model(name)
    stored = apart(graph, plain)
    found = read_model(str(write_checkpoint(tmp_path / "m", config, stored)))
    assert logical(found) == logical(graph)
    assert {t.form.apart for t in found.tensors if t.stacked} == {("gate_proj", "up_proj"), ("down_proj",)}
    assert (found.stored_tensors, found.stored_elements) == (
        len(stored),
        sum(prod(shape) for _, shape in stored.values()),
    )


# --- what is wrong -----------------------------------------------------------------------------------


def _drop(name: str) -> Callable[[Entries], object]:
    return lambda stored: stored.pop(name)


def _set(name: str, entry: Entry) -> Callable[[Entries], object]:
    return lambda stored: stored.update({name: entry})


@pytest.mark.parametrize(
    "case, change, message, help",
    [
        ("nvfp4", _drop(f"{QUERY}.weight_scale_2"), "weight` is stored as U8 without `weight_scale_2` beside it", ""),
        ("nvfp4", _drop(f"{QUERY}.weight_scale"), "is stored as U8 without `weight_scale` beside it", ""),
        ("nvfp4", _drop(f"{QUERY}.weight"), "is missing, and its `weight_scale` is there", ""),
        ("nvfp4", _set(f"{QUERY}.weight", ("U8", (256, 64))), "has the shape [256, 64], where [256, 128] is nvfp4", ""),
        ("nvfp4", _set(f"{QUERY}.weight_scale", ("F32", (256, 16))), "weight_scale` is stored as F32, not as", ""),
        (
            "nvfp4",
            _set(f"{QUERY}.weight_scale_2", ("F32", (256,))),
            "weight_scale_2` has the shape [256]",
            "[256, 256]",
        ),
        ("nvfp4", _set(f"{QUERY}.weight_zero_point", ("I32", (4,))), "which no known tool writes together", ""),
        ("nvfp4", _set(f"{QUERY}.weight_packed", ("U8", (4,))), "which no known tool writes together", ""),
        ("int4", _set(f"{QUERY}.weight_scale", ("BF16", (256, 7))), "weight_scale` has the shape [256, 7]", ""),
        ("int4", _drop(f"{QUERY}.weight_shape"), "is stored as I32 without `weight_shape` beside it", ""),
        ("gptq", _set(f"{QUERY}.qzeros", ("I32", (2, 3))), "qzeros` has the shape [2, 3]", ""),
        ("fp8", _set(f"{QUERY}.weight", ("F8_E5M2", (256, 256))), "is stored as F8_E5M2, not as F8_E4M3", ""),
        ("fp8", _set(f"{EXPERT}.pre_quant_scale", ("F32", (8,))), "explains", ""),
        ("nvfp4", _set(f"{QUERY}_proj.weight_scale", ("F32", (8,))), "explains", QUERY),
    ],
)
def test_what_no_tool_writes_is_named(
    tmp_path: Path, case: str, change: Callable[[Entries], object], message: str, help: str
) -> None:
    """One error with the folder and the tensor, and with what would be right."""

    def damage(graph: ModelGraph, plain: Entries) -> Entries:
        stored = in_layout(graph, plain, WRITTEN[case])
        change(stored)
        return stored

    with pytest.raises(ModelError) as caught:
        written(tmp_path, "qwen3-30b-a3b", damage)
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert help in caught.value.help


def test_experts_of_a_stack_have_one_form(tmp_path: Path) -> None:
    """The graph has one tensor for them all."""

    def apart(graph: ModelGraph, plain: Entries) -> Entries:
        made = dict(plain)
        for stack, tensor in stack_of(graph).items():
            prefix, axis = stack.rpartition(".")[0], tensor.contraction
            parts = ("gate_proj", "up_proj") if tensor.part == "gate_up" else ("down_proj",)
            shape = tensor.shape[3 - axis] // len(parts), tensor.shape[axis]
            del made[stack]
            made |= {
                f"{prefix}.{expert}.{part}.weight": ("F32" if expert == part == 1 else "BF16", shape)
                for expert in range(tensor.shape[0])
                for part in parts
            }
        made["model.layers.1.mlp.experts.1.up_proj.weight"] = (
            "F32",
            made["model.layers.1.mlp.experts.1.up_proj.weight"][1],
        )
        return made

    with pytest.raises(ModelError, match="one stack of experts has one form"):
        written(tmp_path, "gpt-oss-20b", apart)
