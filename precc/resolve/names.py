"""Names: `let` and `extends` are replaced by what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os.path import basename, splitext

from precc.diagnostics import Diagnostic, Edit, Fix, Label, error
from precc.formats.table import FORMATS
from precc.records import replace
from precc.resolve.policy import Policy, PolicyRule
from precc.source import Span
from precc.syntax import parse
from precc.syntax.ast import (
    BackwardClause,
    Clause,
    Default,
    Expect,
    Extends,
    File,
    KvCache,
    Layout,
    Let,
    OperandClause,
    PolicyName,
    ReferenceClause,
    Rule,
    Spec,
    Targets,
    TrainClause,
)

Findings = list[Diagnostic]


def resolve_names(file: File) -> tuple[Policy, tuple[Diagnostic, ...]]:
    """This is the policy of a file, with everything that it extends."""
    findings: Findings = []
    return _resolve(file, (file.source.path,), findings), tuple(findings)


class _Scope:
    """What is visible in one file so far."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.lets: dict[str, Let] = {}

    def expand(self, spec: Spec) -> tuple[Clause, ...]:
        clauses = tuple(self._expand(spec))
        _check_contradictions(clauses, spec.span, self.findings)
        return clauses

    def _expand(self, spec: Spec) -> Iterator[Clause]:
        for clause in spec.clauses:
            if not isinstance(clause, ReferenceClause):
                yield clause
            elif clause.name in self.lets:
                yield from self._expand(self.lets[clause.name].spec)
            else:
                self.findings.append(_unknown(clause, tuple(self.lets)))


def _resolve(file: File, chain: tuple[str, ...], findings: Findings) -> Policy:
    """The policy of the file that lies where the chain of extending files ends."""
    scope = _Scope(findings)
    policy = _base(file, chain, findings)
    for statement in file.statements:
        if isinstance(statement, Let):
            scope.expand(statement.spec)
            scope.lets.setdefault(statement.name, statement)
        elif isinstance(statement, Default):
            rule = PolicyRule((), scope.expand(statement.spec), statement.span)
            policy = replace(policy, default=rule)
        elif isinstance(statement, Rule):
            rule = PolicyRule(statement.selectors, scope.expand(statement.spec), statement.span)
            policy = replace(policy, rules=(*policy.rules, rule))
        else:
            policy = _with_statement(policy, statement)
    return replace(policy, ignores=(*policy.ignores, *file.ignores))


def _with_statement(policy: Policy, statement: object) -> Policy:
    match statement:
        case PolicyName(name=name):
            return replace(policy, name=name)
        case KvCache():
            return replace(policy, kv_cache=statement)
        case Targets():
            return replace(policy, targets=statement)
        case Layout(side="train"):
            return replace(policy, train=(*policy.train, statement))
        case Layout():
            return replace(policy, rollout=(*policy.rollout, statement))
        case Expect():
            return replace(policy, expects=(*policy.expects, statement))
    return policy


def _base(file: File, chain: tuple[str, ...], findings: Findings) -> Policy:
    """The policy that a file starts from: the one it extends, marked as inherited, or an empty one."""
    own = Policy(splitext(basename(file.source.path))[0], file.source)
    extends = next((s for s in file.statements if isinstance(s, Extends)), None)
    if extends is None:
        return own
    from precc.resolve.extends import read_extended

    found = read_extended(extends, chain)
    if isinstance(found, Diagnostic):
        findings.append(found)
        return own
    source, path = found
    parsed, problems = parse(source)
    findings.extend(problems)
    parent = _resolve(parsed, (*chain, path), findings)
    rules = tuple(replace(rule, inherited=True) for rule in parent.rules)
    default = None if parent.default is None else replace(parent.default, inherited=True)
    return replace(parent, name=own.name, source=own.source, rules=rules, default=default, inherited_default=default)


def _unknown(clause: ReferenceClause, lets: tuple[str, ...]) -> Diagnostic:
    near = _nearest(clause.name, [*FORMATS, *lets])
    fix = Fix((Edit(clause.span, near.strip("`")),), safe=False) if near else None
    known = f"formats: {', '.join(FORMATS)}" + (f"; names: {', '.join(lets)}" if lets else "")
    return error(
        "P002",
        f"`{clause.name}` is neither a format nor a name defined above",
        clause.span,
        help=f"did you mean {near}? {known}" if near else known,
        fix=fix,
    )


def _nearest(word: str, known: list[str]) -> str | None:
    from difflib import get_close_matches

    lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"`{lower[found[0]]}`" if found else None


_SLOTS: tuple[tuple[str, Callable[[Clause], bool]], ...] = (
    ("weights", lambda c: isinstance(c, OperandClause) and c.operand in (None, "weight")),
    ("inputs", lambda c: isinstance(c, OperandClause) and c.operand in (None, "input")),
    ("backward mode", lambda c: isinstance(c, BackwardClause)),
    ("training mode", lambda c: isinstance(c, TrainClause)),
)


def _check_contradictions(clauses: tuple[Clause, ...], span: Span, findings: Findings) -> None:
    """After names are replaced, each part of a spec may be said once."""
    if any(finding.code == "P007" and finding.span == span for finding in findings):
        return
    for what, fills in _SLOTS:
        found = [clause for clause in clauses if fills(clause)]
        if len(found) > 1 and len({clause.span.source.path for clause in found}) == 1:
            outside = any(not span.start <= clause.span.start < span.end for clause in found)
            if outside:
                findings.append(_contradiction(what, found, span))
                return


def _contradiction(what: str, found: list[Clause], span: Span) -> Diagnostic:
    labels = tuple(Label(clause.span, "said here") for clause in found)
    return error("P007", f"this spec says the {what} twice", span, labels=labels, help="keep one of them")
