"""What is written for a server: whole files of two policies, and what each file must be by itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from counting import calls
from rollout import engine as real
from rollout.support import (
    BLOCKS,
    CHANNELS,
    CONFIG,
    ENVIRONMENT,
    FP8_CACHE,
    INTEGERS,
    LEGACY,
    MIXED,
    MIXED_WITHOUT_FP4,
    MXFP8,
    POLICIES,
    SERVER,
    SHELL,
    TENSORS,
    TWO_LINES,
    UNQUANTIZED,
    compiled,
    config_of,
    emitted,
)

from precc.contract import Contract
from precc_sglang import backend
from precc_sglang.environment import VARIABLES
from precc_sglang.reading.arguments import FORBIDDEN, HARMLESS, WRITTEN

GOLDEN = Path(__file__).parent / "golden"

GOLDENS = {
    "two_lines_qwen3-30b-a3b": (TWO_LINES, "qwen3-30b-a3b"),
    "mxfp8_deepseek-v3": ("default: mxfp8\nkv_b_proj: bf16\nlayers[-15%:]: bf16\n", "deepseek-v3"),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_whole_files_are_as_reviewed(name: str) -> None:
    """Every file of a policy, the digest left open. A change here is read in review."""
    contract = compiled(*GOLDENS[name])
    shown = {path: text.replace(contract.digest, "{digest}") for path, text in emitted(contract).items()}
    kept = {f"sglang/{path.name}": path.read_text() for path in (GOLDEN / name).iterdir()}
    assert shown == kept


METHODS: tuple[tuple[str, str, str | None, bool], ...] = (
    (MXFP8, "mxfp8", None, False),
    (BLOCKS, "fp8", None, False),
    (TENSORS, "modelopt", "FP8", True),
    (CHANNELS, "compressed-tensors", None, False),
    (TWO_LINES, "modelopt", "NVFP4", True),
    ("@routed_experts: weight nvfp4, train bf16\n", "modelopt", "W4A16_NVFP4", True),
    (MIXED, "modelopt_mixed", "MIXED_PRECISION", True),
    (MIXED_WITHOUT_FP4, "modelopt_mixed", "MIXED_PRECISION", True),
    (INTEGERS, "compressed-tensors", None, False),
)


@pytest.mark.parametrize("policy, method, algo, has_legacy", METHODS)
def test_the_method_follows_from_the_formats(policy: str, method: str, algo: str | None, has_legacy: bool) -> None:
    """One method for a contract; ModelOpt's have the legacy file too, with the same decisions."""
    artifacts = emitted(compiled(policy, "qwen3-30b-a3b"))
    config = json.loads(artifacts[CONFIG])
    assert (config["quant_method"], config.get("quant_algo")) == (method, algo)
    assert (LEGACY in artifacts) == has_legacy


def test_an_unquantized_contract_says_that_no_config_stands_there() -> None:
    """`null`: the checkpoint has no `quantization_config`, and the server is asked for no method."""
    artifacts = emitted(compiled(UNQUANTIZED, "qwen3-30b-a3b"))
    assert json.loads(artifacts[CONFIG]) is None
    assert LEGACY not in artifacts
    assert "quantization" not in yaml.safe_load(artifacts[SERVER])


@pytest.mark.parametrize("policy", POLICIES.values())
def test_the_kv_cache_is_always_stated(policy: str) -> None:
    """In the arguments, and in the config wherever there is one."""
    for cache, dtype, algo in (("bf16", "bf16", None), ("fp8", "fp8_e4m3", "FP8")):
        contract = compiled(f"{policy.replace('kv_cache: bf16', '')}\nkv_cache: {cache}\n", "qwen3-30b-a3b")
        assert yaml.safe_load(emitted(contract)[SERVER])["kv-cache-dtype"] == dtype
        config = config_of(contract)
        if config is None:
            continue
        if "kv_cache_quant_algo" in config:
            assert config["kv_cache_quant_algo"] == algo
        if "kv_cache_scheme" in config:
            assert (config["kv_cache_scheme"] is not None) == (cache == "fp8")
        assert {"kv_cache_quant_algo", "kv_cache_scheme"} & set(config)


@pytest.mark.parametrize("policy", [MXFP8, BLOCKS, MIXED, TWO_LINES, CHANNELS])
def test_every_file_carries_the_digest(policy: str) -> None:
    """Each side can say which contract it runs."""
    contract = compiled(policy, "qwen3-30b-a3b")
    assert all(contract.digest in text for text in emitted(contract).values())
    assert config_of(contract)["precc_contract"] == contract.digest
    assert yaml.safe_load(emitted(contract)[SERVER])["weight-version"] == f"0:{contract.digest}"


def test_scales_of_block_fp8_are_settings_of_config_and_kernels() -> None:
    """Powers of two are DeepGEMM's, FP32 FlashInfer's; on Hopper the config says which."""
    pow2 = yaml.safe_load(emitted(compiled(BLOCKS, "qwen3-30b-a3b"))[SERVER])
    assert (pow2["fp8-gemm-backend"], pow2["moe-runner-backend"]) == ("deep_gemm", "deep_gemm")
    wide = compiled("default: fp8_block scales fp32\n", "qwen3-30b-a3b")
    arguments = yaml.safe_load(emitted(wide)[SERVER])
    assert (arguments["fp8-gemm-backend"], arguments["moe-runner-backend"]) == (
        "flashinfer_trtllm",
        "flashinfer_trtllm_routed",
    )
    assert "scale_fmt" not in config_of(wide)
    hopper = compiled(BLOCKS, "qwen3-8b", "gpu=h100")
    assert config_of(hopper)["scale_fmt"] == "ue8m0"
    assert "fp8-gemm-backend" not in yaml.safe_load(emitted(hopper)[SERVER])


