"""The first arrows of the pipeline: text → policy. They need no model, and a lint needs no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from precc import rules
from precc.diagnostics import Diagnostic
from precc.resolve.names import resolve_names
from precc.resolve.policy import Policy
from precc.source import SourceFile
from precc.syntax import parse

Findings: TypeAlias = tuple[Diagnostic, ...]


def read_policy(source: SourceFile) -> tuple[Policy, Findings]:
    """Text → policy, with what can be said of it without a model."""
    file, syntax = parse(source)
    policy, names = resolve_names(file)
    findings = (*syntax, *names)
    if not any(finding.is_error for finding in findings):
        findings = (*findings, *rules.check_policy(policy))
    return policy, ordered(findings, source.path)


def ordered(findings: Iterable[Diagnostic], path: str) -> Findings:
    """Findings by their place in a policy's file, then those of the files that it extends, then those without one."""

    def place(finding: Diagnostic) -> tuple[bool, bool, str, int]:
        span = finding.span
        return (True, True, "", 0) if span is None else (False, span.source.path != path, span.source.path, span.start)

    return tuple(sorted(findings, key=place))
