"""What the converter's verbs read from a command line, and how they show what they refuse."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from precc_converter.conversion.findings import NotConverted


def number(text: str) -> int:
    """A count above zero, under the name by which argparse speaks of it. Raises ValueError."""
    if not text.isdecimal() or not int(text):
        raise ValueError(text)
    return int(text)


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
