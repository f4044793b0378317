"""Whether a `config.json` describes the model that a contract was compiled for.

The fields of the family say what is compared: a renamed or nested key is one, and what decides no tensor is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precc.contract import Contract
from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, error
from precc.graph.config import Description, describe
from precc.graph.errors import ModelError, shorten
from precc_converter.conversion.findings import CONFIGURATION, UNREADABLE

QUANTIZATION = ("quantization_config", "compression_config")
"""The keys of a `config.json` that say how weights are stored: a conversion writes another one, headers say what is."""

_MOST = 4
"""Differences that a finding shows."""

_HELP = "take the config.json that belongs to these weights, or compile the policy for this checkpoint"


def other_model(config: Mapping[str, Any], path: Path, contract: Contract) -> Diagnostic | None:
    """The finding for a `config.json`, read from `path`, of another model than the contract's; None for the same."""
    named = config.get("architectures")
    if isinstance(named, list) and named and contract.model.architecture not in named:
        message = f"{path} is of a {shorten(str(named[0]))}, the contract of a {contract.model.architecture}"
        return error(CONFIGURATION, message, help=_HELP)
    try:
        described = describe(without_quantization(config), str(path))
    except ModelError as problem:
        return error(UNREADABLE, problem.message, help=problem.help or _HELP)
    found = list(_differences(described, contract))
    if not found:
        return None
    more = [f"{len(found) - _MOST} more"] if len(found) > _MOST else []
    message = f"{path} is of another model than the contract: {listed([*found[:_MOST], *more])}"
    return error(CONFIGURATION, message, help=_HELP)


def without_quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the unquantized model; a multimodal wrapper may keep the rest in its `text_config`."""
    kept = {key: value for key, value in config.items() if key not in QUANTIZATION}
    if isinstance(kept.get("text_config"), Mapping):
        kept["text_config"] = without_quantization(kept["text_config"])
    return kept


def _differences(described: Description, contract: Contract) -> Iterator[str]:
    if described.family.name != contract.model.family:
        yield f"it is of the family {described.family.name}, not {contract.model.family}"
        return
    keys = {field.fact: field.key for field in described.family.fields} | {"torch_dtype": "dtype"}
    for fact, key in keys.items():
        found, wanted = described.facts[fact], contract.model.config.get(fact, described.facts[fact])
        if not _agree(fact, found, wanted):
            yield f"{key} is {_shown(found)}, not {_shown(wanted)}"


def _agree(fact: str, found: object, wanted: object) -> bool:
    """Whether a file and the contract agree; a release may leave out the multi-token-prediction layers it declares."""
    if fact == "num_mtp_layers" and isinstance(found, int) and isinstance(wanted, int):
        return wanted <= found
    return _shown(found) == _shown(wanted)


def _shown(value: object) -> str:
    return shorten(json.dumps(value))
