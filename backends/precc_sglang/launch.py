"""A launch line of SGLang, and the environment that it starts in, against what the contract needs.

Nothing is started, and of the checkpoint only its `config.json` is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from precc.backend import COMPILED, Attestation, Unsupported, installed_versions, variable_findings
from precc.contract import Contract
from precc.diagnostics import Diagnostic, error
from precc_sglang.config import DIGEST_KEY
from precc_sglang.emission import artifacts, unknown_architecture
from precc_sglang.environment import EXACT_MATH, PER_TOKEN
from precc_sglang.launch_line import ENGINE_SIZE, PREFIX, Line, launches, read_line
from precc_sglang.methods import Choice, choice_of
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, SHELL_PATH
from precc_sglang.reading.arguments import FORBIDDEN, FORBIDDEN_ONCE, WRITTEN
from precc_sglang.server import BLOCK_BACKENDS, UNFUSED, allowed_runners, arguments, block_scales
from precc_sglang.versions import is_blackwell

__all__ = ["attest_launch", "launches"]

CODE = "P511"

DEFAULTS: Mapping[str, str] = {
    "dtype": "auto",
    "kv-cache-dtype": "auto",
    "moe-runner-backend": "auto",
    "fp8-gemm-backend": "auto",
    **dict.fromkeys(("tp-size", "pp-size", "ep-size", "attn-dp-size", "dp-size"), "1"),
}
"""What SGLang assumes of the arguments that precc writes."""

SAME: Mapping[str, str] = {"bfloat16": "bf16"}
"""Two words of one meaning."""

WHY: Mapping[str, str] = {
    "dtype": "unquantized weights and activations would have the type that the checkpoint names",
    "kv-cache-dtype": "the KV cache would have the type that the checkpoint, the model or the GPU suggests",
    "quantization": "the checkpoint would be read by the method that SGLang detects, or by none",
    "moe-runner-backend": "another expert backend has other kernels for the format of experts",
    "fp8-gemm-backend": "another backend has block scales of another type",
    UNFUSED: "shared experts would be folded into the routed ones and take their format",
    "weight-version": "the server could not say which contract it serves",
}

_SIZE = "a layout decides which rank scales what; the artifacts are for the one of the policy's `rollout:` line"

HARMLESS_VALUES: Mapping[str, tuple[str, ...]] = {
    "load-format": ("auto", "safetensors", "pt", "npcache", "dummy", "sharded_state", "fastsafetensors", "remote"),
    "json-model-override-args": ("{}",),
    "flashinfer-mxfp4-moe-precision": ("default",),
    "fp4-gemm-backend": (
        "auto",
        "flashinfer_cudnn",
        "flashinfer_cutedsl",
        "flashinfer_cutlass",
        "flashinfer_trtllm",
    ),
}
"""Values with which an argument that could decide precision does not."""

_VARIABLES: Mapping[str, str] = {
    PER_TOKEN: "it decides whether NVFP4 inputs are scaled per token",
    **dict.fromkeys(EXACT_MATH, "without it NVFP4 scales are computed with approximate division"),
}

_COMPUTES = "it changes what the server computes, or the format that it computes in"


def attest_launch(contract: Contract, words: Sequence[str], environment: Mapping[str, str]) -> Attestation:
    """This compares a launch line and its environment with the contract's `sglang/`: one finding (P511) a difference.

    Raises Unsupported for a contract that the engine cannot express.
    """
    choice = choice_of(contract)
    if choice is None:
        raise Unsupported(unknown_architecture(contract))
    emitted = {artifact.path: artifact.text for artifact in artifacts(contract)}
    facts, line = json.loads(emitted[ENVIRONMENT_PATH]), read_line(words)
    findings = (
        *(error(CODE, problem, help=help) for problem, help in line.problems),
        *_differing_arguments(contract, choice, line),
        *_contrary_arguments(line, dict(arguments(contract, choice))),
        *_checkpoint(line, json.loads(emitted[CONFIG_PATH]), contract.digest),
        *variable_findings(facts, environment, SHELL_PATH, _VARIABLES, _COMPUTES),
    )
    compared = len(WRITTEN) + len(FORBIDDEN) + len(facts["set"]) + len(facts["unset"])
    engines = installed_versions({"sglang": "sglang", "flashinfer": "flashinfer-python"})
    return Attestation("sglang", contract.digest, engines, compared, findings)


SIZES: Mapping[str, str] = {"tp-size": "tp", "ep-size": "ep", "dp-size": "dp", "attn-dp-size": "dp"}
"""SGLang's parallel sizes by the keys of `rollout:`."""


