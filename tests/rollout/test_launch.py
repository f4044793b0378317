"""Launch lines of SGLang: the right one passes, and each way to be wrong is one finding with what to write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout import engine as real
from rollout import parser
from rollout.support import (
    CONFIG,
    ENVIRONMENT,
    FP8_CACHE,
    MIXED,
    MXFP8,
    POLICIES,
    SERVER,
    TWO_LINES,
    UNQUANTIZED,
    compiled,
    emitted,
)

from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc_sglang import backend
from precc_sglang.environment import VARIABLES
from precc_sglang.launch import DEFAULTS, HARMLESS_VALUES
from precc_sglang.launch_line import ALIASES, PREFIX, WHOLE, read_line
from precc_sglang.reading.arguments import FORBIDDEN, WRITTEN

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"


@cache
def files(contract: Contract) -> dict[str, str]:
    """The artifacts of a contract, by path."""
    return emitted(contract)


def sourced(contract: Contract) -> dict[str, str]:
    """The environment behind `env.sh`."""
    variables: dict[str, str] = json.loads(files(contract)[ENVIRONMENT])["set"]
    return {"PATH": "/bin", **variables}


def words_of(contract: Contract, prefix: str = "--") -> list[str]:
    """The arguments of `server.yaml` as words."""
    words: list[str] = []
    for name, value in yaml.safe_load(files(contract)[SERVER]).items():
        spelled = "--rollout-num-gpus-per-engine" if (name, prefix) == ("tp-size", PREFIX) else f"{prefix}{name}"
        words += [spelled] if value is True else [spelled, str(value)]
    return words


def server(contract: Contract, *more: str) -> list[str]:
    """A server's line with every argument in it."""
    return ["python", "-m", "sglang.launch_server", "--model-path", "org/model", *words_of(contract), *more]


def attest(contract: Contract, words: Sequence[str], environment: dict[str, str] | None = None) -> list[Diagnostic]:
    """The findings of a line under the right environment, or another."""
    attested = backend.attest_launch(contract, words, sourced(contract) if environment is None else environment)
    assert (attested.target, attested.digest) == ("sglang", contract.digest)
    return list(attested.findings)


def one(findings: Sequence[Diagnostic]) -> tuple[str, str]:
    """Message and help of the only finding."""
    (finding,) = findings
    assert finding.code == "P511"
    return finding.message, finding.help or ""


@pytest.mark.parametrize("policy", POLICIES)
def test_the_emitted_arguments_pass_in_every_form(policy: str, tmp_path: Path) -> None:
    """As words, by `--config`, by `sglang serve`, and passed on by an RL launcher."""
    contract = compiled(POLICIES[policy], QWEN, "tp=8 ep=8")
    file = tmp_path / "server.yaml"
    file.write_text(files(contract)[SERVER])
    for line in (
        server(contract),
        ["python", "-m", "sglang.launch_server", "--config", str(file), "--model-path", "org/model"],
        ["/usr/bin/sglang", "serve", "org/model", "--config", str(file)],
        ["python3", "train.py", "--actor-num-nodes", "1", *words_of(contract, PREFIX)],
    ):
        assert backend.launches(line)
        assert attest(contract, line) == []


@pytest.mark.parametrize("prefix", ["--", PREFIX])
def test_every_emitted_argument_is_missed(prefix: str) -> None:
    """Leaving out any one that SGLang does not assume by itself is one finding that says the words to add."""
    contract = compiled(MIXED, DEEPSEEK, "tp=8 ep=8")
    words = ["sglang", "serve", *words_of(contract)] if prefix == "--" else words_of(contract, PREFIX)
    for name, value in yaml.safe_load(files(contract)[SERVER]).items():
        spelled = "--rollout-num-gpus-per-engine" if (name, prefix) == ("tp-size", PREFIX) else f"{prefix}{name}"
        at = words.index(spelled)
        if str(value) == DEFAULTS.get(name):
            continue
        message, help = one(attest(contract, words[:at] + words[at + 1 + (value is not True) :]))
        assert f"{spelled} is missing" in message
        assert help == f"say {spelled}" + ("" if value is True else f" {value}")


