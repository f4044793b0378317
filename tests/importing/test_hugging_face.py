"""What checkpoints say of themselves: each method's formats, lists and traps, and what no policy can say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from importing import libraries
from importing.support import decisions
from rollout import engine as real

from precc.front import read_policy
from precc.graph.reading import read_model
from precc.importing.importing import Imported, import_policy
from precc.importing.reading import Document, Source, Unimportable
from precc.source import SourceFile

BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
STATIC = "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"


def folder(config: dict[str, Any] | None, legacy: dict[str, Any] | None = None) -> Source:
    """A checkpoint's folder with one of the two files, or both."""
    found = []
    if config is not None:
        found.append(Document("ck/config.json", "config.json", "", {"quantization_config": config}))
    if legacy is not None:
        found.append(Document("ck/hf_quant_config.json", "hf_quant_config.json", "", {"quantization": legacy}))
    return Source("ck", tuple(found), is_folder=True)


def imported(
    config: dict[str, Any] | None, legacy: dict[str, Any] | None = None, model: str = "qwen3-30b-a3b"
) -> Imported:
    """The policy of a folder on a model."""
    return import_policy(folder(config, legacy), read_model(model), "p")


def lines(done: Imported) -> list[str]:
    """The policy's statements, without comments and its name."""
    return [line for line in done.text.splitlines() if line and not line.startswith(("#", "policy "))]


def codes(done: Imported) -> list[str]:
    """The codes of what was found."""
    return [finding.code for finding in done.findings]


def groups(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A compressed-tensors config with one group for all linear layers."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
FLOAT4 = {"num_bits": 4, "type": "float", "symmetric": True, "dynamic": False}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}


