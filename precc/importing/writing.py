"""The text of an imported policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from precc.formats import Decision
from precc.importing.reading import Reading
from precc.importing.synthesis import Outline, Written
from precc.importing.wanted import completed
from precc.records import replace
from precc.source import SourceFile

LONG = 24
"""A spec with more letters than this that stands in several rules gets a name."""

WIDTH = 120


def policy_text(outline: Outline, reading: Reading, name: str, remarks: Iterable[str]) -> str:
    """The policy as `precc fmt` has it; `remarks` are the sentences of its first comment."""
    from precc.syntax import format_source

    text = "\n".join(_lines(outline, reading, name, remarks)) + "\n"
    formatted, _ = format_source(SourceFile(f"{name}.prec", text))
    return formatted


def _lines(outline: Outline, reading: Reading, name: str, remarks: Iterable[str]) -> Iterator[str]:
    yield from (f"# {remark}" for remark in remarks)
    yield f'policy "{name}"'
    yield ""
    names = _names(outline)
    yield from (f"let {name} = {spec}" for spec, name in names.items())
    if names:
        yield ""
    yield f"default: {_said(outline.default, names)}"
    if reading.kv_cache is not None:
        yield f"kv_cache: {reading.kv_cache}"
    yield from _layouts(reading)
    if outline.rules:
        yield ""
    for rule in outline.rules:
        yield from _rule(rule, names)


def _layouts(reading: Reading) -> Iterator[str]:
    for side, settings in (("train", reading.train), ("rollout", reading.rollout)):
        if settings:
            yield f"{side}: {' '.join(f'{key}={word}' for key, word in settings.items())}"
    if reading.targets:
        yield f"targets: {', '.join(reading.targets)}"


def _rule(rule: Written, names: Mapping[str, str]) -> Iterator[str]:
    """The rule on one line, or broken inside parentheses where it is long."""
    spec = _said(rule.decision, names)
    line = f"{', '.join(rule.selectors)}: {spec}"
    if len(line) <= WIDTH:
        yield line
        return
    yield "("
    yield from (f"    {selector}," for selector in rule.selectors[:-1])
    yield f"    {rule.selectors[-1]}"
    yield f"): {spec}"


# --- specs -------------------------------------------------------------------------------------------


def spec_of(decision: Decision) -> str:
    """The shortest spec for a decision: a backward mode is written only where the language gives another."""
    bare = replace(decision, backward=None)
    return str(bare if completed(bare) == decision else decision)


def _said(decision: Decision, names: Mapping[str, str]) -> str:
    spec = spec_of(decision)
    return names.get(spec, spec)


def _names(outline: Outline) -> dict[str, str]:
    """Names for long specs that are written more than once."""
    specs = [spec_of(decision) for decision in (outline.default, *(rule.decision for rule in outline.rules))]
    repeated = [spec for spec in dict.fromkeys(specs) if len(spec) > LONG and specs.count(spec) > 1]
    taken: dict[str, str] = {}
    for spec in repeated:
        taken[spec] = _free(f"served_{_first_format(spec)}", taken.values())
    return taken


def _first_format(spec: str) -> str:
    return spec.replace("weight ", "").split()[0].rstrip(",")


def _free(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    numbered = (name if count == 1 else f"{name}_{count}" for count in range(1, len(used) + 2))
    return next(one for one in numbered if one not in used)
