"""The command line: one module a verb, loaded when its verb is given.

A verb module has `DESCRIPTION`, `EXAMPLES`, `configure(parser)` and `run(options) -> int`. A backend adds a verb by
registering such a module, with a `SUMMARY` of one line for the overview, in the entry-point group `precc.verbs`.

Exit status: 0 clean, 1 findings, 2 usage or internal error, 130 interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from precc.cli.arguments import ArgumentParser
from precc.cli.errors import Refused, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "precc.verbs"
"""The entry-point group in which a backend registers verbs of its own."""

VERBS = {
    "lint": "check policies, by themselves or on models",
    "fmt": "format policies",
    "compile": "write what each engine needs to run a policy on a model",
    "plan": "show what a policy decides on a model: counts, bytes, bits a weight",
    "explain": "show why one tensor has its format",
    "rule": "show the page of a diagnostic",
    "verify": "check that a compiled folder still says what its contract says",
    "attest": "check a launch line and its environment against a contract, before anything starts",
    "diff": "compare what two policies decide on a model",
    "import": "turn another tool's configuration into a policy that decides the same",
    "models": "list the models known by name",
    "formats": "list the number formats",
    "targets": "list the targets, their engines and the versions modelled",
}

MODULES = {"import": "import_", "rule": "rules"}
"""Verbs whose module has another name."""


class Verb(Protocol):
    """What a verb module has."""

    DESCRIPTION: str
    EXAMPLES: str

    def configure(self, parser: ArgumentParser) -> None:
        """This adds the verb's arguments."""

    def run(self, options: object) -> int:
        """This runs the verb; the result is the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """This runs a command line and returns its exit status; nothing is raised."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    _open_closed()
    _accept_any_text()
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except UsageError as problem:
        return _complain(f"error: {problem}")
    except BrokenPipeError:
        return _stop_writing()
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except OSError as problem:
        return _guard(problem, f"error: {problem.filename or 'the system'}: {problem.strerror or problem}")
    except Exception as problem:
        return 130 if _is_interrupted(problem) else _guard(problem, _internal(problem))


def _is_interrupted(problem: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C: a pool of processes that is stopped while it starts raises one of its own."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__context__
    return problem is not None


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview(), end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from precc import __version__

        print(f"precc {__version__}")
        return 0
    verb = find(arguments[0])
    parser = ArgumentParser(arguments[0], verb.DESCRIPTION, verb.EXAMPLES)
    verb.configure(parser)
    options = parser.parse_args(arguments[1:])
    try:
        return verb.run(options)
    except Refused as refused:
        return _refuse(refused, getattr(options, "output_format", None))


def _refuse(refused: Refused, format: str | None) -> int:
    """The findings that leave a verb without a result: for machines as `{findings}`."""
    if format == "json":
        from precc.cli.terminal import print_json
        from precc.diagnostics.json import to_json

        print_json({"findings": [to_json(finding) for finding in refused.findings]})
    else:
        from precc.cli.reporting import show_beside

        show_beside(refused.findings)
    return 1


def find(name: str) -> Verb:
    """This loads a verb's module. Raises UsageError for a name that is none."""
    if name in VERBS:
        return import_module(f"precc.cli.{MODULES.get(name, name)}")
    if name.startswith("-"):
        raise UsageError(f"unknown option `{name}`", "options stand behind a verb: `precc lint --select P1 FILE`")
    points = _registered()
    if name not in points:
        raise UsageError(f"there is no verb `{name}`", _suggest(name, [*VERBS, *points]))
    return points[name].load()  # type: ignore[no-any-return]


def _registered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _suggest(name: str, verbs: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, verbs, n=1)
    return f"did you mean `precc {near[0]}`?" if near else f"verbs: {', '.join(verbs)}"


def _overview() -> str:
    verbs = summaries()
    width = max(map(len, verbs))
    lines = ["usage: precc VERB …", "", "One precision policy for training, serving and conversion.", ""]
    lines += [f"  {verb:<{width}}  {summary}" for verb, summary in verbs.items()]
    lines += ["", "`precc VERB --help` shows the options of a verb, with examples.", ""]
    lines += ["examples:", "  precc lint policy.prec --model deepseek-v3"]
    lines += ["  precc compile nvfp4_rl --model qwen3-30b-a3b -o out", "  precc rule P101"]
    return "\n".join(lines) + "\n"


def summaries() -> dict[str, str]:
    """What each verb does in a line; those of backends after precc's own."""
    return {**VERBS, **{name: _summary(point) for name, point in sorted(_registered().items())}}


def _summary(point: EntryPoint) -> str:
    """What a backend's verb says of itself; one that does not load must not take the overview with it."""
    try:
        return str(getattr(point.load(), "SUMMARY", "(from an installed backend)"))
    except Exception as problem:
        return f"(does not load: {type(problem).__name__}: {problem})"


def _open_closed() -> None:
    """A stream that was closed before the command began (`>&-`) takes what is written, and shows it nobody.

    Its number is then no more that of the next file that is opened, which a library's output would go into.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _accept_any_text() -> None:
    """A file name or a message that the terminal's encoding lacks must not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _complain(text: str) -> int:
    from precc.diagnostics.places import printable

    print(f"precc: {printable(text)}", file=sys.stderr)
    return 2


def _guard(problem: BaseException, text: str) -> int:
    if os.environ.get("PRECC_TRACEBACK") == "1":
        from traceback import print_exception

        print_exception(problem)
    return _complain(text)


def _internal(problem: Exception) -> str:
    what = f"{type(problem).__name__}: {problem}".rstrip(": ")
    return (
        f"internal error: {what[:300]}; this is a defect of precc: please report it with the command and the policy "
        "(PRECC_TRACEBACK=1 shows where it happened)"
    )


def _stop_writing() -> int:
    """Python would flush what is left at exit, and fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
