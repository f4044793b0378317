"""Artifacts that were changed, or do not belong together, are found out; those that were emitted agree everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout.support import (
    BLOCKS,
    CHANNELS,
    CONFIG,
    ENVIRONMENT,
    FP8_CACHE,
    LEGACY,
    MIXED,
    MIXED_WITHOUT_FP4,
    MTP,
    MXFP8,
    POLICIES,
    SERVER,
    SHELL,
    SMALL,
    TENSORS,
    TWO_LINES,
    bound,
    compiled,
    config_of,
    differing,
    edited,
    emitted,
    errors,
    refusal,
    served,
    small_model,
)

from precc.backend import Unsupported
from precc.contract import Contract
from precc.formats import BF16, Decision
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind

MODELS = (
    "qwen3-30b-a3b",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v2-lite",
    "kimi-k2",
    "glm-4.5-air",
    "mixtral-8x7b",
    "llama-3.1-8b",
    "qwen3-8b",
    "qwen2.5-7b",
)

Artifacts = dict[str, str]


# --- what was emitted --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", [*POLICIES.values(), FP8_CACHE, MTP.replace("kv_b_proj", "kv_b_proj?")])
def test_what_is_emitted_reads_back_as_decided(policy: str, model: str) -> None:
    """Every policy on every family, unless a rule refuses it."""
    contract = compiled(policy.replace("(@mtp)", "@mtp?").replace("in @mtp", "in @mtp?"), model)
    if not errors(contract):
        assert differing(contract, emitted(contract)) == []


@pytest.mark.parametrize("path", sorted(Path("policies").glob("*.prec")), ids=lambda path: path.stem)
def test_ready_policies_read_back_as_decided(path: Path) -> None:
    """Every shipped policy on every family: it agrees everywhere, or a rule says why it cannot be served."""
    agreed = 0
    for model in MODELS:
        contract = compiled(path.read_text(), model)
        if not errors(contract):
            assert differing(contract, emitted(contract)) == [], model
            agreed += 1
    assert agreed or path.stem == "nvfp4_pretraining"


PALETTES: dict[str, str] = {
    "mxfp8": "mxfp8",
    "fp8_block": "fp8_block",
    "fp8_tensor": "weight fp8 per_tensor, input fp8 per_tensor static, train bf16",
    "fp8_channel": "weight fp8 per_channel, input fp8 per_token, train bf16",
    "nvfp4_weights": "weight nvfp4, train bf16",
    "int4": "weight int4 group 128, train bf16",
}


def decided_as(word: str) -> Decision:
    """The decision that a spec of the palette means."""
    entries = compiled(f"o_proj: {PALETTES[word]}\n", "qwen3-8b").entries
    return next(entry.decision for entry in entries if entry.decision.is_quantized)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Contract]:
    """An unquantized contract for each small model."""
    made = {name: bound("default: bf16", small_model(name, tmp_path_factory.mktemp(name))) for name in SMALL}
    return made.__getitem__


@given(st.data())
def test_any_choice_of_modules_reads_back_or_is_refused(small: Callable[[str], Contract], data: st.DataObject) -> None:
    """Whatever modules are quantized, in one format or two: the lists are exact, or emission says what it cannot."""
    name = data.draw(st.sampled_from(sorted(SMALL)))
    words = data.draw(st.lists(st.sampled_from(sorted(PALETTES)), min_size=1, max_size=2, unique=True))
    contract = _painted(small(name), [BF16, *map(decided_as, words)], data)
    if errors(contract):
        return
    artifacts, codes = emitted_or_refused(contract)
    assert codes in ([], ["P701"])
    assert codes or differing(contract, artifacts) == []


def emitted_or_refused(contract: Contract) -> tuple[Artifacts, list[str]]:
    """The artifacts, or the codes of the refusal."""
    try:
        return emitted(contract), []
    except Unsupported as refused:
        return {}, [finding.code for finding in refused.findings]


def _painted(contract: Contract, palette: list[Decision], data: st.DataObject) -> Contract:
    """A contract with a decision drawn for each module that can be quantized."""
    choice = choice_of(contract)
    assert choice is not None
    drawn = {
        entry.tensor: decision
        for module, entries in choice.modules.items()
        if module.kind in (Kind.LINEAR, Kind.EXPERTS)
        for decision in [data.draw(st.sampled_from(palette))]
        for entry in entries
    }
    entries = tuple(replace(e, decision=drawn.get(e.tensor, e.decision)) for e in contract.entries)
    return replace(contract, entries=entries)


# --- configs that were changed -----------------------------------------------------------------------


def test_a_dropped_exclusion_is_found() -> None:
    """Without its entry, a layer's experts are quantized."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    listed = [entry for entry in config_of(contract)["ignore"] if entry != "model.layers.40.mlp.experts"]
    artifacts = emitted(contract)
    del artifacts[LEGACY]
    wrong = differing(contract, edited(artifacts, CONFIG, ignore=listed))
    assert wrong == [f"model.layers.40.mlp.experts.{{0..127}}.{part}_proj.weight" for part in ("gate", "up", "down")]


