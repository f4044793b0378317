"""`precc fmt`: policies in their canonical form."""

from __future__ import annotations

import sys
from argparse import Namespace
from difflib import unified_diff
from io import StringIO

from precc.cli.arguments import ArgumentParser
from precc.cli.paths import policy_files
from precc.cli.reporting import show_beside
from precc.cli.writing import write_file
from precc.diagnostics import Diagnostic
from precc.source import SourceFile
from precc.syntax import format_source, read_source

DESCRIPTION = "Format policies in place. A file with syntax errors is left as it is."
EXAMPLES = """\
  precc fmt                    every policy below this folder
  precc fmt policy.prec --diff what would change
  precc fmt --check            status 1 if something would change"""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `fmt`."""
    parser.add_policies()
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change, exit as --check")


def run(options: Namespace) -> int:
    """This formats every file, or tells which ones would change."""
    dry = options.check or options.diff
    changed, failures = [], 0
    files = policy_files(options.files)
    for path in files:
        source, text, findings = _format(path)
        show_beside(findings)
        failures += bool(findings)
        if text == source.text:
            continue
        changed.append(path)
        if options.diff:
            sys.stdout.writelines(_diff(source, text))
        elif dry:
            print(f"would format {path}")
        else:
            write_file(path, text)
            print(f"formatted {path}")
    print(_summary(len(changed), len(files) - len(changed) - failures, failures, dry), file=sys.stderr)
    return int(failures > 0 or (dry and bool(changed)))


def _format(path: str) -> tuple[SourceFile, str, list[Diagnostic]]:
    source = read_source(path)
    if isinstance(source, Diagnostic):
        return SourceFile(path, ""), "", [source]
    text, findings = format_source(source)
    return source, source.text if findings else text, list(findings)


def _diff(source: SourceFile, text: str) -> list[str]:
    before, after = (StringIO(version, newline="\n").readlines() for version in (source.text, text))
    lines = unified_diff(before, after, source.path, f"{source.path} (formatted)")
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]


def _summary(changed: int, unchanged: int, failures: int, dry: bool) -> str:
    parts = (
        (changed, "would be formatted" if dry else "formatted"),
        (unchanged, "unchanged"),
        (failures, "with errors"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count)