def test_a_missing_kv_cache_dtype_is_told_why() -> None:
    """SGLang would take what the checkpoint, the model or the GPU suggests."""
    contract = compiled(TWO_LINES, QWEN)
    words = server(contract)
    at = words.index("--kv-cache-dtype")
    message, help = one(attest(contract, words[:at] + words[at + 2 :]))
    assert "--kv-cache-dtype is missing (SGLang assumes auto); the contract needs --kv-cache-dtype bf16" in message
    assert help == "say --kv-cache-dtype bf16"
    assert attest(contract, [*words, "--kv-cache-dtype", "bfloat16"]) == []
    assert "fp8_e4m3" in one(attest(contract, [*words, "--kv-cache-dtype=fp8_e4m3"]))[0]
    eight = compiled(FP8_CACHE, QWEN)
    message, _ = one(attest(eight, server(eight, "--kv-cache-dtype", "auto")))
    assert "the line says --kv-cache-dtype auto; the contract needs --kv-cache-dtype fp8_e4m3" in message


def test_another_quantization_is_found() -> None:
    """A method beside the contract's, and any where nothing is quantized."""
    contract = compiled(MXFP8, DEEPSEEK)
    assert "--quantization mxfp8" in one(attest(contract, server(contract, "--quantization", "fp8")))[0]
    plain = compiled(UNQUANTIZED, QWEN)
    message, help = one(attest(plain, server(plain, "--quantization", "fp8")))
    assert "the contract quantizes nothing in the server" in message
    assert help == "leave --quantization out"


def test_expert_backends_that_run_the_format_as_decided_are_free() -> None:
    """Either of those that do; `auto` may choose another."""
    contract = compiled(TWO_LINES, QWEN)
    assert attest(contract, server(contract, "--moe-runner-backend", "flashinfer_trtllm")) == []
    assert "auto" in one(attest(contract, server(contract, "--moe-runner-backend", "auto")))[0]


def test_the_step_of_a_weight_version_is_free() -> None:
    """Its digest is not."""
    contract = compiled(TWO_LINES, QWEN)
    assert attest(contract, server(contract, "--weight-version", f"120:{contract.digest}")) == []
    other = compiled(MXFP8, QWEN).digest
    assert (
        f"the line says --weight-version 0:{other}"
        in one(attest(contract, server(contract, "--weight-version", f"0:{other}")))[0]
    )


@pytest.mark.parametrize("name", FORBIDDEN)
def test_an_argument_that_decides_precision_beside_the_contract_is_found(name: str) -> None:
    """With why; values that decide nothing are free."""
    contract = compiled(TWO_LINES, QWEN)
    message, help = one(attest(contract, server(contract, f"--{name}", "marlin")))
    assert FORBIDDEN[name] in message
    assert help == f"leave --{name} out"
    for value in HARMLESS_VALUES.get(name, ()):
        assert attest(contract, server(contract, f"--{name}", value)) == []


def test_every_variable_is_checked() -> None:
    """A missing one, a contrary one, and a stale one that another run left."""
    contract = compiled(TWO_LINES, QWEN)
    right, words = sourced(contract), server(contract)
    for name in VARIABLES:
        wrong = [{**right, name: "7"}]
        wrong += [{key: value for key, value in right.items() if key != name}] if name in right else []
        for environment in wrong:
            message, help = one(attest(contract, words, environment))
            assert message.startswith(f"{name} is {environment.get(name, 'unset')}; the contract needs")
            assert help == "source out/sglang/env.sh"


