"""Findings in SARIF 2.1.0 (OASIS), the format that code-scanning services read.

Columns count code points and an end is exclusive, which is what `columnKind` and SARIF's `endColumn` say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from precc.diagnostics import Diagnostic, Edit, Fix, Label, Severity
from precc.diagnostics.places import place
from precc.source import Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class Rule(NamedTuple):
    """What SARIF tells of a code: its name, its usual severity, its title and its page in Markdown."""

    name: str
    severity: Severity
    title: str
    page: str


def render(findings: Iterable[Diagnostic], version: str, rules: Mapping[str, Rule]) -> str:
    """This renders one run; `rules` are those of the codes that have a page."""
    found = list(findings)
    codes = sorted({finding.code for finding in found})
    driver = {
        "name": "precc",
        "semanticVersion": version,
        "rules": [_rule(code, rules.get(code)) for code in codes],
    }
    results = [_result(finding, codes.index(finding.code)) for finding in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(code: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        return {"id": code}
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "help": {"text": rule.page, "markdown": rule.page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Diagnostic, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": _message(finding)},
        "partialFingerprints": {"precc/v1": _fingerprint(finding)},
    }
    if finding.span is not None:
        result["locations"] = [_location(finding.span)]
    if finding.labels:
        result["relatedLocations"] = [_related(number, label) for number, label in enumerate(finding.labels)]
    if finding.fix is not None:
        result["fixes"] = [_fix(finding.fix, finding.help)]
    return result


def _message(finding: Diagnostic) -> str:
    model = f" [{finding.model}]" if finding.model else ""
    return f"{finding.message}{model}" + (f"\n{finding.help}" if finding.help else "")


def _fingerprint(finding: Diagnostic) -> str:
    """What stays when lines move: the code, the model, the file, and the text that the finding is about."""
    span = finding.span
    where = [] if span is None else [span.source.path, " ".join(span.text.split())]
    return sha256("\0".join([finding.code, finding.model or "", *where]).encode(errors="replace")).hexdigest()


def _location(span: Span) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _file(span), "region": _region(span)}}


def _related(number: int, label: Label) -> dict[str, Any]:
    return {"id": number, **_location(label.span), "message": {"text": label.message}}


def _file(span: Span) -> dict[str, str]:
    path = span.source.path.replace("\\", "/")
    address = quote(path, errors="replace")
    return {"uri": f"file://{address}" if path.startswith("/") else address}


def _region(span: Span) -> dict[str, int]:
    spot = place(span)
    return {
        "startLine": spot.line,
        "startColumn": spot.column,
        "endLine": spot.end_line,
        "endColumn": spot.end_column,
    }


def _fix(fix: Fix, help: str | None) -> dict[str, Any]:
    files: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        files.setdefault(edit.span.source.path, []).append(edit)
    changes = [
        {"artifactLocation": _file(edits[0].span), "replacements": [_replacement(edit) for edit in edits]}
        for edits in files.values()
    ]
    return {"description": {"text": help or "apply the suggested edit"}, "artifactChanges": changes}


def _replacement(edit: Edit) -> dict[str, Any]:
    source = edit.span.source
    line, column = source.position(edit.span.start)
    end_line, end_column = source.position(edit.span.end)
    region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {"deletedRegion": region, "insertedContent": {"text": edit.replacement}}
