"""Names: `let` and `extends` are replaced by what they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from os.path import basename, splitext
from typing import NamedTuple

from precc.diagnostics import Diagnostic, Edit, Fix, Label, error
from precc.formats.table import FORMATS
from precc.records import replace
from precc.resolve.policy import Policy, PolicyRule
from precc.source import Span
from precc.syntax import parse
from precc.syntax.ast import (
    Clause,
    Default,
    Expect,
    Extends,
    File,
    KvCache,
    Layout,
    Let,
    PolicyName,
    ReferenceClause,
    Rule,
    Spec,
    Targets,
)
from precc.syntax.contradictions import subjects

Findings = list[Diagnostic]

ALONE = ("hadamard", "stochastic_rounding", "four_over_six")
"""Words that are a clause by themselves, as a name is."""

ADDED = ("defaults", "rules", "train", "rollout", "expects", "ignores")
"""What a policy has of its base and of its own; of everything else, its own replaces that of the base."""

MAX_NAMES, MAX_WORD = 20, 64
"""How many `let`s a finding knows of, and how much of a word: the file may hold a megabyte of either."""


def resolve_names(file: File) -> tuple[Policy, tuple[Diagnostic, ...]]:
    """This is the policy of a file, with everything that it extends."""
    findings: Findings = []
    policy: Policy | None = None
    for link in reversed(_chain(file, findings)):
        found: Findings = []
        policy = _resolve(link.file, _start(link.file, policy), found)
        findings.extend(link.labelled(found))
    assert policy is not None
    return policy, tuple(findings)


class _Link(NamedTuple):
    """A file of a chain in which each is extended by the one before it; `reached` says where."""

    file: File
    path: str
    reached: tuple[Span, ...] = ()

    def labelled(self, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
        """Findings of this file, with the line that extends it, and the line of the policy that this began with."""
        labels = tuple(Label(span, "extended here") for span in dict.fromkeys((*self.reached[-1:], *self.reached[:1])))
        for finding in findings:
            yield replace(finding, labels=(*finding.labels, *labels))


def _chain(file: File, findings: Findings) -> list[_Link]:
    """The files from this one to the one that extends nothing."""
    links = [_Link(file, file.source.path)]
    while extends := next((s for s in links[-1].file.statements if isinstance(s, Extends)), None):
        from precc.resolve.extends import read_extended

        found = read_extended(extends, tuple(link.path for link in links))
        if isinstance(found, Diagnostic):
            findings.extend(links[-1].labelled([found]))
            break
        source, path = found
        parsed, problems = parse(source)
        links.append(_Link(parsed, path, (*links[-1].reached, extends.span)))
        findings.extend(links[-1].labelled(problems))
    return links


def _start(file: File, parent: Policy | None) -> Policy:
    """The policy that a file starts from: the one it extends, marked as inherited, or an empty one."""
    own = Policy(splitext(basename(file.source.path))[0], file.source)
    if parent is None:
        return own
    rules, defaults = (
        tuple(replace(rule, inherited=True) for rule in inherited) for inherited in (parent.rules, parent.defaults)
    )
    return replace(parent, name=own.name, source=own.source, base=parent.name, rules=rules, defaults=defaults)


def _resolve(file: File, policy: Policy, findings: Findings) -> Policy:
    """The policy that a file makes of the one that it starts from."""
    scope = _Scope(findings)
    replaced: dict[str, object] = {}
    added: dict[str, list[object]] = {name: [] for name in ADDED}
    for statement in file.statements:
        match statement:
            case Let():
                scope.define(statement)
            case Default(spec):
                added["defaults"].append(PolicyRule((), scope.expand(spec), statement.span))
            case Rule(selectors, spec):
                added["rules"].append(PolicyRule(selectors, scope.expand(spec), statement.span))
            case Layout(side):
                added[side].append(statement)
            case Expect():
                added["expects"].append(statement)
            case PolicyName(name):
                replaced["name"] = name
            case KvCache():
                replaced["kv_cache"] = statement
            case Targets():
                replaced["targets"] = statement
    added["ignores"] += file.ignores
    return replace(policy, **replaced, **{name: (*getattr(policy, name), *more) for name, more in added.items()})


class _Scope:
    """What is visible in one file so far: each `let` as the clauses that it stands for, none of them a name."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.lets: dict[str, tuple[Clause, ...]] = {}

    def define(self, let: Let) -> None:
        clauses = self.expand(let.spec)
        self.lets.setdefault(let.name, clauses)

    def expand(self, spec: Spec) -> tuple[Clause, ...]:
        """The clauses of a spec, names replaced. What a name says again is reported, once, and left out."""
        decided: dict[str, Clause] = {}
        kept: list[Clause] = []
        is_reported = False
        for clause, is_own in self._clauses(spec):
            here = tuple(subjects(clause))
            again = next((subject for subject in here if subject in decided), None)
            if again is None:
                kept += [clause] if here else []
                decided.update(dict.fromkeys(here, clause))
            elif not is_reported and not (is_own and _is_in(decided[again], spec)):
                self.findings.append(_contradiction(again, (decided[again], clause), spec.span))
                is_reported = True
        return tuple(kept)

    def _clauses(self, spec: Spec) -> Iterator[tuple[Clause, bool]]:
        """Every clause that a spec stands for, and whether it stands in the spec itself."""
        seen = set()
        for clause in spec.clauses:
            if not isinstance(clause, ReferenceClause):
                yield clause, True
            elif clause.name not in self.lets:
                self.findings.append(_unknown(clause, tuple(islice(reversed(self.lets), MAX_NAMES))))
            elif clause.name not in seen:
                seen.add(clause.name)
                yield from ((meant, False) for meant in self.lets[clause.name])


def _is_in(clause: Clause, spec: Spec) -> bool:
    return spec.span.start <= clause.span.start < spec.span.end


def _unknown(clause: ReferenceClause, lets: tuple[str, ...]) -> Diagnostic:
    """The finding for a word that means nothing; `lets` are the latest names above it, the last one first."""
    word = clause.name[:MAX_WORD]
    near, differs_in_case = _nearest(word, (*FORMATS, *ALONE, *lets))
    known = f"formats: {', '.join(FORMATS)}" + (f"; names: {', '.join(reversed(lets))}" if lets else "")
    return error(
        "P002",
        f"`{word}{'…' * (word != clause.name)}` is neither a format nor a name defined above",
        clause.span,
        help=f"did you mean `{near}`? {known}" if near else known,
        fix=Fix((Edit(clause.span, near),), safe=differs_in_case) if near else None,
    )


def _nearest(word: str, known: tuple[str, ...]) -> tuple[str | None, bool]:
    """The name that looks most like a word, and whether only the case of its letters differs."""
    from difflib import get_close_matches

    same = [name for name in known if name.lower() == word.lower()]
    if same:
        return same[0], len(same) == 1
    lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return (lower[found[0]] if found else None), False


def _contradiction(what: str, clauses: tuple[Clause, ...], span: Span) -> Diagnostic:
    labels = tuple(Label(clause.span, "said here") for clause in clauses)
    message = f"this spec decides {what} twice"
    return error("P007", message, span, labels=labels, help="keep one of the two clauses")
