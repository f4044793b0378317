"""How quantization tools match the entries of their lists: dotted runs, globs, regular expressions.

The literal text in front of the first wildcard is what `Pattern.prefix` promises, so that a list of a thousand names is
not asked about 45,000 experts.
"""

from __future__ import annotations

import re
from itertools import pairwise, takewhile

from precc.importing.patterns import Pattern, Test

_META = frozenset(r".^$*+?{}[]\|()")


def dotted(entry: str) -> Pattern:
    """A run of whole components anywhere in a name, as FP8 lists are read: `mlp.gate` is not in `mlp.gate_proj`."""
    run = f".{entry.strip('.')}."
    test: Test = lambda name: run in f".{name}."  # noqa: E731 - bound to this run
    return Pattern(test, by_expert=has_number(entry), word=_word(entry), expert=_expert(entry))


def _expert(entry: str) -> int | None:
    """The expert that a run names, if it names one."""
    words = pairwise(entry.strip(".").split("."))
    return next((int(word) for before, word in words if before == "experts" and word.isdecimal()), None)


def _word(entry: str) -> str:
    """The component of a run that the fewest names have: its layer, else the last that is no number."""
    words = entry.strip(".").split(".")
    layer = next((word for before, word in pairwise(words) if before == "layers" and word.isdecimal()), "")
    return layer or next((word for word in reversed(words) if not word.isdecimal()), "")


def glob(entry: str) -> Pattern:
    """A glob over a whole name; `*` is any run of characters, dots among them.

    An entry without `*` is a dotted run. A `language_model.` in front of a name may be left out, and a glob without a
    dot may stand for one component, as servers have it.
    """
    if "*" not in entry:
        return dotted(entry)
    body = ".*".join(map(re.escape, entry.split("*")))
    whole = re.compile(rf"(?:language_model\.)?{body}")
    single = re.compile(body) if "." not in entry else None

    def test(name: str) -> bool:
        return whole.fullmatch(name) is not None or (
            single is not None and any(single.fullmatch(word) for word in name.split("."))
        )

    whole_words = entry.partition("*")[0].rpartition(".")[0]
    return Pattern(test, by_expert=has_number(entry), word=_word(whole_words) if single is None else "")


def regular(entry: str) -> Pattern:
    """A regular expression that a name begins with, as compared with `re.match`. Raises `re.error`."""
    compiled = re.compile(entry)
    literal = "".join(takewhile(lambda letter: letter not in _META, entry))
    followed = entry[len(literal) : len(literal) + 1]
    safe = literal[:-1] if followed and followed in "*?{|" else literal
    return Pattern(lambda name: compiled.match(name) is not None, "" if "|" in entry else safe, has_number(entry))


def exact(entry: str) -> Pattern:
    """One whole name."""
    return Pattern(entry.__eq__, entry)


def ending(entry: str) -> Pattern:
    """One whole name, or the end of one at a dot."""
    tail = f".{entry}"
    return Pattern(lambda name: name == entry or name.endswith(tail), by_expert=has_number(entry), word=_word(entry))


def has_number(entry: str) -> bool:
    """Whether an entry can tell experts of one layer apart: it has a digit behind `experts`, or a class of them."""
    tail = entry.partition("experts")[2] or (entry if "layers" not in entry else "")
    return any(letter.isdigit() for letter in tail) or "\\d" in entry or "[" in entry or "\\w" in entry
