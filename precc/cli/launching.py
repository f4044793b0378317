"""The launch line behind `--`, and the environment that its program starts in."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from precc.cli.errors import UsageError

RAY_ENVIRONMENT = "--runtime-env-json"
"""How `ray job submit` takes the variables of a job."""


ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
"""A variable in front of a program, as a shell reads it."""


class Launch(NamedTuple):
    """The words of a line, without a leading `env`, and the variables of its program."""

    words: Sequence[str]
    environment: Mapping[str, str]


def read_launch(given: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """This reads `-- [env] NAME=value … PROGRAM …`, started in an environment. Raises UsageError for no line.

    A job that is submitted to Ray has the variables of its runtime environment, not those of the shell.
    """
    if given[:1] != ["--"]:
        raise UsageError("there is no `--`", "put it in front of the launch line: `precc attest --contract out -- …`")
    if not any(word.strip() for word in given[1:]):
        raise UsageError("there is no launch line behind `--`", 'an empty "$@"?')
    words = deque(given[1:])
    variables = dict(environment)
    if os.path.basename(words[0]) == "env":
        words.popleft()
        variables = _changed(words, variables)
    elif ASSIGNMENT.match(words[0]):
        variables = _changed(words, variables)
    job = _value(RAY_ENVIRONMENT, list(words))
    return Launch(tuple(words), variables if job is None else _job_variables(job))


def _changed(words: deque[str], variables: dict[str, str]) -> dict[str, str]:
    """What `env` does to variables; its own words are taken off."""
    while words:
        if words[0] in ("-i", "-", "--ignore-environment"):
            variables = {}
        elif words[0] in ("-u", "--unset") and len(words) > 1:
            words.popleft()
            variables.pop(words[0], None)
        elif words[0].startswith("--unset="):
            variables.pop(words[0].removeprefix("--unset="), None)
        elif "=" in words[0]:
            name, _, value = words[0].partition("=")
            variables[name] = value
        else:
            break
        words.popleft()
    return variables


def _value(name: str, words: Sequence[str]) -> str | None:
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word == name or word.startswith(f"{name}="):
            return following if word == name else word.partition("=")[2]
    return None


def _job_variables(text: str) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(text).get("env_vars", {}).items()}
    except (ValueError, AttributeError, RecursionError):
        raise UsageError(f"{RAY_ENVIRONMENT} holds no JSON object with `env_vars`: {text[:60]}") from None