@pytest.mark.parametrize(
    "policy, model", [(MXFP8, "deepseek-v3"), (TWO_LINES, "qwen3-30b-a3b"), (CHANNELS, "glm-4.5-air")]
)
def test_every_entry_of_a_list_is_needed(policy: str, model: str) -> None:
    """Dropping any entry that a module asks about changes a tensor, or makes the engine refuse: the list is minimal."""
    contract = compiled(policy, model)
    artifacts = emitted(contract)
    artifacts.pop(LEGACY, None)
    key = "ignore" if "ignore" in config_of(contract) else "modules_to_not_convert"
    listed = config_of(contract)[key]
    never_asked = ("lm_head", "mlp.gate", "head", r"lm_head", "gate(")
    for entry in listed:
        changed = edited(artifacts, CONFIG, **{key: [other for other in listed if other != entry]})
        unasked = any(word in entry.replace("\\", "") for word in never_asked)
        assert unasked or differing(contract, changed), entry


def test_a_glob_in_an_mxfp8_list_is_found() -> None:
    """The FP8 configs have no globs: the entry matches nothing."""
    contract = compiled(MXFP8, "deepseek-v3")
    listed = [entry.replace("layers.51", "layers.51*") for entry in config_of(contract)["modules_to_not_convert"]]
    wrong = differing(contract, edited(emitted(contract), CONFIG, modules_to_not_convert=listed))
    assert wrong
    assert all("layers.51." in name for name in wrong)


def test_one_layers_latent_projection_in_a_modelopt_list_leaks_to_all() -> None:
    """A ModelOpt entry that ends in `kv_b_proj` excludes every layer's."""
    contract = compiled(TENSORS.replace("@mla?, ", ""), "deepseek-v2-lite")
    artifacts = emitted(contract)
    del artifacts[LEGACY]
    leak = [*config_of(contract)["ignore"], "model.layers.5.self_attn.kv_b_proj"]
    wrong = differing(contract, edited(artifacts, CONFIG, ignore=leak))
    assert len(wrong) == 26
    assert all("kv_b_proj" in name for name in wrong)


def test_a_single_layers_latent_projection_is_emitted_without_the_leak() -> None:
    """One `kv_b_proj` alone needs an entry that ends in something else."""
    contract = compiled(TENSORS.replace("@mla?, ", "kv_b_proj in layers[5], "), "deepseek-v2-lite")
    assert "model.layers.5.self_attn.kv_b_pro*" in config_of(contract)["ignore"]
    assert differing(contract, emitted(contract)) == []


def test_an_exclusion_of_one_member_is_refused_as_the_engine_refuses_it() -> None:
    """q without k and v: SGLang does not start."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    listed = [*config_of(contract)["modules_to_not_convert"], "model.layers.3.self_attn.q_proj"]
    code, message = refusal(contract, edited(emitted(contract), CONFIG, modules_to_not_convert=listed))
    assert code == "P201"
    assert "model.layers.3.self_attn.qkv_proj" in message


def test_one_experts_entry_takes_the_whole_layer_out_of_mxfp8() -> None:
    """A list entry below the expert layer is taken for the layer itself."""
    contract = compiled("default: mxfp8\n", "qwen3-30b-a3b")
    listed = [*config_of(contract)["modules_to_not_convert"], "model.layers.7.mlp.experts.0.up_proj"]
    wrong = differing(contract, edited(emitted(contract), CONFIG, modules_to_not_convert=listed))
    assert len(wrong) == 3


def test_a_mix_under_the_detected_name_is_found() -> None:
    """Named `modelopt`, a mix without NVFP4 is taken for `w4afp8`; the server's argument refuses to start with it."""
    contract = compiled(MIXED_WITHOUT_FP4, "qwen3-30b-a3b")
    artifacts = edited(emitted(contract), CONFIG, quant_method="modelopt")
    assert refusal(contract, artifacts)[0] == "P502"
    artifacts[SERVER] = "".join(line for line in artifacts[SERVER].splitlines(True) if "quantization" not in line)
    assert served(contract, artifacts, "model.layers.0.mlp.experts.{0..127}.up_proj").method.startswith("int4")


