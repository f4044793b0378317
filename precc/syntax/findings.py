"""Where the `lower` step collects what it finds, and how it suggests what the author may have meant."""

from __future__ import annotations

from collections.abc import Iterable

from precc.diagnostics import Diagnostic, Edit, Fix, Label, error
from precc.source import SourceFile, Span
from precc.syntax.tree import Child

MAX_MESSAGE = 200
"""A message quotes the author's words, which may be a megabyte of one letter."""


class Findings:
    """The diagnostics of one file, in the order in which they were found."""

    __slots__ = ("diagnostics", "source")

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def span(self, child: Child) -> Span:
        """Where a token or a node stands."""
        return self.source.span(child.start, child.end)

    def report(
        self,
        code: str,
        message: str,
        place: Child | Span,
        *,
        help: str | None = None,
        fix: Fix | None = None,
        first: Span | None = None,
    ) -> None:
        """Add an error; `first` is the earlier place that it conflicts with."""
        span = place if isinstance(place, Span) else self.span(place)
        labels = (Label(first, "the first one is here"),) if first else ()
        if len(message) > MAX_MESSAGE:
            message = f"{message[:MAX_MESSAGE]}…"
        self.diagnostics.append(error(code, message, span, help=help, labels=labels, fix=fix))

    def replacement(self, child: Child, text: str, *, safe: bool = True) -> Fix:
        """The fix that writes something else in this place."""
        return Fix((Edit(self.span(child), text),), safe)

    def respelling(self, child: Child, suggestions: tuple[str, ...], prefix: str = "") -> Fix | None:
        """The fix for a misspelt word when one suggestion stands out; safe if only case and dashes differ."""
        if len(suggestions) != 1:
            return None
        written = self.span(child).text.removeprefix(prefix)
        return self.replacement(child, prefix + suggestions[0], safe=_plain(written) == suggestions[0])


def nearest(word: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that look most like a word, best first; only one when it stands out."""
    names, word = tuple(names), _plain(word)[:64]
    if word in names:
        return (word,)
    from difflib import get_close_matches

    obvious = get_close_matches(word, names, n=1, cutoff=0.88)
    return tuple(obvious or get_close_matches(word, names, n=3, cutoff=0.6))


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def suggest(suggestions: tuple[str, ...], names: Iterable[str], prefix: str = "") -> str:
    """The help line of an unknown word: what it may have been, or all that it could be."""
    if suggestions:
        return f"did you mean {listed(suggestions, 'or', prefix)}?"
    return f"write one of {listed(tuple(names), 'or', prefix)}"


def listed(words: Iterable[str], joiner: str = "and", prefix: str = "") -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{prefix}{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {joiner} {quoted[-1]}"
