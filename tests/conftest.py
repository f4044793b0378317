"""What every test runs under."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from typing import Any

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""One thread for each process: the tests run in as many processes as there are cores."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

PROOF = {
    "the engines judge a compile": (
        "cli/test_upstream.py",
        "rollout/test_attesting.py",
        "rollout/test_upstream.py",
        "rollout/test_versions.py",
        "te/test_attest.py",
        "te/test_judge.py",
        "te/test_megatron.py",
    ),
    "the matrix": ("proof/test_matrix_",),
    "corrupted artifacts": ("proof/test_mutations_",),
    "the disagreements of the field": ("field/",),
    "read-back against the engines' own matchers": (
        "rollout/test_matchers.py",
        "te/test_matching.py",
    ),
}
"""The parts of the proof, by the tests that they are."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """This says how long each part of the proof took, added up over all processes."""
    spent, tests = defaultdict[str, float](float), defaultdict[str, set[str]](set)
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        where = getattr(report, "nodeid", "").removeprefix("tests/")
        for part in (part for part, paths in PROOF.items() if where.startswith(paths)):
            spent[part] += getattr(report, "duration", 0.0)
            tests[part].add(where)
    if spent:
        terminalreporter.section("proof")
    for part in (part for part in PROOF if part in spent):
        terminalreporter.write_line(f"{spent[part]:6.0f} s  {len(tests[part]):5} tests  {part}")
