"""The pages of the rules are tests: each example does what its fence says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

import pytest

from precc import rules
from precc.backend import find_backend, standard_targets
from precc.diagnostics import Diagnostic, Severity
from precc.graph.reading import read_model
from precc.pipeline import compile_policy, read_policy
from precc.source import SourceFile

FENCE = re.compile(r"^```prec(?P<facts>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

TARGETS = sorted(point.name for point in entry_points(group="precc.backends"))


@dataclass(frozen=True)
class Example:
    """One fenced policy of a page: the code it must or must not yield, and the model it is compiled for."""

    code: str
    name: str
    text: str
    expected: bool
    model: str | None


def all_modules() -> Iterator[ModuleType]:
    """Every rule module of precc and of its backends."""
    for stage in rules.STAGES:
        yield from rules.modules(f"precc.rules.{stage}")
    for target in TARGETS:
        yield from rules.modules(find_backend(target).rules)


def examples() -> Iterator[Example]:
    """Every example of every page."""
    for module in all_modules():
        for match in FENCE.finditer(module.__doc__ or ""):
            facts = dict(word.split("=", 1) for word in match["facts"].split())
            expected = facts.get("expect") == module.CODE
            yield Example(module.CODE, module.__name__, match["text"], expected, facts.get("model"))


def findings(example: Example) -> tuple[Diagnostic, ...]:
    """What precc says of an example: with its model for all targets, or of the file alone."""
    source = SourceFile("example.prec", example.text)
    if example.model is None:
        return read_policy(source)[1]
    policy = read_policy(source)[0]
    names = policy.targets.names if policy.targets else standard_targets()
    return compile_policy(source, read_model(example.model), [find_backend(n) for n in names]).findings


@pytest.mark.parametrize("example", list(examples()), ids=lambda e: f"{e.code}-{'bad' if e.expected else 'good'}")
def test_an_example_does_what_its_page_says(example: Example) -> None:
    """A bad example yields the code; a good one has neither that code nor any error."""
    found = findings(example)
    codes = {finding.code for finding in found}
    if example.expected:
        assert example.code in codes, f"{example.name}: {sorted(codes)}"
    else:
        wrong = [f"{f.code} {f.message}" for f in found if f.is_error or f.code == example.code]
        assert not wrong


@pytest.mark.parametrize("module", list(all_modules()), ids=lambda m: m.__name__)
def test_a_rule_has_a_page_a_name_and_a_severity(module: ModuleType) -> None:
    """The module's file says its code; the page starts with one sentence as its title."""
    assert module.__name__.rpartition(".")[2].startswith(module.CODE.lower() + "_")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", module.NAME)
    assert isinstance(module.SEVERITY, Severity)
    title = (module.__doc__ or "").split("\n\n")[0]
    assert title.endswith("."), title
    assert "\n" not in title


def test_every_code_in_the_source_has_a_page() -> None:
    """A code that some module writes is the code of a rule module."""
    known = {module.CODE for module in all_modules()}
    written = set()
    for package in ("precc", *(import_module(find_backend(t).rules).__package__ or "" for t in TARGETS)):
        root = import_module(package.split(".")[0]).__path__[0]
        written |= codes_written_in(root)
    assert written <= known, sorted(written - known)


def codes_written_in(root: str) -> set[str]:
    """The codes that stand in string literals of a source tree."""
    from pathlib import Path

    found: set[str] = set()
    for path in Path(root).rglob("*.py"):
        found |= set(re.findall(r'"(P\d\d\d)"', path.read_text(encoding="utf-8")))
    return found
