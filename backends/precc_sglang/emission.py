"""A contract as the files that an SGLang server is started with."""

from __future__ import annotations

import json
from collections.abc import Iterator

from precc.backend import Artifact, Unsupported
from precc.contract import Contract
from precc.diagnostics import Diagnostic, error
from precc_sglang.classes import CLASSES
from precc_sglang.config import legacy_config, quantization_config
from precc_sglang.environment import environment, environment_text, shell_text
from precc_sglang.methods import Choice, choice_of
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, LEGACY_PATH, SERVER_PATH, SHELL_PATH
from precc_sglang.refusal import engine
from precc_sglang.server import server_text
from precc_sglang.versions import version_that


def artifacts(contract: Contract) -> Iterator[Artifact]:
    """This writes every file of the target. `null` in the config's file means: no `quantization_config`."""
    choice = _choice(contract)
    config = quantization_config(contract, choice)
    yield Artifact(CONFIG_PATH, _json(config))
    legacy = legacy_config(config)
    if legacy is not None:
        yield Artifact(LEGACY_PATH, _json(legacy))
    yield Artifact(SERVER_PATH, server_text(contract, choice))
    facts = environment(contract)
    yield Artifact(SHELL_PATH, shell_text(facts))
    yield Artifact(ENVIRONMENT_PATH, environment_text(facts))


def _choice(contract: Contract) -> Choice:
    choice = choice_of(contract)
    if choice is None:
        raise Unsupported(unknown_architecture(contract))
    return choice


def unknown_architecture(contract: Contract) -> Diagnostic:
    """The refusal of a model whose class is not modelled, in the stated version or in any."""
    architecture = contract.model.architecture
    version = version_that(lambda release: architecture not in release.otherwise)
    named = f"modelled are {', '.join(sorted(CLASSES))}"
    return error(
        "P701",
        f"{engine(contract)}: the class for {architecture} is not modelled",
        contract.entries[0].span if contract.entries else None,
        help=f"{f'state `rollout: sglang={version}`' if architecture in CLASSES else named}; or leave `sglang` out of "
        "`targets`",
    )


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
