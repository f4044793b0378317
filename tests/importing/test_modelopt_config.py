"""ModelOpt's recipes and `quant_cfg`: its own code leaves the quantizers of the same names as they are read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from importing.judging import entries as shipped_entries
from importing.judging import linear_layers, module_names, quantizers, tools
from importing.support import SAMPLES, counts, decisions, imported, messages, model, reading, rules, written

from precc.graph.shrinking import shrink
from precc.importing import modelopt_files
from precc.importing.checkpoint import is_convertible
from precc.importing.quantizers import Entry, Quantizer, Unspelled, decision, entries, input_format, weight_format
from precc.importing.reading import Unimportable
from precc.importing.sources import read_source

FP8 = {"num_bits": [4, 3], "axis": None}
NVFP4 = {"num_bits": [2, 1], "block_sizes": {"-1": 16, "type": "dynamic", "scale_bits": [4, 3]}}

OLD = {
    "*weight_quantizer": {**NVFP4, "enable": True},
    "*input_quantizer": {**NVFP4, "enable": True},
    "*.mlp.experts.*.down_proj.*": {"enable": False},
    "*self_attn*input_quantizer": {"num_bits": [4, 3], "axis": None},
    "*self_attn*weight_quantizer": {"num_bits": [4, 3], "axis": None},
    "nn.Linear": {"*lm_head*": {"enable": False}},
    "nn.BatchNorm1d": {"*": {"enable": False}},
    "*mlp.gate.*": {"enable": False},
    "default": {"enable": False},
}
"""The old form, in the order in which a dump may have it: `default` last turns everything off again."""

NEW = [
    {"quantizer_name": "*", "enable": False},
    {"quantizer_name": "*weight_quantizer", "cfg": NVFP4},
    {"quantizer_name": "*input_quantizer", "cfg": NVFP4},
    {"quantizer_name": "*experts.[02].*", "enable": False},
    {"quantizer_name": "*layers.?.self_attn*weight_quantizer", "cfg": FP8},
    {"quantizer_name": "*layers.?.self_attn*input_quantizer", "cfg": FP8},
    {"quantizer_name": "*experts.2.down_proj*", "enable": True},
    {"quantizer_name": "*layers.1.*", "parent_class": "nn.Linear", "enable": False},
    {"quantizer_name": "*layers.2.*weight_quantizer", "cfg": [{"num_bits": 4, "block_sizes": {"-1": 128}}, FP8]},
    {"quantizer_name": "*layers.3.mlp*", "parent_class": "nn.Conv2d", "enable": False},
    {"quantizer_name": "lm_head.*", "enable": False},
]


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., Any]]:
    """A worker with ModelOpt."""
    with tools() as asked:
        yield asked


def tupled(said: Any) -> Any:
    """A dump as Python has it: pairs of bits, whole numbers for axes."""
    if isinstance(said, dict):
        return {int(key) if str(key).lstrip("-").isdecimal() else key: tupled(value) for key, value in said.items()}
    if isinstance(said, list) and len(said) == 2 and all(isinstance(part, int) for part in said):
        return tuple(said)
    return [tupled(part) for part in said] if isinstance(said, list) else said


def spelled(state: Quantizer, quantizer: str) -> str:
    """A state in words that can be compared."""
    if not state.enabled:
        return "off"
    try:
        return str(weight_format(state.cfg) if quantizer.endswith("weight_quantizer") else input_format(state.cfg))
    except Unspelled:
        return "unspelled"


@pytest.mark.slow
@pytest.mark.parametrize("quant_cfg", [NEW, dict(reversed(OLD.items())), OLD], ids=["list", "mapping", "default last"])
def test_quantizers_end_as_modelopt_leaves_them(ask: Callable[..., Any], quant_cfg: Any) -> None:
    """Every quantizer of every linear layer of a small model, both forms."""
    graph = shrink(model("qwen3-30b-a3b"), layers=4).graph
    names = module_names(graph)
    judged = ask(quantizers, names, tupled(quant_cfg))
    found = tuple(entries(quant_cfg))
    for quantizer, said in judged.items():
        assert spelled(ended(quantizer, found), quantizer) == spelled(Quantizer(**said), quantizer), quantizer


def ended(quantizer: str, found: tuple[Entry, ...]) -> Quantizer:
    """The state that entries leave."""
    state = Quantizer(True, {})
    for entry in found:
        if entry.matches(quantizer):
            state = state.after(entry)
    return state


SHIPPED = "general/ptq"
"""Where ModelOpt's own recipes lie."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["nvfp4_default-kv_fp8", "nvfp4_experts_only-kv_fp8"])
@pytest.mark.parametrize(
    "name", ["nemotron-3-super-120b-a12b", "mimo-v2-flash", "minimax-m3", "gemma-4-26b-a4b", "deepseek-v4-flash"]
)
def test_each_layer_is_what_modelopt_makes_of_it(ask: Callable[..., Any], name: str, recipe: str) -> None:
    """Layer by layer of the newest families; a layer that no engine runs so is told."""
    graph, path = shrink(model(name), layers=4).graph, recipes() / f"{recipe}.yaml"
    (document,) = read_source(str(path)).documents
    names = module_names(graph)
    judged = ask(quantizers, names, tupled(modelopt_files.resolved(document)["quantize"]["quant_cfg"]))
    read = reading(path, graph)
    found = decisions(read)
    wanted = {layer: decided(judged, layer) for layer in names}
    served = {layer for t in linear_layers(graph) if is_convertible(t) for layer in t.modules()}
    assert {layer: found[layer] for layer in served} == {layer: wanted[layer] for layer in served}
    is_beyond = any(decision != "None" for layer, decision in wanted.items() if layer not in served)
    assert any("no engine runs it" in finding.message for finding in read.findings) == is_beyond


