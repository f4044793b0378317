"""This module finds clauses of one spec that state the same thing twice, or two things at once."""

from __future__ import annotations

from collections.abc import Iterator

from precc.records import stated
from precc.source import Span
from precc.syntax import ast
from precc.syntax.findings import Findings


def check_contradictions(spec: ast.Spec, findings: Findings) -> None:
    """Report each clause that decides what an earlier clause of the spec has decided."""
    decided: dict[str, Span] = {}
    for clause in spec.clauses:
        here = dict.fromkeys(subjects(clause))
        again = next((subject for subject in here if subject in decided), None)
        if again:
            message = f"this spec decides {again} twice"
            help = "keep one of the two clauses"
            findings.report("P007", message, clause.span, help=help, first=decided[again])
        for subject in here:
            decided.setdefault(subject, clause.span)


def subjects(clause: ast.Clause) -> Iterator[str]:
    """What a clause decides, in words; nothing for one whose options were all reported."""
    if isinstance(clause, ast.OperandClause):
        for operand in (clause.operand,) if clause.operand else ("weight", "input"):
            yield f"the {operand}'s format"
            yield from _stated(clause.options, operand)
    elif isinstance(clause, ast.OptionClause):
        yield from _stated(clause.options, "weight")
    elif isinstance(clause, ast.BackwardClause):
        yield "the backward mode"
    elif isinstance(clause, ast.TrainClause):
        yield "the trainer's forward"
    else:
        yield f"`{clause.switch if isinstance(clause, ast.SwitchClause) else clause.name}`"


def _stated(options: ast.Options, operand: str) -> Iterator[str]:
    for option in stated(options):
        yield f"the {operand}'s `{option}`"
