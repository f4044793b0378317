"""The environment that both files give a process, from whatever it was before."""

from __future__ import annotations

import json
import re
from typing import Any

from precc.backend import check_digest, malformed, named_contract
from precc_miles.emission import ENV_JSON, ENV_SHELL
from precc_miles.environment import MODELLED, VARIABLES, WORDS
from precc_miles.profile import ENGINES
from precc_miles.server_arguments import DRAFT

_LINE = re.compile(r"(?:export (?P<set>\w+)=(?P<value>\S*)|unset (?P<unset>\w+))")

Settings = dict[str, str | None]
"""What a file does to each variable that it names: its value, or None where it is unset."""


def read_environment(shell: str, listed: str, digest: str) -> tuple[dict[str, str], bool]:
    """The variables in force, from the texts of `env.sh` and `env.json`; and whether a server may have a draft model.

    Raises Unsupported (P502) where they differ, belong to another contract, leave a variable as it was, or set one to
    what its reader does not know.
    """
    check_digest(ENV_SHELL, named_contract(shell), digest)
    found = _read_shell(shell)
    other, drafts = _read_json(listed, digest)
    for name in sorted(found.keys() | other.keys()):
        if found.get(name, "") != other.get(name, ""):
            raise malformed(ENV_SHELL, f"{name} is {_word(found, name)} here and {_word(other, name)} in {ENV_JSON}")
    for name in VARIABLES:
        if name not in found:
            raise malformed(ENV_SHELL, f"{name} is neither set nor unset: a value from another run would survive")
    for name, value in found.items():
        if name not in VARIABLES or (value is not None and name not in MODELLED):
            raise malformed(ENV_SHELL, f"{name} is {_word(found, name)}, which no contract does")
        if value is not None and name in WORDS and value not in WORDS[name]:
            raise malformed(ENV_SHELL, f"{name} is {value or 'empty'}, and not one of {', '.join(WORDS[name])}")
    return {name: value for name, value in found.items() if value is not None}, drafts


def _word(settings: Settings, name: str) -> str:
    if name not in settings:
        return "left as it was"
    value = settings[name]
    return "unset" if value is None else f"set to {value}"


def _read_shell(text: str) -> Settings:
    state: Settings = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        found = _LINE.fullmatch(line)
        if found:
            state[found["set"] or found["unset"]] = found["value"]
        elif line and not line.startswith("#"):
            raise malformed(f"{ENV_SHELL}:{number}", f"neither `export NAME=value` nor `unset NAME`: {line}")
    return state


def _read_json(text: str, digest: str) -> tuple[Settings, bool]:
    try:
        content: Any = json.loads(text)
        setting = {str(name): str(value) for name, value in content["set"].items()}
        unset = [str(name) for name in content["unset"]]
        gather, profile, named = (content[key] for key in ("parameter_gather", "profile", "digest"))
        forbidden = content["forbidden_arguments"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise malformed(ENV_JSON, f"malformed: {type(problem).__name__}: {problem}") from None
    check_digest(ENV_JSON, str(named), digest)
    if gather != "off":
        raise malformed(ENV_JSON, "parameter gather is not off: a BF16 layer would run on a dequantized weight")
    if profile != {engine: versions[0] for engine, versions in ENGINES.items()}:
        raise malformed(ENV_JSON, "it is for another profile of engines")
    both = sorted(setting.keys() & set(unset))
    if both:
        raise malformed(ENV_JSON, f"{both[0]} is both set and unset")
    if forbidden not in ([], [DRAFT]):
        raise malformed(ENV_JSON, f"its `forbidden_arguments` are neither none nor {DRAFT}")
    return {**setting, **dict.fromkeys(unset)}, not forbidden
