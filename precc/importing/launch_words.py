"""The words and the environment of a launch, from a shell script, a file of arguments or a file of variables.

Nothing is run. Comments are dropped, a line that ends in `\\` goes on, and a variable that the text itself sets once is
put in; any other stays as it stands (`${MODEL}`), and whoever needs its value refuses it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from precc.records import field, record

_COMMENT = re.compile(r"(?m)(^|(?<=\s))#.*$")
_ASSIGNED = re.compile(r"(?m)^\s*(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"\n$`]*\"|'[^'\n]*'|[^\s\"'`$(;&|]+)\s*(?:$|;|&&)")
_USED = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_VARIABLE = re.compile(
    r"(?<![A-Za-z0-9_$\{])((?:NVTE|FLASHINFER|TRTLLM|SGLANG|OPEN_TRAINING|FP4)_\w+)"
    r"(?:=|\\?[\"']?\s*:\s*)\\?[\"']?([^\"'\s\\,}#]*)"
)
_UNSET = re.compile(r"(?m)^\s*unset\s+(\w+)")


@record
class Launch:
    """What one text would start: its commands, each a list of words, and the variables of precision that it sets."""

    commands: tuple[tuple[str, ...], ...] = field(repr=False)
    environment: Mapping[str, str] = MappingProxyType({})

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all commands, in order: arrays of arguments that a later command takes are among them."""
        return tuple(word for command in self.commands for word in command)

    @property
    def separated(self) -> tuple[str, ...]:
        """The same with a `;` behind each command."""
        return tuple(word for command in self.commands for word in (*command, ";"))


def read_launch(texts: Iterable[str]) -> Launch:
    """What some texts, read one after the other, would start."""
    commands: list[tuple[str, ...]] = []
    environment: dict[str, str] = {}
    for text in texts:
        plain = _COMMENT.sub("", text).replace("\\\r\n", " ").replace("\\\n", " ")
        plain = _with_values(plain)
        commands += (words for line in plain.splitlines() if (words := _words(line)))
        _set(environment, plain)
    return Launch(tuple(commands), environment)


def one_command(text: str) -> str:
    """The text of a file of arguments as one line: they are passed on as its words, wherever its lines break."""
    return " ".join(_COMMENT.sub("", text).replace("\\\r\n", " ").replace("\\\n", " ").split())


def _set(environment: dict[str, str], text: str) -> None:
    """What a text does to the variables of precision, in its order."""
    found = sorted((*_VARIABLE.finditer(text), *_UNSET.finditer(text)), key=lambda match: match.start())
    for match in found:
        if match.re is _UNSET:
            environment.pop(match[1], None)
        elif "$" not in match[2]:
            environment[match[1]] = match[2]


def _with_values(text: str) -> str:
    """The text with the variables put in that it sets, to one value each."""
    values: dict[str, set[str]] = {}
    for name, value in _ASSIGNED.findall(text):
        values.setdefault(name, set()).add(value.strip("\"'"))
    known = {name: found.pop() for name, found in values.items() if len(found) == 1}
    return _USED.sub(lambda used: known.get(used[1] or used[3], used[2] or used[0]), text)


def _words(line: str) -> tuple[str, ...]:
    """The words of one line; a line that opens a quotation is split at its spaces."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="()")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return tuple(word for word in lexer if word.strip("()"))
    except ValueError:
        return tuple(line.replace('"', " ").replace("'", " ").split())