def test_mxfp8_under_modelopt_ignores_globs() -> None:
    """ModelOpt's MXFP8 is read by the FP8 config, whose lists know no globs."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    facts = {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["model.layers.4*"]}
    artifacts[CONFIG] = json.dumps({**facts, "precc_contract": contract.digest})
    wrong = differing(contract, artifacts)
    assert any("layers.40." in name for name in wrong)


def test_a_changed_method_is_found() -> None:
    """Another method under the same list, with an argument that allows it."""
    contract = compiled(BLOCKS, "qwen3-30b-a3b")
    artifacts = edited(emitted(contract), CONFIG, quant_method="mxfp8")
    artifacts[SERVER] = artifacts[SERVER].replace("quantization: fp8", "quantization: mxfp8")
    assert differing(contract, artifacts)


def test_an_unknown_algorithm_in_a_mix_is_served_unquantized() -> None:
    """SGLang says nothing of it; the read-back does."""
    contract = compiled(MIXED, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    del artifacts[LEGACY]
    layers = config_of(contract)["quantized_layers"]
    layers["model.layers.9.self_attn.qkv_proj"]["quant_algo"] = "INT4_AWQ"
    wrong = differing(contract, edited(artifacts, CONFIG, quantized_layers=layers))
    assert wrong == [f"model.layers.9.self_attn.{part}_proj.weight" for part in "qkv"]


def test_a_missing_member_in_a_mix_is_no_objection() -> None:
    """Keys for k and v alone quantize q too."""
    contract = compiled(MIXED, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    del artifacts[LEGACY]
    layers = config_of(contract)["quantized_layers"]
    facts = layers.pop("model.layers.9.self_attn.qkv_proj")
    layers["model.layers.9.self_attn.k_proj"] = facts
    assert differing(contract, edited(artifacts, CONFIG, quantized_layers=layers)) == []


def test_an_incomplete_mix_is_read_from_the_legacy_file() -> None:
    """Without a KV cache key, `config.json` is not believed."""
    contract = compiled(MIXED, "qwen3-30b-a3b")
    artifacts = edited(emitted(contract), CONFIG, kv_cache_quant_algo=None, kv_cache_scheme=None)
    assert differing(contract, artifacts) == []
    del artifacts[LEGACY]
    assert refusal(contract, artifacts)[0] == "P502"


def test_two_configs_that_differ_are_refused() -> None:
    """Each is read by some tool."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    assert refusal(contract, edited(emitted(contract), CONFIG, ignore=["lm_head"]))[0] == "P502"


@pytest.mark.parametrize("text", ["", "{", "[]", '"fp8"', '{"quant_method": "quark"}', '{"quant_method": "mxfp8"}'])
def test_a_malformed_config_is_one_clear_refusal(text: str) -> None:
    """Neither a traceback nor a guess."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    artifacts = {**emitted(contract), CONFIG: text}
    artifacts[SERVER] = artifacts[SERVER].replace("quantization: mxfp8\n", "")
    assert refusal(contract, artifacts)[0] == "P502"


@pytest.mark.parametrize("path", [CONFIG, SERVER, SHELL, ENVIRONMENT])
def test_a_missing_artifact_is_refused(path: str) -> None:
    """Every file of the target belongs to it."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    artifacts = {name: text for name, text in emitted(contract).items() if name != path}
    assert path in refusal(contract, artifacts)[1]


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    """The engine stops at it, too."""
    contract = compiled(CHANNELS, "qwen3-30b-a3b")
    assert refusal(contract, edited(emitted(contract), CONFIG, ignore=["re:("]))[0] == "P502"