def decided(judged: dict[str, Any], layer: str) -> str:
    """The decision that two quantizers are."""
    weights, inputs = (Quantizer(**judged[f"{layer}.{side}_quantizer"]) for side in ("weight", "input"))
    if not weights.enabled:
        return "None"
    return str(decision(weight_format(weights.cfg), input_format(inputs.cfg) if inputs.enabled else None))


def recipes() -> Path:
    """The folder of ModelOpt's own recipes."""
    spec = find_spec("modelopt_recipes")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / SHIPPED


@pytest.mark.slow
def test_imports_are_resolved_as_modelopt_resolves_them(ask: Callable[..., Any]) -> None:
    """Every PTQ recipe that ModelOpt ships, entry by entry."""
    paths = sorted(recipes().glob("*.yaml"))
    assert len(paths) > 20
    for path in paths:
        (document,) = read_source(str(path)).documents
        mine = entries(modelopt_files.resolved(document)["quantize"]["quant_cfg"])
        theirs = ask(shipped_entries, str(path))
        assert [(e.name, e.parent, e.enable) for e in mine] == [(e["name"], e["parent"], e["enable"]) for e in theirs]


@pytest.mark.parametrize(
    "recipe, expected",
    [
        ("nvfp4_default-kv_fp8", ["default: weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"]),
        ("nvfp4_weight_only-kv_fp16", ["default: weight nvfp4 per_tensor, train bf16"]),
        ("fp8_default-kv_fp8_cast", ["default: weight fp8 per_tensor, input fp8 per_tensor static, train bf16"]),
        ("int4_blockwise_weight_only", ["default: weight int4 group 128, train bf16"]),
    ],
)
def test_shipped_recipes_are_a_line_or_two(recipe: str, expected: list[str]) -> None:
    """With the KV cache where the recipe has one."""
    spec = find_spec("modelopt_recipes")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = f"{spec.submodule_search_locations[0]}/general/ptq/{recipe}.yaml"
    cache = ["kv_cache: fp8"] if "kv_fp8" in recipe else []
    assert rules(path, model("qwen3-30b-a3b")) == [*expected, *cache]


def test_a_layer_is_what_its_two_quantizers_end_as() -> None:
    """The sample has NVFP4 experts, FP8 attention with the last entry winning, and an FP8 KV cache."""
    found = reading(SAMPLES / "modelopt_quant_cfg.json", model("qwen3-30b-a3b"))
    assert dict(counts(found)) == {
        "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16": 48 * 128 * 2,
        "weight nvfp4 per_tensor, train bf16": 48 * 128,
        "weight fp8 per_tensor, input fp8 per_tensor static, train bf16": 48 * 4,
        "None": 18867 - 48 * (128 * 3 + 4),
    }
    assert found.kv_cache == "fp8"