def laid_out(contract: Contract, words: Sequence[str]) -> Contract:
    """The contract under the sizes that a line gives; those that it does not give stay."""
    given = read_line(words).values
    sizes = {key: given[name] for name, key in SIZES.items() if given.get(name, "").isdecimal() and int(given[name])}
    return replace(contract, rollout=contract.rollout.with_settings(sizes))


# --- arguments ---------------------------------------------------------------------------------------


def _differing_arguments(contract: Contract, choice: Choice, line: Line) -> Iterator[Diagnostic]:
    """What is missing, or has another value; and a method where the contract has none."""
    needed = dict(arguments(contract, choice))
    for name, value in needed.items():
        if not _agrees(name, value, line.values, contract, choice):
            yield _argument(line, name, _word(value))
    if "quantization" not in needed and "quantization" in line.values:
        given = f"{line.prefix}quantization {line.values['quantization']}"
        message = f"the line says {given}; the contract quantizes nothing in the server"
        yield error(CODE, message, help=f"leave {line.prefix}quantization out")


def _agrees(name: str, value: str | int | bool, given: Mapping[str, str], contract: Contract, choice: Choice) -> bool:
    if value is True:
        return name in given
    found = given.get(name, DEFAULTS.get(name, ""))
    if name == "weight-version":
        step, _, digest = found.partition(":")
        return step.isdecimal() and digest == contract.digest
    free = FREE.get(name)
    allowed = (str(value),) if free is None else free(contract, choice)
    return allowed is None or SAME.get(found, found) in {SAME.get(word, word) for word in allowed}


def _dense_backends(contract: Contract, _: Choice) -> tuple[str, ...] | None:
    scales = block_scales(contract)
    return BLOCK_BACKENDS[scales[0]][:1] if scales and is_blackwell(contract.rollout) else None


FREE: Mapping[str, Callable[[Contract, Choice], tuple[str, ...] | None]] = {
    "moe-runner-backend": allowed_runners,
    "fp8-gemm-backend": _dense_backends,
}
"""Arguments with several right values; None for any."""


def _argument(line: Line, name: str, value: str) -> Diagnostic:
    needed = f"{_spelled(line, name)} {value}".rstrip()
    why = WHY.get(name, _SIZE)
    return error(CODE, f"{_said(line, name)}; the contract needs {needed}: {why}", help=f"say {needed}")


def _said(line: Line, name: str) -> str:
    spelled = _spelled(line, name)
    if name in line.values:
        return f"the line says {spelled} {line.values[name]}".rstrip()
    default = DEFAULTS.get(name)
    return f"{spelled} is missing" + (f" (SGLang assumes {default})" if default else "")


def _spelled(line: Line, name: str) -> str:
    return ENGINE_SIZE if name == "tp-size" and line.prefix == PREFIX else f"{line.prefix}{name}"


def _word(value: str | int | bool) -> str:
    return "" if value is True else str(value)


def _contrary_arguments(line: Line, needed: Container[str]) -> Iterator[Diagnostic]:
    """Arguments that decide precision beside the contract; those that this one needs are compared."""
    for name, why in {**FORBIDDEN, **FORBIDDEN_ONCE}.items():
        value = line.values.get(name)
        if value is not None and name not in needed and value not in HARMLESS_VALUES.get(name, ()):
            said = f"{line.prefix}{name} {value}".rstrip()
            yield error(
                CODE, f"the line says {said}; the contract has none: {why}", help=f"leave {line.prefix}{name} out"
            )


# --- checkpoint and environment ----------------------------------------------------------------------


def _checkpoint(line: Line, config: object, digest: str) -> Iterator[Diagnostic]:
    """The `quantization_config` of a checkpoint that lies on this machine; one elsewhere is not looked for."""
    path = os.path.join(line.checkpoint or "", "config.json")
    if not line.checkpoint or not os.path.isfile(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            shown = json.load(file)
    except (OSError, ValueError, RecursionError):
        yield error(CODE, f"{path} is not readable JSON", help="name a checkpoint that follows the contract")
        return
    found = shown.get("quantization_config") if isinstance(shown, dict) else None
    if found != config:
        help = f"convert the checkpoint by this contract; its config is {COMPILED}/{CONFIG_PATH}"
        yield error(CODE, f"{path}: {_whose(found, digest)}", help=help)


def _whose(found: object, digest: str) -> str:
    if found is None:
        return "there is no `quantization_config`; the contract needs one"
    named = found.get(DIGEST_KEY) if isinstance(found, dict) else None
    if isinstance(named, str) and named != digest:
        return f"its `quantization_config` is of contract {named[:12]}, this is {digest[:12]}"
    return f"its `quantization_config` is not what contract {digest[:12]} emits"
