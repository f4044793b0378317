"""A launch line of Megatron, and the environment that it starts in, against what the contract needs.

Both sides are read in one way: `_in_force` is what Megatron makes of a list of words, of `megatron.args` as of a user's
own line, with its defaults (of a repeated argument the last counts; nothing may be abbreviated). Nothing is started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence

from precc.backend import Attestation, installed_versions, variable_findings
from precc.contract import Contract
from precc.diagnostics import Diagnostic, error
from precc_te.emission import ARGUMENTS, ENV_JSON, ENV_SHELL, emit
from precc_te.environment import BACKWARD, RECIPE_VARIABLES
from precc_te.launch_layout import check_layout
from precc_te.recipe_file import RECIPE_FILE, check_recipes
from precc_te.rules.p702_forbidden_arguments import check_arguments

CODE = "P511"

SCRIPTS = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_hybrid.py", "pretrain_vlm.py", "with_stage_recipe.sh")
"""Megatron's own entry points, and the wrapper that a compile writes."""

MARKS: tuple[str, ...] = (
    "--transformer-impl",
    "--te-precision-config-file",
    "--fp8-format",
    "--fp8-recipe",
    "--fp4-format",
    "--fp4-recipe",
    "--first-last-layers-bf16",
    "--num-layers-at-start-in-bf16",
    "--num-layers-at-end-in-bf16",
    "--fp8-param-gather",
    "--fp4-param-gather",
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--use-mcore-models",
)
"""Arguments that only Megatron has: launchers of other names pass them on."""

SWITCHES: dict[str, str] = {
    "--bf16": "without it Megatron trains in FP32",
    "--fp16": "it trains in FP16 instead of BF16",
    "--first-last-layers-bf16": "it keeps whole first and last layers in BF16",
}
DEFAULTS: dict[str, str] = {
    "--transformer-impl": "transformer_engine",
    "--fp8-format": "",
    "--fp8-recipe": "delayed",
    "--fp4-format": "",
    "--fp4-recipe": "nvfp4",
    "--num-layers-at-start-in-bf16": "1",
    "--num-layers-at-end-in-bf16": "1",
}
"""Megatron's arguments of precision that take a value, and what it assumes; empty for none."""

WHY: dict[str, str] = {
    **SWITCHES,
    "--transformer-impl": "only TransformerEngine's layers have recipes",
    "--fp8-format": "it is the engine-wide mode that every layer outside the recipes runs in",
    "--fp8-recipe": "it is the engine-wide recipe",
    "--fp4-format": "it is the engine-wide mode, which decides padding and which layers a recipe reaches",
    "--fp4-recipe": "it is the engine-wide recipe",
    "--num-layers-at-start-in-bf16": "those layers stay in BF16",
    "--num-layers-at-end-in-bf16": "those layers stay in BF16",
}

_IDLE_WITHOUT: dict[str, str] = {
    "--fp8-recipe": "--fp8-format",
    "--fp4-recipe": "--fp4-format",
    "--num-layers-at-start-in-bf16": "--first-last-layers-bf16",
    "--num-layers-at-end-in-bf16": "--first-last-layers-bf16",
}
"""Arguments that Megatron ignores unless another is given."""


def launches(arguments: Sequence[str]) -> bool:
    """Whether a line starts Megatron, or a launcher that passes Megatron's arguments on."""
    return any(os.path.basename(word) in SCRIPTS or word.partition("=")[0] in MARKS for word in arguments)


def attest_launch(contract: Contract, arguments: Sequence[str], environment: Mapping[str, str]) -> Attestation:
    """This compares a launch line and its environment with the contract's `te/`: one finding (P511) a difference.

    Arguments under which Megatron would not run the contract at all are P702. Raises Unsupported for a contract that
    the engine cannot express.
    """
    emitted = {artifact.path: artifact.text for artifact in emit(contract)}
    facts = json.loads(emitted[ENV_JSON])
    wanted = emitted[ARGUMENTS].split()
    findings = (
        *_differing_arguments(wanted, arguments),
        *check_arguments(contract, arguments),
        *check_recipes(contract, emitted, values_of(arguments).get(RECIPE_FILE), arguments, environment),
        *check_layout(contract, emitted, values_of(arguments)),
        *variable_findings(facts, environment, ENV_SHELL, _WHY_VARIABLE, _SWITCHES),
    )
    compared = len(SWITCHES) + len(DEFAULTS) + 1 + len(facts["forbidden_arguments"])
    compared += len(facts["set"]) + len(facts["unset"])
    engines = installed_versions({"megatron_core": "megatron-core", "te": "transformer-engine"})
    return Attestation("te", contract.digest, engines, compared, findings)


_SWITCHES = "it is a switch of precision for the whole process"

_WHY_VARIABLE: dict[str, str] = {
    **dict.fromkeys(RECIPE_VARIABLES, "TransformerEngine reads it once, at import, for every recipe"),
    BACKWARD: "it decides the backward pass of every recipe in the process",
}


def values_of(words: Sequence[str]) -> dict[str, str]:
    """What Megatron reads of a line: argument → value, empty for a switch."""
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            following = words[number + 1] if number + 1 < len(words) else ""
            found[name] = value if equals else "" if following.startswith("--") else following
    return found


def _in_force(words: Sequence[str]) -> dict[str, str]:
    """Each argument of precision with the value that Megatron goes by; empty where it ignores it, or has none."""
    found = _assumed(values_of(words))
    return {name: value if found[_IDLE_WITHOUT.get(name, name)] else "" for name, value in found.items()}


def _assumed(given: Mapping[str, str]) -> dict[str, str]:
    switches = {name: "given" if name in given else "" for name in SWITCHES}
    return switches | {name: given.get(name, default) for name, default in DEFAULTS.items()}


def _differing_arguments(wanted: Sequence[str], words: Sequence[str]) -> Iterator[Diagnostic]:
    """One finding an argument. What the contract leaves idle is not looked at: the argument that wakes it is."""
    given = values_of(words)
    there = _assumed(given)
    for name, needed in _in_force(wanted).items():
        if there[name] != needed and (needed or name not in _IDLE_WITHOUT):
            yield _argument(name, needed, given.get(name))


def _argument(name: str, needed: str, value: str | None) -> Diagnostic:
    """The finding about one argument: `needed` is empty where the contract has none, `value` None where the line."""
    if not needed:
        message = f"the line says {name} {value}".rstrip() + f"; this contract has none: {WHY[name]}"
        return error(CODE, message, help=f"leave {name} out")
    words = name if name in SWITCHES else f"{name} {needed}"
    return error(CODE, f"{_said(name, value)}; the contract needs {words}: {WHY[name]}", help=f"say {words}")


def _said(name: str, value: str | None) -> str:
    if value is not None:
        return f"the line says {name} {value}".rstrip()
    default = DEFAULTS.get(name)
    return f"{name} is missing" + (f" (Megatron assumes {default})" if default else "")
