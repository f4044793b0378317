"""The artifacts as SGLang opens them: JSON, YAML, the environment. Anything malformed is one clear refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precc_sglang.environment import VARIABLES, shell_settings
from precc_sglang.refusal import unreadable

CONFIG_PATH = "sglang/quantization_config.json"
LEGACY_PATH = "sglang/hf_quant_config.json"
SERVER_PATH = "sglang/server.yaml"
SHELL_PATH = "sglang/env.sh"
ENVIRONMENT_PATH = "sglang/env.json"


@dataclass(frozen=True)
class Files:
    """What a server is started with: both configs, its arguments (by their names in Python), its environment."""

    config: dict[str, Any] | None
    legacy: dict[str, Any] | None
    arguments: dict[str, Any]
    variables: dict[str, str]

    def on(self, name: str) -> bool:
        """Whether a variable is on for FlashInfer, which takes `1` and nothing else."""
        return self.variables.get(name) == "1"

    def truthy(self, name: str) -> bool:
        """Whether a variable is on for SGLang."""
        return self.variables.get(name, "").lower() in ("1", "true", "yes", "y", "on")


def open_files(artifacts: Mapping[str, str]) -> Files:
    """This parses the five artifacts. Raises Unsupported."""
    config = _object(artifacts, CONFIG_PATH)
    legacy = _object(artifacts, LEGACY_PATH) if LEGACY_PATH in artifacts else None
    arguments = {_field(str(name)): value for name, value in _arguments(artifacts).items()}
    return Files(config, legacy, arguments, _variables(artifacts))


_OTHER_NAMES = {"expert_parallel_size": "ep_size", "ep": "ep_size", "fp8_gemm_runner_backend": "fp8_gemm_backend"}


def _field(name: str) -> str:
    name = name.replace("-", "_")
    return _OTHER_NAMES.get(name, name)


def _text(artifacts: Mapping[str, str], path: str) -> str:
    text = artifacts.get(path)
    if text is None:
        raise unreadable(f"{path} is missing", "compile again; every artifact of a target belongs together")
    return text


def _object(artifacts: Mapping[str, str], path: str) -> dict[str, Any] | None:
    try:
        shown = json.loads(_text(artifacts, path))
    except ValueError as problem:
        raise unreadable(f"{path} is not JSON: {problem}") from None
    if shown is not None and not isinstance(shown, dict):
        raise unreadable(f"{path} holds neither an object nor null")
    return shown


def _arguments(artifacts: Mapping[str, str]) -> dict[Any, Any]:
    import yaml

    text = _text(artifacts, SERVER_PATH)
    try:
        shown = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise unreadable(f"{SERVER_PATH} is not YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(shown, dict):
        raise unreadable(f"{SERVER_PATH} is no mapping of argument names to values")
    return shown


def _variables(artifacts: Mapping[str, str]) -> dict[str, str]:
    facts = _object(artifacts, ENVIRONMENT_PATH) or {}
    given, removed = facts.get("set"), facts.get("unset")
    if not isinstance(given, dict) or not isinstance(removed, list):
        raise unreadable(f"{ENVIRONMENT_PATH} does not say what is `set` and what is `unset`")
    state: dict[str, str | None] = {name: str(value) for name, value in given.items()}
    state.update(dict.fromkeys(map(str, removed)))
    silent = [name for name in VARIABLES if name not in state]
    if silent:
        raise unreadable(
            f"{ENVIRONMENT_PATH} neither sets nor unsets {silent[0]}: the value of the launching shell would decide",
            "compile again, or add the variable to `unset`",
        )
    sourced = shell_settings(_text(artifacts, SHELL_PATH))
    apart = next((name for name in sorted({*state, *sourced}) if _differ(name, state, sourced)), None)
    if apart is not None:
        raise unreadable(f"{SHELL_PATH} and {ENVIRONMENT_PATH} differ about {apart}", "compile again")
    return {name: value for name, value in state.items() if value is not None}


def _differ(name: str, state: dict[str, str | None], sourced: dict[str, str | None]) -> bool:
    return name not in state or name not in sourced or state[name] != sourced[name]
