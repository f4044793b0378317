"""`docs/adding-a-rule.md` has a whole rule: here it is added, run and checked."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest
from generator.fences import Fence, fences

import precc.rules.contract
from precc.backend import find_backend
from precc.diagnostics import Diagnostic, text
from precc.graph.reading import read_model
from precc.pipeline import compile_policy
from precc.rules import modules
from precc.source import SourceFile

PAGE = (Path(__file__).resolve().parents[2] / "docs/adding-a-rule.md").read_text(encoding="utf-8")
CODE = "P405"


@pytest.fixture
def rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's rule, lying in a folder of `precc.rules.contract`."""
    (block,) = [fence for fence in fences(PAGE) if fence.language == "python"]
    assert block.file is not None
    (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    monkeypatch.setattr(precc.rules.contract, "__path__", [*precc.rules.contract.__path__, str(tmp_path)])
    invalidate_caches()
    name = f"precc.rules.contract.{block.file.removesuffix('.py')}"
    yield import_module(name)
    sys.modules.pop(name)


def findings(example: Fence) -> list[Diagnostic]:
    """What precc says of one example of the rule's page."""
    model = read_model(example.facts["model"])
    done = compile_policy(SourceFile("example.prec", example.text), model, [find_backend("converter")])
    return list(done.findings)


def test_the_rule_is_found_where_it_lies(rule: ModuleType) -> None:
    """No list has to name it."""
    assert rule in list(modules("precc.rules.contract"))


def test_the_rules_page_does_what_it_says(rule: ModuleType) -> None:
    """The bad example yields the code, the good one neither it nor an error."""
    bad, good = fences(rule.__doc__ or "")
    assert CODE in [finding.code for finding in findings(bad)]
    assert not [finding for finding in findings(good) if finding.code == CODE or finding.is_error]


def test_the_page_shows_what_the_rule_says(rule: ModuleType) -> None:
    """The picture on the page is the one that a user gets."""
    (shown,) = [fence.text for fence in fences(PAGE) if fence.language == "text"]
    bad = next(fences(rule.__doc__ or ""))
    found = [finding for finding in findings(bad) if finding.code == CODE]
    assert text.render(found).rstrip("\n") + "\n" == shown


def test_the_code_is_free() -> None:
    """An example must not take the code of a real rule."""
    taken = {module.CODE for stage in ("binding", "contract") for module in modules(f"precc.rules.{stage}")}
    assert CODE not in taken
    assert re.fullmatch(r"P[0-8]\d\d", CODE)
