"""Findings in SARIF 2.1.0: the properties that its schema requires, and what code scanning makes of them."""

from __future__ import annotations

import json
from typing import Any

from precc.diagnostics import Diagnostic, Edit, Fix, Label, Severity, error, info, warning
from precc.diagnostics.sarif import Rule, render
from precc.source import SourceFile

SOURCE = SourceFile("policies/my policy.prec", "default: bf16\nkv_bproj: bf16\n")
SPAN = SOURCE.span(14, 22)
RULES = {"P101": Rule("unknown-name", Severity.ERROR, "A selector matches nothing.", "A selector…\n\nWrite a name.")}


def run_of(*findings: Diagnostic) -> dict[str, Any]:
    """The one run of a log."""
    log = json.loads(render(findings, "0.1.0", RULES))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    return run


def test_the_tool_names_itself_and_the_rules_it_used() -> None:
    """`tool.driver.name` is required; a rule's metadata comes from its module."""
    driver = run_of(error("P101", "x", SPAN))["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("precc", "0.1.0")
    (rule,) = driver["rules"]
    assert rule["id"] == "P101"
    assert rule["name"] == "UnknownName"
    assert rule["shortDescription"]["text"] == "A selector matches nothing."
    assert rule["defaultConfiguration"]["level"] == "error"
    assert rule["help"]["markdown"].endswith("Write a name.")


def test_a_result_has_its_rule_level_message_and_place() -> None:
    """The index points at the rule; the end column is exclusive; the path is a relative URI."""
    run = run_of(warning("P999", "y", SPAN), error("P101", "x", SPAN, help="write a name").on_model("deepseek-v3"))
    other, result = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[found["ruleIndex"]]["id"] for found in (other, result)] == ["P999", "P101"]
    assert [found["level"] for found in (other, result)] == ["warning", "error"]
    assert result["message"]["text"] == "x [deepseek-v3]\nwrite a name"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "policies/my%20policy.prec"}
    assert place["region"] == {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 9}


def test_information_is_a_note() -> None:
    """SARIF knows `none`, `note`, `warning` and `error`."""
    assert run_of(info("P403", "x"))["results"][0]["level"] == "note"


def test_a_finding_without_a_place_has_no_location() -> None:
    """`locations` may be left out, and may not hold an empty object."""
    assert "locations" not in run_of(error("P702", "x"))["results"][0]


def test_labels_are_related_locations() -> None:
    """The second place with its own message."""
    finding = error("P101", "x", SPAN, labels=(Label(SOURCE.span(0, 7), "the default"),))
    (related,) = run_of(finding)["results"][0]["relatedLocations"]
    assert related["message"]["text"] == "the default"
    assert related["physicalLocation"]["region"]["startLine"] == 1


def test_a_fix_replaces_a_region_of_a_file() -> None:
    """Each of `artifactChanges` and `replacements` is required not to be empty."""
    finding = error("P101", "x", SPAN, fix=Fix((Edit(SPAN, "kv_b_proj"),), safe=False))
    (fix,) = run_of(finding)["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 9}
    assert replacement["insertedContent"] == {"text": "kv_b_proj"}


def test_a_fingerprint_stays_when_lines_move_and_tells_models_apart() -> None:
    """Code scanning follows a finding through edits by its fingerprint."""

    def fingerprint(finding: Diagnostic) -> str:
        return run_of(finding)["results"][0]["partialFingerprints"]["precc/v1"]

    moved = SourceFile(SOURCE.path, f"# one more line\n{SOURCE.text}")
    start = moved.text.index("kv_bproj")
    here, there = error("P101", "x", SPAN), error("P101", "x", moved.span(start, start + 8))
    assert fingerprint(here) == fingerprint(there)
    assert fingerprint(here) != fingerprint(here.on_model("deepseek-v3"))
    assert fingerprint(here) != fingerprint(error("P102", "x", SPAN))


def test_an_absolute_path_is_a_file_uri() -> None:
    """A relative URI is resolved against the repository, an absolute path must not be."""
    finding = error("P101", "x", SourceFile("/tmp/a b.prec", "x").span(0, 1))
    place = run_of(finding)["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "file:///tmp/a%20b.prec"
