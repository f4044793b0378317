"""Arguments as Miles parses them: the last of a repeated one counts, and lists run up to the next argument.

The converters take what they know and pass over the rest (`parse_known_args`): a mistyped argument is no error there,
and is one here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from precc.backend import malformed


@dataclass(frozen=True, slots=True)
class Grammar:
    """The arguments of one file: switches, values with Miles' defaults, and lists of words."""

    switches: frozenset[str] = frozenset()
    values: Mapping[str, str | None] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a file says, defaults filled."""

    path: str
    switches: frozenset[str]
    values: Mapping[str, str | None]
    lists: Mapping[str, tuple[str, ...]]

    def count(self, name: str) -> int:
        """The value of an argument that is a number. Raises Unsupported (P502)."""
        word = self.values[name] or ""
        if not (word.isascii() and word.isdecimal()):
            raise malformed(self.path, f"`{name}` wants a count, not {word or 'nothing'}")
        return int(word)

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a list; none where it is not there."""
        return self.lists.get(name, ())


def parse(path: str, text: str, grammar: Grammar) -> Arguments:
    """This reads one file. Raises Unsupported (P502) for what no contract sets."""
    values, lists = dict(grammar.values), dict[str, tuple[str, ...]]()
    switches: set[str] = set()
    for name, words in _split(path, text.split()):
        if name in grammar.switches and not words:
            switches.add(name)
        elif name in grammar.values and len(words) == 1:
            values[name] = words[0]
        elif name in grammar.lists:
            lists[name] = tuple(words)
        elif name in grammar.values or name in grammar.switches:
            raise malformed(path, f"`{name}` has {len(words)} values")
        else:
            raise malformed(path, f"`{name}` is no argument that a contract sets")
    return Arguments(path, frozenset(switches), values, lists)


def _split(path: str, words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each argument with the words behind it."""
    name, held = "", list[str]()
    for word in words:
        if not word.startswith("--"):
            held.append(word)
            continue
        if name or held:
            yield name, held
        name, equals, value = word.partition("=")
        held = [value] if equals else []
    if name or held:
        yield name, held
