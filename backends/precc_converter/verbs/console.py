"""What the converter's verbs read from a command line, and how they show what they refuse."""

from __future__ import annotations

import json
import signal
import sys
import threading
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from precc_converter.conversion.findings import NotConverted


@contextmanager
def terminable() -> Iterator[None]:
    """This has SIGTERM end the body as Ctrl-C does, so that workers and half-written files go; with status 143."""
    told: list[int] = []

    def end(number: int, frame: object) -> None:
        if not told:
            told.append(number)
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except BaseException:
        if told:
            raise SystemExit(128 + told[0]) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def is_interrupt(problem: BaseException | None) -> bool:
    """Whether an exception came of Ctrl-C or SIGTERM: a pool of processes that is stopped raises one of its own."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__context__
    return problem is not None


def number(text: str) -> int:
    """A count above zero. Raises ArgumentTypeError, whose words argparse shows."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"`{text}` is no number from 1")
    return int(text)


def check_contract(options: Namespace) -> None:
    """What is no contract at all ends a verb as a mistake on the command line."""
    contract = Path(options.contract)
    if not (contract / "contract.json" if contract.is_dir() else contract).is_file():
        options.refuse(f"`{options.contract}` is no folder that `precc compile -o` wrote, and no contract.json")


def refuse(problem: NotConverted, format: str | None) -> int:
    """This shows the findings that leave a verb without a result, and is its exit status."""
    from precc.diagnostics import text
    from precc.diagnostics.json import to_json

    if format == "json":
        print_json({"findings": [to_json(finding) for finding in problem.findings]})
    else:
        sys.stderr.write(f"{text.render(problem.findings)}{text.summary(problem.findings)}\n")
    return 1


def print_json(value: dict[str, Any]) -> None:
    """This writes one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
