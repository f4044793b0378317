"""The arguments that a launch line gives SGLang, as SGLang reads them.

A server's own line is `python -m sglang.launch_server …` or `sglang serve …`. Its parser takes a unique beginning for
a long name (`--tp 8`), and `--config FILE` puts the file's arguments in front of the line's, so that the line wins;
written `--config=FILE`, the file is not read at all. RL launchers pass each argument on under a prefix
(`--sglang-kv-cache-dtype`), take no beginnings, read no such file, and set the size of an engine by one of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precc.backend import COMPILED
from precc_sglang.paths import SERVER_PATH
from precc_sglang.reading.arguments import FORBIDDEN, FORBIDDEN_ONCE, WRITTEN

PREFIX = "--sglang-"
SERVERS = ("sglang.launch_server", "launch_server.py")
OTHERS = ("router-", "server-concurrency", "config")
"""Arguments of a launcher's own that begin with the prefix."""

ALIASES: Mapping[str, str] = {
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "expert-parallel-size": "ep-size",
    "ep": "ep-size",
    "attention-data-parallel-size": "attn-dp-size",
    "data-parallel-size": "dp-size",
}
"""Other names of the arguments that precc writes."""

WHOLE = ("--model", "--speculative-draft-model")
"""Arguments of SGLang whose name another one of interest begins with."""

ENGINE_SIZE = "--rollout-num-gpus-per-engine"
"""What Miles and slime set the tensor parallelism of a server with."""

_NAMES = (*WRITTEN, *FORBIDDEN, *FORBIDDEN_ONCE, *ALIASES)

Values = Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """The arguments of interest by SGLang's long names (empty for a switch), and what stands in the way of reading.

    `prefix` is how an argument is written on this line; `problems` are each with what to do.
    """

    values: Values
    prefix: str = "--"
    checkpoint: str | None = None
    problems: tuple[tuple[str, str], ...] = ()


def launches(arguments: Sequence[str]) -> bool:
    """Whether a line starts a server, or a launcher that passes SGLang's arguments on."""
    return _server_words(arguments) is not None or any(map(_passed_on, arguments))


def read_line(arguments: Sequence[str]) -> Line:
    """The arguments that a launch line gives SGLang."""
    own = _server_words(arguments)
    if own is None and any(map(_passed_on, arguments)):
        return _launcher(arguments)
    return _server(arguments if own is None else own)


def _server_words(arguments: Sequence[str]) -> Sequence[str] | None:
    """The words behind `sglang.launch_server` or `sglang serve`."""
    for number, word in enumerate(arguments):
        if os.path.basename(word) in SERVERS:
            return arguments[number + 1 :]
        if os.path.basename(word) == "sglang" and tuple(arguments[number + 1 : number + 2]) == ("serve",):
            return arguments[number + 2 :]
    return None


def _passed_on(word: str) -> bool:
    return word.startswith(PREFIX) and not word.removeprefix(PREFIX).startswith(OTHERS)


def _launcher(arguments: Sequence[str]) -> Line:
    given = dict(_pairs(arguments))
    values = {
        ALIASES.get(name, name): value
        for word, value in given.items()
        if word.startswith(PREFIX) and (name := word.removeprefix(PREFIX)) in _NAMES
    }
    if ENGINE_SIZE in given:
        values["tp-size"] = given[ENGINE_SIZE]
    return Line(values, PREFIX, given.get("--hf-checkpoint"), tuple(_deployment(given.get(f"{PREFIX}config"))))


def _deployment(file: str | None) -> Iterator[tuple[str, str]]:
    if file is not None:
        message = f"{PREFIX}config {file} can override every argument of an engine, and is not checked"
        yield message, f"leave it out, and say what holds for all engines by {PREFIX}…"


def _server(words: Sequence[str]) -> Line:
    try:
        from_file = _config_words(words)
        problems: tuple[tuple[str, str], ...] = ()
    except ValueError as problem:
        from_file, problems = [], ((str(problem), f"say --config {COMPILED}/{SERVER_PATH}"),)
    given = dict(_pairs([*from_file, *words]))
    values = {name: value for word, value in given.items() if (name := _meant(word)) is not None}
    checkpoint = given.get("--model-path") or given.get("--model") or (words[0] if _is_path(words) else None)
    return Line(values, "--", checkpoint, problems)


def _is_path(words: Sequence[str]) -> bool:
    return bool(words) and not words[0].startswith("-")


def _meant(word: str) -> str | None:
    """The argument of interest that a word of a server's line stands for; None for any other."""
    name = word.removeprefix("--")
    if name not in _NAMES and word not in WHOLE:
        begun = [known for known in _NAMES if known.startswith(name)] if name else []
        name = begun[0] if len(begun) == 1 else name
    return ALIASES.get(name, name) if name in _NAMES else None


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with its value: `--name value`, `--name=value`; the last of a repeated one counts in a mapping."""
    for number, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            following = words[number + 1] if number + 1 < len(words) else ""
            yield name, value if equals else "" if following.startswith("--") else following


def _config_words(words: Sequence[str]) -> list[str]:
    """The words that the file of `--config` stands for. Raises ValueError for a file that SGLang would not read."""
    files = [words[number + 1 : number + 2] for number, word in enumerate(words) if word == "--config"]
    joined = next((word for word in words if word.startswith("--config=")), None)
    if joined is not None and not files:
        raise ValueError(f"SGLang does not read the file of `{joined}`; write it as two words")
    if len(files) > 1 or [] in files:
        raise ValueError("SGLang takes one `--config FILE`")
    return [word for file in files for key, value in _file(file[0]).items() for word in _written(key, value)]


def _file(path: str) -> dict[str, Any]:
    import yaml

    if not path.endswith((".yaml", ".yml")):
        raise ValueError(f"SGLang reads only a `.yaml` or `.yml` as --config, not {path}")
    try:
        with open(path, encoding="utf-8") as stream:
            shown = yaml.safe_load(stream)
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{path} is not YAML") from None
    if not isinstance(shown, dict):
        raise ValueError(f"{path} is no mapping of argument names to values")
    return {str(key): value for key, value in shown.items()}


def _written(key: str, value: object) -> list[str]:
    """A line of the file as words; a switch that is off is left out."""
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    return [f"--{key}", *(map(str, value) if isinstance(value, list) else [str(value)])]
