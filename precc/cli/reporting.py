"""From findings to text: order, merging over models, selection by code, the renderers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from precc.cli.terminal import colored
from precc.diagnostics import Diagnostic
from precc.records import replace

FORMATS = ("text", "concise", "json", "github", "sarif")


def merge_models(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings that say the same of the same place on several models become one, which names the models."""
    first: dict[tuple[object, ...], Diagnostic] = {}
    models: dict[tuple[object, ...], dict[str, None]] = {}
    for finding in findings:
        key = (finding.code, finding.severity, finding.message, finding.span)
        first.setdefault(key, finding)
        names = models.setdefault(key, {})
        if finding.model:
            names[finding.model] = None
    return [replace(finding, model=", ".join(models[key]) or None) for key, finding in first.items()]


def render(findings: Sequence[Diagnostic], format: str) -> str:
    """The findings as one of `FORMATS`; machines get each model's own."""
    if format == "text":
        from precc.diagnostics import text

        return text.render(merge_models(findings), colored(sys.stdout))
    if format == "sarif":
        from precc import __version__
        from precc.cli.pages import sarif_rules
        from precc.diagnostics import sarif

        return sarif.render(findings, __version__, sarif_rules({finding.code for finding in findings}))
    shown = findings if format == "json" else merge_models(findings)
    text_of: str = import_module(f"precc.diagnostics.{format}").render(shown)
    return text_of


def show_beside(findings: Sequence[Diagnostic]) -> None:
    """This writes findings to the error stream, beside a verb's own output."""
    if findings:
        from precc.diagnostics import text

        merged = merge_models(findings)
        shown = text.render(merged, colored(sys.stderr)) + text.summary(merged)
        print(shown, file=sys.stderr)
