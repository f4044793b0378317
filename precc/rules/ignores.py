"""`# precc: ignore[P204] reason`: silences those codes on its line."""

from __future__ import annotations

from collections.abc import Iterable

from precc.diagnostics import Diagnostic, Edit, Fix, warning
from precc.syntax.ast import Ignore

ABSENT = "P102"
"""Where a rule does nothing on this model, its ignores cannot be judged."""

NEVER = ("P0", "P501", "P502")
"""Codes that cannot be silenced: the policy cannot be read, or an engine would decide otherwise."""


class Ignores:
    """The ignore comments of a policy and of what it extends, and which of them silenced something."""

    def __init__(self, comments: tuple[Ignore, ...], path: str, model: str | None = None) -> None:
        self._model = model
        self._path = path
        self._comments = comments
        self._used: set[tuple[str, int, str]] = set()
        self._idle: set[tuple[str, int]] = set()

    def filter(self, findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
        """The findings that stay, each tied to the model it was found on."""
        stay = []
        for finding in findings:
            if not self._silences(finding):
                stay.append(finding if self._model is None or finding.model else finding.on_model(self._model))
        return tuple(stay)

    def _silences(self, finding: Diagnostic) -> bool:
        span = finding.span
        if span is None or finding.code.startswith(NEVER):
            return False
        lines = range(span.line, span.source.position(span.end)[0] + 1)
        if finding.code == ABSENT:
            self._idle.update((span.source.path, line) for line in lines)
        for comment in self._comments:
            path = comment.span.source.path
            if path == span.source.path and comment.line in lines and finding.code in comment.codes:
                self._used.add((path, comment.line, finding.code))
                return True
        return False

    def unused(self) -> tuple[Diagnostic, ...]:
        """The ignores of the policy's own file that silenced nothing, once every check has run."""
        return tuple(
            self._unused(comment, code)
            for comment in self._comments
            for code in comment.codes
            if comment.span.source.path == self._path and not self._is_justified(comment, code)
        )

    def _is_justified(self, comment: Ignore, code: str) -> bool:
        place = self._path, comment.line
        return (*place, code) in self._used or place in self._idle

    def _unused(self, comment: Ignore, code: str) -> Diagnostic:
        whole = len(comment.codes) == 1
        fix = Fix((Edit(comment.span, ""),), safe=True) if whole else None
        return warning(
            "P017",
            f"this ignores {code}, which is not found here",
            comment.span,
            help="remove the comment" if whole else f"remove {code} from the list",
            fix=fix,
        )
