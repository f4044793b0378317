"""The report: one page, complete, the same each time, and never markup of someone else's making."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

from precc.api import compile_source
from precc.cli.report_html import render_report, size_text
from precc.cli.report_style import FORMAT_COLOURS
from precc.contract import Cause, Contract
from precc.diagnostics import Diagnostic, Severity, error, info, warning
from precc.formats import FORMATS
from precc.graph.model import ModelGraph
from precc.source import SourceFile

POLICY = """default: mxfp8
@routed_experts: nvfp4 per_token, backward high_precision
layers[-15%:]: bf16
@shared_experts, @mla: bf16
"""
HOSTILE = "<script>alert('x')</script>\"&amp;"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """A page taken apart: elements still open, counts of tags, the map's cells, attribute values, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.rows: list[list[list[dict[str, str]]]] = []
        self.headings: list[str] = []
        self.text: list[str] = []
        self._in_map = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens an element."""
        facts = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in facts.items()]
        self._in_map = facts.get("class") == "map" if tag == "table" else self._in_map
        if tag not in VOID:
            self.open.append(tag)
        if self._in_map and tag == "tr":
            self.rows.append([])
        if self._in_map and tag == "td":
            self.rows[-1].append([])
        if self._in_map and tag == "button":
            self.rows[-1][-1].append(facts)

    def handle_endtag(self, tag: str) -> None:
        """Closes the innermost element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keeps text; row headings of the map apart."""
        self.text.append(data)
        if self._in_map and self.open[-1:] == ["th"]:
            self.headings.append(data)


@cache
def _contract() -> Contract:
    return compile_source(SourceFile("p.prec", POLICY), "deepseek-v3")


@cache
def _page() -> Page:
    return Page(render_report(_contract(), (), "nvfp4 on deepseek-v3"))


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere() -> None:
    """Every element is closed in order, and no attribute or style loads anything."""
    page = _page()
    assert page.open == []
    assert [name for _, name, _ in page.attributes if name in ("src", "href", "srcset", "background")] == []
    assert page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert not re.search(r"url\(|@import|https?:", render_report(_contract(), (), "t"))


def test_the_map_has_a_cell_for_every_layer_and_module() -> None:
    """61 decoder layers, the MTP layer and the tensors outside; each row as wide as the table."""
    rows = [row for row in _page().rows if row]
    assert len(rows) == 61 + 1 + 1
    assert {len(row) for row in rows} == {18}
    filled = [sum(1 for cell in row if cell) for row in rows]
    assert filled[0] == 3
    assert filled[1:4] == [5 + 3 + 1] * 3
    assert filled[4:62] == [5 + 1 + 1 + 3 + 1 + 1] * 58
    assert {str(layer) for layer in range(61)} <= set(_page().headings)


def test_the_cells_name_every_tensor_once() -> None:
    """What the map shows is the whole contract, no tensor left out or shown twice."""
    shown = Counter(
        line
        for row in _page().rows
        for cell in row
        for button in cell
        for line in button["title"].splitlines()
        if not line.startswith(("→ ", "by "))
    )
    assert shown == Counter(tensor.name for tensor in _contract().model.tensors)


def test_a_cell_says_the_decision_and_the_rule_behind_it() -> None:
    """The colour is the format's; the text has file and line."""
    (layer,) = (row for row in _page().rows if row and any("layers.7." in b["title"] for c in row for b in c))
    (cell,) = (cell for cell in layer if any("experts.{0..255}" in button["title"] for button in cell))
    (button,) = cell
    assert button["class"] == "f-nvfp4"
    assert button["data-at"] == "layer 7, MoE routed experts"
    assert "→ nvfp4 per_token, backward high_precision" in button["title"]
    assert "by p.prec:2: @routed_experts: nvfp4" in button["title"]


