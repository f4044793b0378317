"""The frame around the verbs: help, mistakes, verbs of backends, and how a command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.commands import PRECC, Run, precc

from precc import __version__
from precc.cli import VERBS


def test_help_lists_every_verb(run: Run) -> None:
    """The overview is what a new user sees first."""
    for option in ("--help", "-h"):
        result = run(option)
        assert result.status == 0
        assert all(f"  {verb} " in result.out for verb in VERBS)


def test_no_verb_shows_the_help_as_a_mistake(run: Run) -> None:
    """A script that lost its arguments must not look successful."""
    result = run()
    assert (result.status, result.out) == (2, "")
    assert "usage: precc VERB" in result.err


def test_the_version_is_printed(run: Run) -> None:
    """As every command line does."""
    assert run("--version") == (0, f"precc {__version__}\n", "")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(run: Run, verb: str) -> None:
    """Examples that name the verb stand below the options."""
    result = run(verb, "--help")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"usage: precc {verb} ")
    assert (
        f"\n  precc {verb}" in result.out.split("examples:\n", 1)[1]
        or f"precc {verb}" in result.out.split("examples:\n")[1]
    )


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["complie"], "there is no verb `complie`; did you mean `precc compile`?"),
        (["--frobnicate"], "unknown option `--frobnicate`"),
        (["lint", "--slect", "P1"], "unrecognized arguments: --slect"),
        (["lint", "--output-format", "xml"], "invalid choice: 'xml'"),
        (["explain", "x.prec"], "the following arguments are required: TENSOR"),
        (["plan"], "the following arguments are required: FILE"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_status_2(run: Run, arguments: list[str], words: str) -> None:
    """No usage block above it, no traceback below."""
    result = run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("precc: error: ")
    assert words in result.err
    assert result.err.count("\n") == 1


def install_verb(site: Path, name: str, body: str) -> None:
    """This installs a distribution that registers a verb, as a backend would."""
    module = f"verb_{name}"
    (site / f"{module}.py").write_text(
        'DESCRIPTION = "A verb of a backend."\nEXAMPLES = ""\n\n\n'
        "def configure(parser):\n    parser.add_argument('words', nargs='*')\n\n\n"
        f"def run(options):\n    {body}\n"
    )
    info = site / f"backend_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: backend-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[precc.verbs]\n{name} = {module}\n")


def test_a_backend_brings_a_verb_by_entry_point(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview lists it, and it gets its own arguments."""
    install_verb(project, "polish", "print(*options.words)\n    return 1")
    monkeypatch.syspath_prepend(str(project))
    assert "\n  polish " in run("--help").out
    assert run("polish", "a", "b") == (1, "a b\n", "")


def test_an_internal_error_is_one_line_that_asks_for_a_report(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback says nothing to the author of a policy; PRECC_TRACEBACK=1 shows it to us."""
    install_verb(project, "stumble", "raise KeyError('gate_up')")
    monkeypatch.syspath_prepend(str(project))
    result = run("stumble")
    assert result.status == 2
    assert result.err.startswith("precc: internal error: KeyError: 'gate_up'; this is a defect of precc")
    assert result.err.count("\n") == 1
    monkeypatch.setenv("PRECC_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in run("stumble").err


def test_an_interrupt_ends_with_status_130(project: Path) -> None:
    """As the shell expects of Ctrl-C, with nothing printed."""
    install_verb(project, "wait", "import time; print('ready', flush=True); time.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": str(project)}
    with subprocess.Popen([*PRECC, "wait"], stdout=-1, stderr=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    """`precc models | head -1` ends silently, whatever was left to write."""
    command = f"'{sys.executable}' -c 'import sys; from precc.cli import main; sys.exit(main())' rule P001"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(command, shell=True, stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=project)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("stream", [0, 1, 2])
@pytest.mark.parametrize("verb", ["models", "lint"])
def test_a_stream_that_was_closed_is_no_error(project: Path, verb: str, stream: int) -> None:
    """`precc models >&-` does what it does, and shows it nobody."""
    (project / "policy.prec").write_text("default: bf16\n")
    arguments = [verb, "policy.prec"] if verb == "lint" else [verb]
    command = f"'{sys.executable}' -m precc {' '.join(arguments)} {stream}>&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (stream != 1)


def test_a_file_does_not_get_the_number_of_a_closed_stream(project: Path) -> None:
    """Else what a library prints by itself would go into it."""
    install_verb(project, "number", "import os; os._exit(os.open('file', os.O_CREAT | os.O_WRONLY))")
    environment = {**os.environ, "PYTHONPATH": str(project)}
    command = f"'{sys.executable}' -m precc number 0>&- 1>&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=project, env=environment).returncode > 2


def test_output_survives_an_encoding_that_lacks_a_character(project: Path) -> None:
    """A policy's comments are in any script, a log's encoding may be ASCII."""
    (project / "policy.prec").write_text("精度: bad\n", encoding="utf-8")
    result = precc("lint", "policy.prec", cwd=project, env={"PYTHONIOENCODING": "ascii"})
    assert result.status == 1
    assert "\\u7cbe" in result.out
    assert result.err == ""