def test_the_layout_is_emitted_only_where_it_is_stated() -> None:
    """Sizes that nobody stated are the launcher's business."""
    assert "tp-size" not in yaml.safe_load(emitted(compiled(MXFP8, "deepseek-v3"))[SERVER])
    stated = yaml.safe_load(emitted(compiled(MXFP8, "deepseek-v3", "tp=8 ep=4 dp=2"))[SERVER])
    assert (stated["tp-size"], stated["ep-size"], stated["attn-dp-size"]) == (8, 4, 2)


# --- the environment ---------------------------------------------------------------------------------


def test_per_token_nvfp4_sets_its_variables_and_unsets_the_rest() -> None:
    """Both spellings of exact math, and nothing of four-over-six."""
    facts = json.loads(emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))[ENVIRONMENT])
    assert facts["set"] == {
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION": "1",
        "FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH": "1",
        "TRTLLM_DISABLE_FP4_QUANT_FAST_MATH": "1",
    }
    assert sorted([*facts["set"], *facts["unset"]]) == sorted(VARIABLES)


@pytest.mark.parametrize("words, maximum, mode", [("mae", "1", "MAE"), ("mse max 448", "0", "MSE")])
def test_four_over_six_of_inputs_is_four_variables(words: str, maximum: str, mode: str) -> None:
    """The engine's own defaults are others, so all four are written."""
    policy = f"@routed_experts: weight nvfp4 four_over_six {words}, input nvfp4 per_token four_over_six {words}\n"
    facts = json.loads(emitted(compiled(policy, "qwen3-30b-a3b"))[ENVIRONMENT])["set"]
    assert {name: value for name, value in facts.items() if "4OVER6" in name} == {
        "FLASHINFER_NVFP4_4OVER6": "1",
        "FLASHINFER_NVFP4_4OVER6_E4M3_USE_256": maximum,
        "FLASHINFER_NVFP4_4OVER6_ERR_MODE": mode,
        "FLASHINFER_NVFP4_4OVER6_ERR_USE_FAST_MATH": "0",
    }


def test_sourcing_the_shell_file_sets_and_unsets(tmp_path: Path) -> None:
    """In a strict shell, over a stale environment."""
    artifacts = emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))
    (tmp_path / "env.sh").write_text(artifacts[SHELL])
    stale = dict.fromkeys(VARIABLES, "stale")
    done = subprocess.run(
        ["bash", "-euc", f"source {tmp_path}/env.sh; source {tmp_path}/env.sh; env"],
        env={"PATH": "/usr/bin:/bin", **stale},
        capture_output=True,
        text=True,
        check=True,
    )
    left = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.split("=", 1)[0] in VARIABLES)
    assert left == json.loads(artifacts[ENVIRONMENT])["set"]


# --- cost --------------------------------------------------------------------------------------------


def with_experts(contract: Contract, count: int) -> Contract:
    """The same contract of a model with more experts."""
    entries = tuple(
        replace(e, tensor=replace(e.tensor, experts=range(count))) if e.tensor.experts is not None else e
        for e in contract.entries
    )
    return replace(contract, entries=entries)


@pytest.mark.parametrize("policy", [TWO_LINES, MIXED, MXFP8, INTEGERS])
def test_size_does_not_grow_with_the_number_of_experts(policy: str) -> None:
    """An expert layer is one entry, whatever is in it."""
    sizes = set()
    for count in (256, 2_560, 25_600):
        contract = with_experts(compiled(policy, "qwen3-30b-a3b"), count)
        sizes.add(sum(len(text) for text in emitted(contract).values()))
    assert len(sizes) == 1


def test_work_does_not_grow_with_the_number_of_experts() -> None:
    """Emission and read-back of a hundred times the experts make as many calls."""

    def work(count: int) -> int:
        contract = with_experts(compiled(MIXED, "deepseek-v3"), count)
        return calls(lambda: backend.read_back(contract, emitted(contract)))

    work(256)
    assert work(25_600) == work(256)


# --- SGLang's own parsers ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[..., Any]]:
    """The worker that has SGLang."""
    with real.engine() as call:
        yield call


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*POLICIES.values(), FP8_CACHE])
def test_sglang_parses_the_arguments(engine: Callable[..., Any], policy: str, tmp_path: Path) -> None:
    """Every name and every choice is one of `--config`'s, and means what is written."""
    contract = compiled(policy, "glm-4.5-air", "tp=4 ep=2 dp=2")
    text = emitted(contract)[SERVER]
    (tmp_path / "server.yaml").write_text(text)
    parsed = engine(real.parsed_arguments, str(tmp_path / "server.yaml"))
    fields = {"fp8_gemm_backend": "fp8_gemm_runner_backend"}
    for name, value in yaml.safe_load(text).items():
        key = name.replace("-", "_")
        assert parsed[fields.get(key, key)] == value


@pytest.mark.slow
def test_sglang_knows_its_variables(engine: Callable[..., Any]) -> None:
    """Those of SGLang that it declares centrally are spelled as it spells them."""
    declared = engine(real.known_variables)
    read_elsewhere = {"SGLANG_FORCE_MXFP8_BLOCK_CONVERT"}
    ours = {name for name in VARIABLES if name.startswith("SGLANG_")} - read_elsewhere
    assert ours - declared == set()


@pytest.mark.slow
def test_sglang_knows_the_arguments_that_are_read(engine: Callable[..., Any]) -> None:
    """What is written, what is free beside it, and what is refused with a reason."""
    declared = engine(real.known_arguments)
    assert {*WRITTEN, *HARMLESS, *FORBIDDEN} - declared == set()
