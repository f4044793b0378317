"""Findings as a JSON list; the shape stands in `to_json`.

Lines and columns count from one, columns in characters; `end_column` is the one behind the last character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from precc.diagnostics import Diagnostic, Edit, Fix, Label
from precc.diagnostics.places import page, place
from precc.source import Span


def render(findings: Iterable[Diagnostic]) -> str:
    """This renders findings as a list of objects."""
    return json.dumps([to_json(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n"


def to_json(finding: Diagnostic) -> dict[str, Any]:
    """One finding. `model`, the place, `help` and `fix` are null where there is none."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "model": finding.model,
        **_place(finding.span),
        "labels": [_label(label) for label in finding.labels],
        "help": finding.help,
        "url": page(finding.code),
        "fix": None if finding.fix is None else _fix(finding.fix),
    }


_NOWHERE = dict.fromkeys(("file", "line", "column", "end_line", "end_column"))


def _place(span: Span | None) -> dict[str, Any]:
    return dict(_NOWHERE) if span is None else {"file": span.source.path, **place(span)._asdict()}


def _label(label: Label) -> dict[str, Any]:
    return {"message": label.message, **_place(label.span)}


def _fix(fix: Fix) -> dict[str, Any]:
    return {"safe": fix.safe, "edits": [_edit(edit) for edit in fix.edits]}


def _edit(edit: Edit) -> dict[str, Any]:
    """An edit's own numbers are exact: it may end at the start of a line, to take the line's end away."""
    source = edit.span.source
    line, column = source.position(edit.span.start)
    end_line, end_column = source.position(edit.span.end)
    numbers = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"file": source.path, **numbers, "replacement": edit.replacement}
