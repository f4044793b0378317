"""The artifacts as SGLang opens them: JSON, YAML, the environment. Anything malformed is one clear refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from precc.contract import Contract
from precc.records import record
from precc_sglang.config import EXPERTS_KEY, IN_MXFP4, NVFP4_KEY
from precc_sglang.environment import MODELLED, shell_settings, variables_of
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, LEGACY_PATH, SERVER_PATH, SHELL_PATH
from precc_sglang.reading.arguments import check_arguments
from precc_sglang.reading.belonging import check_digests, named_digests
from precc_sglang.refusal import unreadable
from precc_sglang.server import DRAFT_RUNNER, PRECISION


@record
class Files:
    """What a server is started with: both configs, its arguments, its environment."""

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


def open_files(artifacts: Mapping[str, str], contract: Contract) -> Files:
    """This parses the five artifacts. Raises Unsupported, also for those of another contract or layout."""
    config = _object(artifacts, CONFIG_PATH)
    legacy = _object(artifacts, LEGACY_PATH) if LEGACY_PATH in artifacts else None
    arguments = _arguments(artifacts)
    facts = _object(artifacts, ENVIRONMENT_PATH) or {}
    variables = _variables(artifacts, facts, variables_of(contract.rollout))
    objects = {CONFIG_PATH: config, LEGACY_PATH: legacy, ENVIRONMENT_PATH: facts}
    check_digests(named_digests(artifacts, objects, arguments), contract.digest)
    check_arguments(arguments, contract.rollout, also=_argued(config or {}))
    return Files(config, legacy, arguments, variables)


def _argued(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that some configs need: kernels of the draft model's own, what experts in MXFP4 multiply with."""
    drafts, experts = NVFP4_KEY in config, config.get(EXPERTS_KEY) == IN_MXFP4
    return (*((DRAFT_RUNNER,) if drafts else ()), *((PRECISION,) if experts else ()))


def _text(artifacts: Mapping[str, str], path: str) -> str:
    text = artifacts.get(path)
    if text is None:
        raise unreadable(f"{path} is missing", "compile again; every artifact of a target belongs together")
    return text


def _object(artifacts: Mapping[str, str], path: str) -> dict[str, Any] | None:
    try:
        shown = json.loads(_text(artifacts, path))
    except (ValueError, RecursionError) as problem:
        raise unreadable(f"{path} is not JSON: {problem}") from None
    if shown is not None and not isinstance(shown, dict):
        raise unreadable(f"{path} holds neither an object nor null")
    return shown


def _arguments(artifacts: Mapping[str, str]) -> dict[Any, Any]:
    import yaml

    text = _text(artifacts, SERVER_PATH)
    try:
        shown = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as problem:
        raise unreadable(f"{SERVER_PATH} is not YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(shown, dict):
        raise unreadable(f"{SERVER_PATH} is no mapping of argument names to values")
    return shown


def _variables(artifacts: Mapping[str, str], facts: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The variables that are set. Both files must name every variable of `names`, alike, and no other.

    A variable of a format that no tensor has says nothing, and is free.
    """
    given, removed = facts.get("set"), facts.get("unset")
    if not isinstance(given, dict) or not isinstance(removed, list) or set(facts) - {"digest", "set", "unset"}:
        raise unreadable(f"{ENVIRONMENT_PATH} is not a digest, what is `set` and what is `unset`")
    state: dict[str, str | None] = {name: str(value) for name, value in given.items()}
    both = next((name for name in map(str, removed) if name in state), None)
    if both is not None:
        raise unreadable(f"{ENVIRONMENT_PATH} both sets and unsets {both}")
    state.update(dict.fromkeys(map(str, removed)))
    silent = next((name for name in names if name not in state), None)
    if silent is not None:
        raise unreadable(
            f"{ENVIRONMENT_PATH} neither sets nor unsets {silent}: the value of the launching shell would decide",
            "compile again, or add the variable to `unset`",
        )
    beyond = next((name for name in state if name not in names or (name in given and name not in MODELLED)), None)
    if beyond is not None:
        raise unreadable(f"{ENVIRONMENT_PATH} names {beyond}, which no contract sets", "compile again")
    _check_sourced(state, _text(artifacts, SHELL_PATH))
    return {name: value for name, value in state.items() if value is not None}


def _check_sourced(state: dict[str, str | None], text: str) -> None:
    try:
        sourced = shell_settings(text)
    except ValueError as problem:
        raise unreadable(f"{SHELL_PATH}: {problem}", "compile again") from None
    apart = next((name for name in sorted({*state, *sourced}) if _differ(name, state, sourced)), None)
    if apart is not None:
        raise unreadable(f"{SHELL_PATH} and {ENVIRONMENT_PATH} differ about {apart}", "compile again")


def _differ(name: str, state: dict[str, str | None], sourced: dict[str, str | None]) -> bool:
    return name not in state or name not in sourced or state[name] != sourced[name]
