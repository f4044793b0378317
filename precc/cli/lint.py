"""`precc lint`: what is wrong with policies, by themselves or on models."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.errors import Refused, UsageError
from precc.cli.paths import policy_files, shown
from precc.cli.reporting import FORMATS, merge_models, render
from precc.diagnostics import Diagnostic, Severity
from precc.front import ordered, read_policy
from precc.records import replace
from precc.rules.ignores import Ignores
from precc.source import SourceFile
from precc.syntax import read_source

if TYPE_CHECKING:
    from precc.cli.subjects import Targets
    from precc.graph.model import ModelGraph

DESCRIPTION = "Check policies: syntax and names by themselves; with --model everything that a compile would check."
EXAMPLES = """\
  precc lint                                         every policy below this folder
  precc lint policy.prec --model deepseek-v3 --model qwen3-30b-a3b
  precc lint policies --select P1,P3 --output-format github
  precc lint policy.prec --fix

JSON: a list of {code, severity, message, model, file, line, column, end_line, end_column, labels, help, url,
fix}; lines and columns count from one, the end column is the one behind the last character; fix is null or
{safe, edits}. Status 1 for errors and warnings; information never changes it."""

UNUSED_IGNORE = "P017"
ROUNDS = 10
"""Rounds of fixing after which a file is left as it is."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `lint`."""
    parser.add_policies()
    parser.add_models()
    parser.add_targets()
    parser.add_layouts()
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes")
    for option, what in (("--select", "show only"), ("--ignore", "leave out")):
        parser.add_argument(
            option, action="append", metavar="CODES", help=f"{what} these codes, or codes that begin so: P101,P3"
        )
    parser.add_output_format(*FORMATS)
    parser.add_argument("--exit-zero", action="store_true", help="exit with status 0 although there are findings")


def run(options: Namespace) -> int:
    """This prints the findings of every file."""
    files = policy_files(options.files)
    fill(options, files[0])
    format = options.output_format or "text"
    if format not in FORMATS:
        raise UsageError(f"there is no output format `{format}`", f"formats: {', '.join(FORMATS)}")
    chosen = _Selection(options)
    linter = _Linter(options)
    findings = [finding for path in files for finding in chosen(linter.lint(path, options.fix))]
    if findings or format != "text":
        print(render(findings, format), end="")
    if format == "text":
        print(_summary(findings, len(files), bool(options.models)))
    counted = any(finding.severity is not Severity.INFO for finding in findings)
    return int(counted and not options.exit_zero)


def _summary(findings: list[Diagnostic], files: int, models: bool) -> str:
    if findings:
        from precc.diagnostics.text import summary

        return summary(merge_models(findings))
    unseen = "" if models else "; nothing was checked on a model (--model)"
    return f"no findings in {files} file{'' if files == 1 else 's'}{unseen}"


class _Selection:
    """`--select` and `--ignore`: which findings are shown."""

    def __init__(self, options: Namespace) -> None:
        self._select = self._codes(options.select, "--select")
        self._ignore = self._codes(options.ignore, "--ignore")

    @staticmethod
    def _codes(words: list[str] | None, option: str) -> tuple[str, ...]:
        if not words:
            return ()
        from precc.cli.pages import check_codes

        return check_codes(words, option)

    def __call__(self, findings: Iterable[Diagnostic]) -> list[Diagnostic]:
        return [
            finding
            for finding in findings
            if (not self._select or finding.code.startswith(self._select))
            and not (self._ignore and finding.code.startswith(self._ignore))
        ]


class _Linter:
    """What is linted with: nothing, or models, targets and layouts."""

    def __init__(self, options: Namespace) -> None:
        self._models: list[ModelGraph] = []
        self._targets: Targets | None = None
        if options.models:
            from precc.cli.subjects import Targets, read_models, settings

            self._models = read_models(options.models)
            self._targets = Targets(options)
            self._settings = settings(options)

    def lint(self, path: str, fix: bool) -> list[Diagnostic]:
        """The findings of one file, after its safe fixes where they are asked for."""
        source = read_source(path)
        if isinstance(source, Diagnostic):
            return [source]
        source = replace(source, path=shown(path))
        findings = self._check(source)
        if fix:
            fixed = self._fix(path, source, findings)
            findings = findings if fixed is source else self._check(fixed)
        return list(ordered(findings, source.path))

    def _fix(self, path: str, source: SourceFile, findings: list[Diagnostic]) -> SourceFile:
        from precc.cli.fixing import apply_fixes
        from precc.cli.writing import write_file

        total, fixed = 0, source
        for _ in range(ROUNDS):
            text, count = apply_fixes(fixed, findings)
            if not count or text == fixed.text:
                break
            total += count
            fixed = SourceFile(source.path, text)
            findings = self._check(fixed)
        if total:
            write_file(path, fixed.text)
            print(f"{source.path}: {total} finding{'' if total == 1 else 's'} fixed", file=sys.stderr)
        return fixed

    def _check(self, source: SourceFile) -> list[Diagnostic]:
        """What the policy shows by itself, then what is new on each model."""
        read = policy, findings = read_policy(source)
        alone = list(Ignores(policy.ignores, source.path).filter(findings))
        if self._targets is None or any(finding.is_error for finding in alone):
            return alone
        from precc.pipeline import compile_read

        try:
            backends = self._targets.backends(policy)
        except Refused as refused:
            return [*alone, *refused.findings]
        chosen = replace(self._settings, complete=self._targets.are_all(policy))
        runs = [compile_read(read, model, backends, chosen).findings for model in self._models]
        return [*alone, *_on_models(runs, set(alone))]


def _on_models(runs: list[tuple[Diagnostic, ...]], alone: set[Diagnostic]) -> Iterable[Diagnostic]:
    """The findings of each model. An ignore comment is unused if it is so on every model."""
    unused = [{finding for finding in run if finding.code == UNUSED_IGNORE} for run in runs]
    everywhere = set.intersection(*unused)
    for run in runs:
        for finding in run:
            if finding.code != UNUSED_IGNORE and replace(finding, model=None) not in alone:
                yield finding
    yield from sorted(everywhere, key=lambda finding: finding.span.start if finding.span else 0)
