"""An artifact that Miles, or an engine beneath it, would not accept."""

from __future__ import annotations

from collections.abc import Mapping

from precc.backend import Unsupported
from precc.diagnostics import error


def malformed(path: str, problem: str) -> Unsupported:
    """This refuses an artifact: a finding P502 that names it."""
    return Unsupported(error("P502", f"{path}: {problem}", help="compile the policy again; the files are not edited"))


def check_digest(path: str, found: str, digest: str) -> None:
    """This refuses an artifact that names another contract, or none. Raises Unsupported."""
    if found != digest:
        says = f"it names {found[:12]}…" if found else "it names none"
        raise malformed(path, f"this belongs to another contract: {says}, and this one is {digest[:12]}…")


def text_of(artifacts: Mapping[str, str], path: str) -> str:
    """The text of an artifact that must be there."""
    if path not in artifacts:
        raise malformed(path, "this artifact is missing")
    return artifacts[path]