def test_dead_and_beaten_entries_are_told() -> None:
    """An entry for another family's names, and one that a later wildcard takes everything from."""
    said = messages(imported(SAMPLES / "modelopt_quant_cfg.json", model("qwen3-30b-a3b")))
    assert [line[:4] for line in said] == ["P903", "P903"]
    assert "mixer.in_proj" in said[0]
    assert "q_proj" in said[1]


def test_a_wildcard_takes_longer_names_with_it(tmp_path: Path) -> None:
    """`*mlp.gate*` is the router and `gate_proj`; ModelOpt's own entry has a dot behind it."""
    entries = [*NEW[:3], {"quantizer_name": "*mlp.gate*", "enable": False}, NEW[-1]]
    path = written(tmp_path, "quant_cfg.json", {"quant_cfg": entries})
    said = messages(imported(path, model("qwen3-8b")))
    assert [line[:4] for line in said] == ["P904"]
    assert "gate_proj" in said[0]


def test_a_gate_that_no_entry_disables_is_told(tmp_path: Path) -> None:
    """ModelOpt would quantize the gate of a shared expert; no engine runs it so."""
    path = written(tmp_path, "quant_cfg.json", {"quant_cfg": [*NEW[:3], NEW[-1]]})
    said = messages(imported(path, model("qwen3-next-80b-a3b")))
    assert any(line.startswith("P904") and "shared_expert_gate" in line for line in said)


@pytest.mark.parametrize(
    "content, code, words",
    [
        ({"quant_cfg": NEW[1:3], "algorithm": "awq_lite"}, "P902", "channel by channel"),
        ({"quant_cfg": NEW[1:3], "algorithm": {"method": "smoothquant"}}, "P902", "smoothquant"),
        ({"quant_cfg": [NEW[0], {"quantizer_name": "*weight_quantizer", "cfg": {"axis": 0}}]}, "P902", "have no"),
        ({"quant_cfg": [{"quantizer_name": "*input_quantizer", "enable": False}]}, "P902", "ModelOpt's INT8"),
        ({"quant_cfg": [*NEW[:1], NEW[2]]}, "P902", "weights that are not"),
        ({"quant_cfg": [*NEW[:3], {"quantizer_name": "*k_bmm_quantizer", "cfg": NVFP4}, NEW[-1]]}, "P902", "KV cache"),
        ({"quant_cfg": [*NEW[:3], {"quantizer_name": "*q_bmm_quantizer", "cfg": FP8}, NEW[-1]]}, "P902", "attention"),
        ({"quant_cfg": [{"quantizer_name": "*", "cfg": {}}]}, "P901", "empty `cfg`"),
        ({"quant_cfg": [{"quantizer_name": "*"}]}, "P901", "neither"),
        ({"quant_cfg": "NVFP4_DEFAULT_CFG"}, "P901", "neither a list"),
        ({"quant_cfg": [{"$import": "x"}]}, "P901", "not among"),
        ({"imports": {"x": "configs/nowhere"}, "quant_cfg": [{"$import": "x"}]}, "P901", "not here"),
        ({"imports": {"x": "../../../etc/passwd"}, "quant_cfg": [{"$import": "x"}]}, "P901", "not here"),
        ({"metadata": {"recipe_type": "auto_quantize"}, "auto_quantize": {"constraints": {}}}, "P902", "searches"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: Any, code: str, words: str) -> None:
    """With a code that says whether it is no such file, or has no spelling."""
    path = written(tmp_path, "quant_cfg.json", content)
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("llama-3.1-8b"))
    assert caught.value.findings[0].code == code


def test_zero_points_and_rotations_have_no_spelling(tmp_path: Path) -> None:
    """A bias that is on, or a rotation in front of a quantizer."""
    for more, words in (({"bias": {"-1": None, "type": "dynamic"}}, "zero points"), ({"rotate": True}, "`rotate`")):
        entries = [NEW[0], {"quantizer_name": "*weight_quantizer", "cfg": {**FP8, **more}}, NEW[-1]]
        path = written(tmp_path, "quant_cfg.json", {"quant_cfg": entries})
        with pytest.raises(Unimportable, match=words):
            reading(path, model("llama-3.1-8b"))