def test_experts_that_differ_split_their_cell() -> None:
    """One segment for each decision, with the experts that have it."""
    policy = POLICY + "experts.{3,4}.* in layers[9]: bf16\n"
    page = Page(render_report(compile_source(SourceFile("p.prec", policy), "deepseek-v3"), (), "t"))
    split = [cell for row in page.rows for cell in row if len(cell) > 1]
    assert [[button["class"] for button in cell] for cell in split] == [["f-nvfp4", "f-bf16"]]
    assert "model.layers.9.mlp.experts.{3..4}.gate_proj.weight" in split[0][1]["title"]


def test_the_digest_policy_and_sizes_are_shown() -> None:
    """The figures are those of the contract."""
    text = " ".join(_page().text)
    bits = sum(entry.stored_bits for entry in _contract().entries)
    assert _contract().digest in text
    assert "deepseek-v3 (DeepseekV3ForCausalLM, 61 decoder layers)" in text
    assert f"{_contract().model.parameters:,}" in text
    assert size_text(bits // 8) in text
    assert f"{bits / _contract().model.parameters:.3f}" in text


def test_findings_are_listed_with_code_place_and_help() -> None:
    """In the order given, severities in words."""
    source = SourceFile("policies/p.prec", POLICY)
    findings = (
        error("P301", "not a multiple", source.span(15, 30), help="use another block"),
        warning("P102", "matches nothing"),
        info("P403", "left in BF16"),
    )
    page = Page(render_report(_contract(), findings, "t"))
    _, text = " ".join(page.text).split(" Findings ")
    places = [text.index(part) for part in ("P301", "error", "not a multiple", "use another block", "P102", "P403")]
    assert places == sorted(places)
    assert "policies/p.prec:2:1" in text


def test_hostile_names_stay_text() -> None:
    """Policy, model, tensors, causes, findings, title: the same elements as for names without markup."""
    page, harmless = (_named(name) for name in (HOSTILE, "name"))
    assert page.tags == harmless.tags
    assert page.tags["script"] == 1
    assert "".join(page.text).count(HOSTILE) == "".join(harmless.text).count("name") >= 8
    assert any(HOSTILE in value for _, name, value in page.attributes if name == "title")


def _named(name: str) -> Page:
    """A report in which everything that others name has one name."""
    contract = _contract()
    entries = tuple(
        replace(
            entry,
            cause=Cause(name, 1, name),
            tensor=replace(entry.tensor, part=name, path=(*entry.tensor.path[:-1], name)),
        )
        for entry in contract.entries
    )
    old = contract.model
    model = ModelGraph(name, name, old.family, old.layers, tuple(e.tensor for e in entries), old.config)
    changed = replace(contract, model=model, entries=entries, policy=name, targets=(name,), kv_cache=name)
    span = SourceFile(name, name).span(0, 1)
    return Page(render_report(changed, (Diagnostic(name, Severity.ERROR, name, span, help=name),), name))


def test_the_same_contract_gives_the_same_page() -> None:
    """No time, no order of a hash table."""
    again = compile_source(SourceFile("p.prec", POLICY), "deepseek-v3")
    assert render_report(again, (), "t") == render_report(_contract(), (), "t")


@pytest.mark.parametrize("model", ["qwen3-8b", "deepseek-v3.2", "mixtral-8x7b"])
def test_every_family_fits_the_map(model: str) -> None:
    """Dense models, indexers, experts without a shared one: no tensor is without a cell."""
    contract = compile_source(SourceFile("p.prec", "default: bf16\n"), model)
    page = Page(render_report(contract, (), "t"))
    titles = [button["title"] for row in page.rows for cell in row for button in cell]
    assert sum(title.count("\n") - 1 for title in titles) >= len(contract.model.tensors)
    assert len({len(row) for row in page.rows if row}) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_text_on_every_format_is_readable(form: str) -> None:
    """Every format has a colour, and the page's text has a contrast of at least 4.5 on it, light and dark."""
    light, dark = FORMAT_COLOURS[form]
    assert _contrast("#1b1f24", light) >= 4.5
    assert _contrast("#e6e9ed", dark) >= 4.5


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