CONFIGS = {
    "joined": (["--config={file}"], "server.yaml", "dtype: bfloat16", "SGLang does not read the file of `--config="),
    "twice": (["--config", "{file}", "--config", "{file}"], "server.yaml", "{}", "SGLang takes one `--config FILE`"),
    "dangling": (["--config"], "server.yaml", "{}", "SGLang takes one `--config FILE`"),
    "another kind": (["--config", "{file}"], "server.json", "{}", "SGLang reads only a `.yaml` or `.yml`"),
    "no mapping": (["--config", "{file}"], "server.yaml", "- dtype", "is no mapping of argument names to values"),
    "no YAML": (["--config", "{file}"], "server.yaml", "a: [", "is not YAML"),
    "elsewhere": (["--config", "/nowhere/server.yaml"], "server.yaml", "{}", "cannot be read: No such file"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_config_that_sglang_would_not_read_is_found(what: str, tmp_path: Path) -> None:
    """Each is one finding, beside the arguments that are missing with it."""
    words, name, text, message = CONFIGS[what]
    (tmp_path / name).write_text(text)
    contract = compiled(TWO_LINES, QWEN)
    given = [word.format(file=tmp_path / name) for word in words]
    first, *missing = attest(contract, ["python", "-m", "sglang.launch_server", *given])
    assert message in first.message
    assert any("--kv-cache-dtype is missing" in finding.message for finding in missing)


def test_the_line_wins_over_the_config_file(tmp_path: Path) -> None:
    """Wherever `--config` stands."""
    contract = compiled(TWO_LINES, QWEN)
    (tmp_path / "server.yaml").write_text(files(contract)[SERVER])
    config = ["--config", str(tmp_path / "server.yaml")]
    for line in (["--dtype", "half", *config], [*config, "--dtype", "half"]):
        assert "the line says --dtype half" in one(attest(contract, ["sglang", "serve", "org/model", *line]))[0]


def test_an_rl_launchers_own_deployment_file_is_not_passed_over() -> None:
    """It can override every argument of an engine."""
    contract = compiled(TWO_LINES, QWEN)
    line = [*words_of(contract, PREFIX), "--sglang-config", "engines.yaml", "--sglang-router-ip", "::1"]
    assert "can override every argument of an engine" in one(attest(contract, line))[0]
    assert not backend.launches(["python", "router.py", "--sglang-router-ip", "::1"])


def test_a_checkpoint_at_hand_is_of_the_contract(tmp_path: Path) -> None:
    """Its `quantization_config` is compared; one that is elsewhere is not looked for."""
    contract, other = compiled(TWO_LINES, QWEN), compiled(MXFP8, QWEN)
    words = server(contract, "--model-path", str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"quantization_config": json.loads(files(contract)[CONFIG])}))
    assert attest(contract, words) == []
    assert attest(contract, [*words_of(contract, PREFIX), "--hf-checkpoint", str(tmp_path)]) == []
    config.write_text(json.dumps({"quantization_config": json.loads(files(other)[CONFIG])}))
    assert f"is of contract {other.digest[:12]}" in one(attest(contract, words))[0]
    assert (
        f"is of contract {other.digest[:12]}"
        in one(attest(contract, [*words_of(contract, PREFIX), "--hf-checkpoint", str(tmp_path)]))[0]
    )
    config.write_text("{}")
    assert "there is no `quantization_config`" in one(attest(contract, words))[0]
    config.write_text("{")
    assert "is not readable JSON" in one(attest(contract, words))[0]


# --- what SGLang itself makes of a line --------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[..., Any]]:
    """The worker that has SGLang."""
    with real.engine() as call:
        yield call


@pytest.mark.slow
def test_names_aliases_and_beginnings_are_sglangs(engine: Callable[..., Any]) -> None:
    """Every spelling of every argument of interest, and every option whose name is the beginning of one."""
    found = engine(parser.spellings, [*WRITTEN, *FORBIDDEN])
    aliases = {
        spelling.removeprefix("--"): name
        for name, (own, _) in found.items()
        for spelling in own
        if spelling != f"--{name}" and not spelling.startswith("--no-")
    }
    assert aliases == ALIASES
    begun = {option for _, options in found.values() for option in options}
    assert begun - {f"--{name}" for name in found} == set(WHOLE)


LINES = (
    "--tp 4 --ep 2 --dtype bfloat16",
    "--tensor-parallel-size=4 --dty half --quantization fp8",
    "--config FILE --kv-cache-dtype auto --pp-size 2",
    "--kv-cache-dtype bf16 --config FILE --disable-shared",
    "--config=FILE --weight-version 3:abc",
    "--quantization mxfp8 --quantization modelopt --attn-dp 2 --tp-size 2 --enable-dp-attention",
    "--config FILE --config FILE",
)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_as_sglang_reads_it(engine: Callable[..., Any], line: str, tmp_path: Path) -> None:
    """Beginnings of names, repeated arguments, the config file in front; where SGLang stops, nothing is claimed."""
    file = tmp_path / "server.yaml"
    file.write_text("dtype: float16\nkv-cache-dtype: fp8_e4m3\ndisable-shared-experts-fusion: false\ntp-size: 8\n")
    words = ["--model-path", "dummy", *line.replace("FILE", str(file)).split()]
    theirs = engine(parser.parsed, words, list(WRITTEN))
    ours = read_line(["sglang", "serve", *words])
    if isinstance(theirs, str):
        assert ours.problems
        return
    for name in WRITTEN:
        value = theirs[name]
        if name in ours.values:
            assert ours.values[name] == ("" if value is True else str(value))
        else:
            assert str(value) == DEFAULTS.get(
                name, {"quantization": "None", "weight-version": "default"}.get(name, "False")
            )
