"""What can be wrong with a model description, told to the author of a policy."""

from __future__ import annotations

import json
from collections.abc import Iterable


class ModelError(Exception):
    """A model that cannot be read: `message` says what and where, `help` what would work instead."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __reduce__(self) -> tuple[type[ModelError], tuple[str, str]]:
        return ModelError, (self.message, self.help)


class FieldError(Exception):
    """A field of a configuration that is missing or makes no sense; the file is added by whoever reads it."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field)
        self.field = field
        self.value = value
        self.allowed = allowed

    def at(self, source: str) -> ModelError:
        """This complaint with the file it is about."""
        if self.value is MISSING:
            return ModelError(f"{source}: `{self.field}` is missing", f"It has to be {self.allowed}.")
        shown = shorten(json.dumps(self.value, default=repr))
        return ModelError(f"{source}: `{self.field}` is {shown}", f"It has to be {self.allowed}.")


MISSING = object()
"""The value of a field that is not there."""


def shorten(text: str, width: int = 60) -> str:
    """The start of a text that may be of any length and hold anything: what cannot be printed is escaped."""
    start = text if len(text) <= width else f"{text[:width]}…"
    return start if start.isprintable() else "".join(map(_printable, start))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like a word, best first; possibly none."""
    from difflib import get_close_matches

    return get_close_matches(word, list(known), count, cutoff=0.6)


def or_list(names: Iterable[str]) -> str:
    """Names as `a`, `b` or `c`."""
    quoted = [f"`{name}`" for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