@pytest.mark.parametrize(
    "config, spec",
    [
        (BLOCKS, "fp8_block scales fp32"),
        ({**BLOCKS, "scale_fmt": "ue8m0"}, "fp8_block"),
        ({"quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32]}, "mxfp8"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8 per_tensor"),
        (
            {"quant_method": "fp8", "activation_scheme": "static"},
            "weight fp8 per_tensor, input fp8 per_tensor static, train bf16",
        ),
        ({**NVFP4, "ignore": ["lm_head"]}, STATIC),
        ({**NVFP4, "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head"]}, "weight nvfp4 per_tensor, train bf16"),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
            "weight fp8 per_tensor, input fp8 per_tensor static, train bf16",
        ),
        (groups({**FLOAT8, "strategy": "channel"}, {**FLOAT8, "strategy": "token", "dynamic": True}), None),
        (groups({**FLOAT8, "strategy": "tensor"}, {**FLOAT8, "strategy": "tensor"}), None),
        (groups({**FLOAT4, "strategy": "tensor_group", "group_size": 16}), "weight nvfp4 per_tensor, train bf16"),
        (groups({**FLOAT4, "strategy": "group", "group_size": 32}), "weight mxfp4, train bf16"),
        (groups(INT4), "weight int4 group 32, train bf16"),
        (groups({**INT4, "num_bits": 8, "group_size": 128}), "weight int8 group 128, train bf16"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_format_becomes_its_spec(config: dict[str, Any], spec: str | None) -> None:
    """One format for all linear layers is a default and no rule; the policy reads without a finding."""
    done = imported(config)
    assert done.rules == 0
    assert spec is None or f"default: {spec}" in lines(done)
    _, found = read_policy(SourceFile("p.prec", done.text))
    assert not [finding for finding in found if finding.is_error]


@pytest.mark.parametrize(
    "config, words",
    [
        ({**BLOCKS, "weight_block_size": [64, 64]}, "blocks of [64, 64]"),
        ({**BLOCKS, "fmt": "e5m2"}, "`fmt: e5m2`"),
        ({**NVFP4, "quant_algo": "NVFP4_AWQ"}, "scaled channel by channel"),
        ({**NVFP4, "quant_algo": "W4A8_AWQ"}, "two scales"),
        ({**NVFP4, "quant_algo": "Q7_K"}, "known are FP8"),
        ({**NVFP4, "group_size": 32}, "groups of 32"),
        ({**NVFP4, "quant_algo": "MIXED_PRECISION"}, "needs a map"),
        ({**NVFP4, "kv_cache_quant_algo": "NVFP4"}, "a KV cache that no policy can name"),
        ({**NVFP4, "ignore": "lm_head"}, "no list of names"),
        (groups({**INT4, "symmetric": False}), "zero points"),
        (groups({**INT4, "actorder": "group"}), "act-order"),
        (groups({**INT4, "group_size": 48}), "have no spelling"),
        (groups({**INT4, "num_bits": 3}), "have no spelling"),
        (groups(INT4, transform_config={"a": 1}), "`transform_config`"),
        ({**groups(INT4), "ignore": ["re:("]}, "is no pattern"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_no_policy_can_say_is_refused(config: dict[str, Any], words: str) -> None:
    """One finding with a code, where it stands and what it is; no text."""
    with pytest.raises(Unimportable) as refusal:
        imported(config)
    (finding,) = refusal.value.findings
    assert finding.code == "P902"
    assert words in finding.message
    assert finding.message.startswith("config.json: quantization_config: ")


# --- lists -------------------------------------------------------------------------------------------


def test_a_list_of_thousands_of_names_becomes_a_role_or_a_slice() -> None:
    """Names of every expert of the last layers are one slice, and those of all attention one role."""
    names = [
        f"model.layers.{n}.mlp.experts.{e}.{p}" for n in (46, 47) for e in range(128) for p in ("up_proj", "gate_proj")
    ]
    names += [f"model.layers.{n}.mlp.experts.{e}.down_proj" for n in (46, 47) for e in range(128)]
    names += [f"model.layers.{n}.self_attn.{p}_proj" for n in range(48) for p in "qkvo"]
    done = imported({**BLOCKS, "scale_fmt": "ue8m0", "modules_to_not_convert": names})
    assert lines(done) == ["default: bf16", "@routed_experts in layers[:46]: fp8_block"]


def test_experts_that_are_told_apart_keep_their_numbers() -> None:
    """Single experts of one layer are named; their neighbours stay."""
    layers = {
        f"model.layers.3.mlp.experts.{e}.{p}": {"quant_algo": "NVFP4"} for e in (5, 6) for p in ("gate_proj", "up_proj")
    }
    done = imported({"quant_method": "modelopt_mixed", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert "    experts.{5,6}.gate_proj in layers[3]," in lines(done)
    assert done.rules == 1


MIX: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None}


def test_a_server_s_names_in_a_map_stand_for_what_it_fuses() -> None:
    """`qkv_proj`, and the draft model's expert layer, as SGLang's own lookup has them."""
    layers = {f"model.layers.{layer}.self_attn.qkv_proj": {"quant_algo": "MXFP8"} for layer in range(46)}
    layers["model.decoder.mlp.experts"] = {"quant_algo": "NVFP4"}
    done = imported({**MIX, "quantized_layers": layers}, model="glm-4.5-air")
    found = decisions(done.reading)
    assert [found[f"model.layers.0.self_attn.{part}_proj"] for part in "qkvo"] == ["mxfp8", "mxfp8", "mxfp8", "None"]
    assert found["model.layers.46.mlp.experts.7.up_proj"].startswith("weight nvfp4")
    assert found["model.layers.45.mlp.experts.7.up_proj"] == "None"
    assert not codes(done)


def test_a_server_s_name_in_a_list_stands_for_what_it_fuses() -> None:
    """A glob of ModelOpt's that no tensor of the checkpoint has."""
    done = imported({**NVFP4, "ignore": ["lm_head", "*.qkv_proj"]})
    found = decisions(done.reading)
    assert {found[f"model.layers.7.self_attn.{part}_proj"] for part in "qkv"} == {"None"}
    assert found["model.layers.7.self_attn.o_proj"].startswith("weight nvfp4")
    assert not codes(done)


def test_block_weights_are_weights_alone_and_the_server_s_reading_is_told() -> None:
    """ModelOpt's preset leaves inputs in BF16; SGLang multiplies with FP8, and so means its own method's map."""
    layers = {"quantized_layers": {"model.layers.0.self_attn.o_proj": {"quant_algo": "FP8_PB_WO"}}}
    done = imported({**MIX, **layers})
    assert "o_proj in layers[0]: weight fp8_block scales fp32, train bf16" in lines(done)
    assert codes(done) == ["P904"]
    assert "SGLang multiplies `model.layers.0.self_attn.o_proj`" in done.findings[0].message
    served = imported({**MIX, **layers, "quant_method": "modelopt_mixed"})
    assert "o_proj in layers[0]: fp8_block scales fp32" in lines(served)
    assert not codes(served)


def test_a_glob_that_goes_on_in_a_number_is_told() -> None:
    """`layers.1*` is layer 1 and ten others; the policy says what the tool does."""
    done = imported({**NVFP4, "ignore": ["lm_head", "model.layers.1*"]})
    assert "layers[1], layers[10:20]: bf16" in lines(done)
    assert codes(done) == ["P904"]
    assert "model.layers.{10..19}" in done.findings[0].message


def test_a_latent_projection_of_one_layer_is_told() -> None:
    """SGLang takes it for every layer's; ModelOpt, which wrote the weights, does not."""
    done = imported({**NVFP4, "ignore": ["lm_head", "model.layers.0.self_attn.kv_b_proj"]}, model="deepseek-v3")
    assert [finding.message for finding in done.findings if "as SGLang reads it" in finding.message]
    assert "@mla in layers[0]: bf16" in lines(done)


def test_a_name_that_transformers_takes_for_a_beginning_is_told() -> None:
    """`mlp.gate` of a dense layer begins `mlp.gate_proj`, which SGLang quantizes and `transformers` does not."""
    done = imported({**BLOCKS, "modules_to_not_convert": ["model.layers.0.mlp.gate"]}, model="deepseek-v3")
    assert "P903" in codes(done)
    assert any("as `transformers` reads it, also `model.layers.0.mlp.gate_proj`" in f.message for f in done.findings)


def test_a_pattern_without_an_end_is_told() -> None:
    """`re:.*mlp.gate` is the router, and every `gate_proj` of a dense layer beside."""
    done = imported({**groups(INT4), "ignore": ["lm_head", "re:.*mlp.gate"]}, model="deepseek-v3")
    assert any(finding.code == "P904" and "gate_proj" in finding.message for finding in done.findings)


def test_a_key_that_is_not_read_is_told() -> None:
    """It may change what is served."""
    assert codes(imported({**BLOCKS, "some_new_key": 1})) == ["P907"]


# --- two files ---------------------------------------------------------------------------------------


def test_files_that_differ_are_told_with_their_tensors() -> None:
    """The policy follows `config.json`; formats and the KV cache are compared."""
    config = {**NVFP4, "ignore": ["lm_head", "*.self_attn*"], "kv_cache_quant_algo": "FP8"}
    legacy = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"], "kv_cache_quant_algo": None}
    done = imported(config, legacy)
    assert codes(done) == ["P905", "P905"]
    assert "KV cache" in done.findings[0].message
    assert "model.layers.{0..47}.self_attn" in done.findings[1].message
    assert "@attention: bf16" in lines(done)


def test_files_that_agree_are_one_policy() -> None:
    """The same facts under other keys are no difference."""
    done = imported({**NVFP4, "ignore": ["lm_head"]}, {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]})
    assert codes(done) == []


def test_a_kv_cache_that_one_file_lacks_is_taken_from_the_other() -> None:
    """A mixed config without the key makes SGLang read the other file, too."""
    done = imported(
        {**NVFP4, "ignore": ["lm_head"]},
        {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"},
    )
    assert "kv_cache: fp8" in lines(done)


# --- the libraries -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """A process that has torch, compressed-tensors and transformers."""
    with real.engine() as ask:
        yield ask


SCHEMES = {
    "re:.*_proj$": {**FLOAT8, "strategy": "channel"},
    "re:.*(q|k|v)_proj$": {**FLOAT4, "strategy": "tensor_group", "group_size": 16},
    "model.layers.3.self_attn.q_proj": INT4,
    "Linear": {**INT4, "group_size": 128},
    "re:.*o_proj": {**FLOAT4, "strategy": "group", "group_size": 32},
}
TOKENS = {**FLOAT8, "strategy": "token", "dynamic": True}


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_overlapping_targets_are_decided_as_compressed_tensors_decides_them(library: Any, order: int) -> None:
    """Names before patterns before classes, then by the alphabet, whatever the order of the groups."""
    listed = list(SCHEMES.items())[::order]
    config = {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "config_groups": {
            f"group_{at}": {
                "targets": [target],
                "weights": scheme,
                "input_activations": TOKENS if scheme.get("strategy") == "channel" else None,
            }
            for at, (target, scheme) in enumerate(listed)
        },
    }
    done = imported(config, model="qwen3-8b")
    words = {"re:.*_proj$": "fp8", "re:.*(q|k|v)_proj$": "nvfp4", "re:.*o_proj": "mxfp4"}
    for tensor, decision in done.reading.decisions:
        if decision is not None:
            target = library(libraries.deciding_target, tensor.module, [target for target, _ in listed])
            assert decision.weight.format == words.get(target, "int4"), tensor.module


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["model.layers.0.mlp.gate", "model.layers.1", "down_proj", "mlp.gate"])
def test_what_transformers_keeps_beside_is_what_is_told(library: Any, entry: str) -> None:
    """The list's own reading and the told rest are together what `transformers` leaves unconverted."""
    from precc.importing.readers import fp8

    reading = fp8.read(folder({**BLOCKS, "modules_to_not_convert": [entry]}), read_model("deepseek-v3"))
    quantized = [tensor for tensor, decision in reading.decisions if decision is not None]
    kept = [t for t in quantized if not library(libraries.converted, next(t.modules()), [entry])]
    assert bool(kept) == bool(reading.rules[0].beyond), [t.module for t in kept[:3]]


# --- hostile files -----------------------------------------------------------------------------------

ANYTHING: tuple[Any, ...] = (
    None,
    0,
    3.5,
    True,
    "",
    "x",
    "(",
    "re:(",
    [],
    ["("],
    [1],
    [[]],
    {},
    {"a": 1},
    {"a": {"b": []}},
)

CONFIGS = (
    {**BLOCKS, "modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0", "kv_cache_quant_algo": "FP8"},
    {**NVFP4, "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
    {**NVFP4, "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0": {"quant_algo": "FP8"}}},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    groups(INT4, {**FLOAT8, "strategy": "token", "dynamic": True}),
)


def mangled(content: Any) -> Iterator[Any]:
    """The content with each of its values replaced by anything, at any depth."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        for other in ANYTHING:
            yield {**content, key: other}
        for inner in mangled(value):
            yield {**content, key: inner}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config)[:40])
def test_a_mangled_configuration_is_a_policy_or_one_clear_refusal(config: dict[str, Any]) -> None:
    """Whatever stands where a name, a number or an object is due; the model is small, so that all are tried."""
    from precc.importing.detection import find_reader
    from precc.importing.wanted import wanted

    graph, refused = read_model("qwen3-0.6b"), list[str]()
    for changed in mangled(config):
        source = folder(changed)
        try:
            reading = find_reader(source).read(source, graph)
            assert len(wanted(reading, graph)) >= len(graph.tensors)
        except Unimportable as problem:
            refused += [finding.code for finding in problem.findings]
    assert len(refused) > 10
    assert set(refused) <= {"P901", "P902"}
