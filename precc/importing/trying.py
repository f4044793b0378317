"""An imported policy compiled for every target: what each makes of it, and a text that compiles for those that can.

What a source holds is there already, whatever an engine makes of it. Where an engine has a known defect with it (P702)
the line says that this is meant; the finding is told once, as a warning. A target that refuses is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from precc.backend import Backend
from precc.diagnostics import Diagnostic, Severity, warning
from precc.graph.model import ModelGraph
from precc.pipeline import Compilation, compile_policy
from precc.records import field, record, replace
from precc.source import SourceFile

REFUSED = "P909"
MEANT = "P702"
"""The code that an import silences: the engine runs the format, and not as it is written."""

REASON = "as it is published"


@record
class Tried:
    """The text, the targets that it compiles for, and what there is to say about the others and about defects.

    `done` are the last compiles, by target.
    """

    text: str
    targets: tuple[str, ...]
    findings: tuple[Diagnostic, ...]
    done: Mapping[str, Compilation] = field(repr=False)


def try_targets(text: str, graph: ModelGraph, backends: Sequence[Backend]) -> Tried:
    """This compiles the policy for each target by itself."""
    done = {backend.name: _compiled(text, graph, backend) for backend in backends}
    meant = [finding for compilation in done.values() for finding in _errors(compilation) if finding.code == MEANT]
    if meant:
        text = _silenced(text, {finding.span.line for finding in meant if finding.span is not None})
        done = {backend.name: _compiled(text, graph, backend) for backend in backends}
    refused = {name: _errors(compilation) for name, compilation in done.items() if compilation.has_errors}
    accepted = tuple(name for name in done if name not in refused)
    if refused and accepted:
        text = _narrowed(text, accepted)
    findings = (*map(_as_meant, meant), *(_refusal(name, errors) for name, errors in refused.items()))
    return Tried(text, accepted, findings, done)


def _compiled(text: str, graph: ModelGraph, backend: Backend) -> Compilation:
    return compile_policy(SourceFile("imported.prec", text), graph, [backend])


def _errors(done: Compilation) -> list[Diagnostic]:
    return [finding for finding in done.findings if finding.is_error]


def _silenced(text: str, lines: set[int]) -> str:
    comment = f"  # precc: ignore[{MEANT}] {REASON}"
    return "".join(
        f"{line}{comment if number in lines else ''}\n" for number, line in enumerate(text.splitlines(), start=1)
    )


def _narrowed(text: str, targets: Sequence[str]) -> str:
    """The text with a line of its targets, behind the default and the KV cache."""
    return "\n".join(_with_targets(text.splitlines(), f"targets: {', '.join(targets)}")) + "\n"


def _with_targets(lines: Sequence[str], said: str) -> Iterator[str]:
    heads = ("default:", "kv_cache:", "train:", "rollout:")
    last = max(number for number, line in enumerate(lines) if line.startswith(heads))
    for number, line in enumerate(lines):
        yield line
        if number == last:
            yield said


def _as_meant(finding: Diagnostic) -> Diagnostic:
    return replace(
        finding,
        severity=Severity.WARNING,
        span=None,
        help="the policy silences this where it decides so, since the source holds it that way",
    )


def _refusal(name: str, errors: Sequence[Diagnostic]) -> Diagnostic:
    first, more = errors[0], len(errors) - 1
    others = f" (and {more} more error{'' if more == 1 else 's'})" if more else ""
    return warning(
        REFUSED, f"the target {name} refuses the policy: {first.code}, {first.message}{others}", help=first.help
    )
