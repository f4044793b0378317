"""`precc rule`, `models`, `formats` and `targets`: what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.commands import Run, at_a_terminal

from precc.backend import available
from precc.formats import FORMATS
from precc.graph.catalogue import catalogue
from precc.graph.reading import read_model


def test_rule_shows_the_page_of_a_code(run: Run) -> None:
    """In any case; the page says what to write."""
    result = run("rule", "p303")
    assert result.status == 0
    assert result.out.startswith("P303 block-on-two-contractions (error)\n")
    assert "kv_b_proj" in result.out


def test_rule_adds_the_sections_of_engines(run: Run) -> None:
    """P701 is one code with a section for each engine's own rule."""
    page = run("rule", "P701", "--output-format", "json").json
    assert list(page) == ["code", "name", "severity", "title", "text", "sections"]
    assert {section["target"] for section in page["sections"]} == {"te", "sglang", "converter", "miles"}
    text = run("rule", "P701").out
    assert all(f"## {section['target']}: {section['name']}" in text for section in page["sections"])


def test_rule_lists_every_code_once(run: Run) -> None:
    """With its severity and what it is about."""
    listed = run("rule", "--output-format", "json").json
    assert all(list(item) == ["code", "name", "severity", "title"] for item in listed)
    assert all(item["title"] and item["severity"] in ("error", "warning", "info") for item in listed)
    codes = [item["code"] for item in listed]
    assert codes == sorted(set(codes))
    assert {"P001", "P101", "P202", "P501", "P509", "P701", "P801"} <= set(codes)
    assert [line.split()[0] for line in run("rule").out.splitlines()[1:]] == codes


@pytest.mark.parametrize("code", ["P999", "banana", ""])
def test_an_unknown_rule_is_a_usage_error(run: Run, code: str) -> None:
    """One line that leads on."""
    result = run("rule", code)
    assert (result.status, result.out) == (2, "")
    assert f"there is no code `{code}`" in result.err


def test_models_lists_the_catalogue(run: Run) -> None:
    """With the published counts."""
    listed = run("models", "--output-format", "json").json
    keys = "name architecture family layers tensors parameters stored_as stored_tensors stored_elements"
    assert all(list(item) == keys.split() for item in listed)
    assert [item["name"] for item in listed] == list(catalogue())
    (deepseek,) = [item for item in listed if item["name"] == "deepseek-v3"]
    assert (deepseek["stored_tensors"], deepseek["stored_elements"]) == (91_991, 684_531_386_000)
    assert len(run("models").out.splitlines()) == len(listed) + 1
    assert {item["stored_as"] for item in listed} >= {"bf16", "fp8_block", "nvfp4", "mxfp4", "int4"}
    assert deepseek["stored_as"] == "fp8_block"
    assert all(item["parameters"] == read_model(item["name"]).parameters for item in listed[:3])


def test_formats_lists_the_language(run: Run) -> None:
    """Each format with what may be chosen."""
    listed = run("formats", "--output-format", "json").json
    assert [item["name"] for item in listed] == list(FORMATS)
    (nvfp4,) = [item for item in listed if item["name"] == "nvfp4"]
    assert (nvfp4["bits"], nvfp4["weight_block"], nvfp4["block_scale"]) == (4, [1, 16], "e4m3")
    assert [line.split()[0] for line in run("formats").out.splitlines()[1:]] == list(FORMATS)


def test_targets_lists_backends_with_the_versions_they_model(run: Run) -> None:
    """Newest first, as the backends say."""
    listed = run("targets", "--output-format", "json").json
    assert [item["name"] for item in listed] == sorted(available())
    engines = {engine: versions for item in listed for engine, versions in item["engines"].items()}
    assert {"megatron_core", "te", "sglang", "flashinfer"} <= engines.keys()
    assert all(versions for versions in engines.values())
    assert "sglang" in run("targets").out


def test_tables_are_drawn_at_a_terminal_and_plain_in_a_pipe(run: Run, project: Path) -> None:
    """Without colours where NO_COLOR asks for none; the words are the same."""
    plain = run("formats").out
    drawn = at_a_terminal(project, "formats", env={"TERM": "xterm", "COLUMNS": "160"})
    uncolored = at_a_terminal(project, "formats", env={"TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"})
    assert "─" in drawn
    assert "─" not in plain
    assert "\x1b[3" not in uncolored
    assert [line.split()[0] for line in plain.splitlines()[1:]] == list(FORMATS)
    assert all(name in drawn for name in FORMATS)
