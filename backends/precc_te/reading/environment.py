"""The environment that both files give a process, from whatever it was before.

Free are comments, and the variables of a recipe that no linear layer runs. Everything else in the two files is
compared: here with each other and with the contract's digest, and by the readings of the recipes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from precc.backend import check_digest, malformed, named_contract, text_of
from precc_te.emission import ENV_JSON, ENV_SHELL
from precc_te.environment import OTHER_VARIABLES, VARIABLES
from precc_te.forbidden import forbidden_arguments
from precc_te.precision import Recipe

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

Settings = dict[str, str | None]
"""What a file does to each variable that it names: its value, or None where it is unset."""


def read_environment(artifacts: Mapping[str, str], mode: Recipe, digest: str) -> dict[str, str]:
    """The variables in force under an engine-wide mode.

    Raises Unsupported (P502) where the files differ, belong to another contract, leave a variable as it was, or touch
    one that no contract sets.
    """
    text = text_of(artifacts, ENV_SHELL)
    listed = _read_json(text_of(artifacts, ENV_JSON), mode, digest)
    check_digest(ENV_SHELL, named_contract(text), digest)
    shell = _read_shell(text)
    for name in sorted(shell.keys() | listed.keys()):
        if shell.get(name, "") != listed.get(name, "") or (name in shell) != (name in listed):
            one, other = _word(shell, name), _word(listed, name)
            raise malformed(ENV_SHELL, f"it {one} {name}, and {ENV_JSON} {other} it")
    for name in VARIABLES:
        if name not in shell:
            raise malformed(ENV_SHELL, f"{name} is neither set nor unset: a value from another run would survive")
    for name, value in shell.items():
        if name not in VARIABLES or (value is not None and name in OTHER_VARIABLES):
            raise malformed(ENV_SHELL, f"it {_word(shell, name)} {name}, which no contract does")
    return {name: value for name, value in shell.items() if value is not None}


def _word(settings: Settings, name: str) -> str:
    if name not in settings:
        return "leaves"
    value = settings[name]
    return "unsets" if value is None else f"sets (to {value})"


def _read_shell(text: str) -> Settings:
    found: Settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = _words(number, line)
        if not words:
            continue
        if words[0] == "export" and len(words) == 2 and "=" in words[1]:
            name, value = words[1].split("=", 1)
            found[_checked(name)] = value
        elif words[0] == "unset" and len(words) == 2:
            found[_checked(words[1])] = None
        else:
            raise malformed(f"{ENV_SHELL}:{number}", f"neither `export NAME=value` nor `unset NAME`: {line}")
    return found


def _words(number: int, line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as problem:
        raise malformed(f"{ENV_SHELL}:{number}", f"{problem}: {line}") from None


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise malformed(ENV_SHELL, f"{name} is no variable's name")
    return name


_KEYS = {"digest", "set", "unset", "parameter_gather", "forbidden_arguments"}


def _read_json(text: str, mode: Recipe, digest: str) -> Settings:
    try:
        content: Any = json.loads(text)
        setting = {str(name): str(value) for name, value in content["set"].items()}
        unset = [str(name) for name in content["unset"]]
        gather, forbidden, named = (content[key] for key in ("parameter_gather", "forbidden_arguments", "digest"))
        beyond = sorted(set(content) - _KEYS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise malformed(ENV_JSON, f"malformed: {type(problem).__name__}: {problem}") from None
    if gather != "off":
        raise malformed(ENV_JSON, "parameter gather is not off: a BF16 layer would run on a dequantized weight")
    check_digest(ENV_JSON, str(named), digest)
    if beyond:
        raise malformed(ENV_JSON, f"there is no `{beyond[0]}` in it")
    if forbidden != [each.argument for each in forbidden_arguments(mode)]:
        raise malformed(ENV_JSON, f"its `forbidden_arguments` are not those of the engine-wide mode, {mode}")
    both = sorted(setting.keys() & set(unset))
    if both:
        raise malformed(ENV_JSON, f"{both[0]} is both set and unset")
    return {**setting, **dict.fromkeys(unset)}
