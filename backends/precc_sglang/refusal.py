"""How a refusal is said: the engine and its version, the tensor and how many like it, what would work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precc.backend import Unsupported
from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error
from precc_sglang.versions import sglang_version


def engine(contract: Contract) -> str:
    """The engine's name and version, as messages begin."""
    return f"SGLang {sglang_version(contract.rollout)}"


def refuse(
    contract: Contract, code: str, entries: Iterable[Entry], what: str, help: str, part: str = "weight"
) -> Iterator[Diagnostic]:
    """One finding for all entries that share a reason; none where there are no entries.

    `what` ends the sentence "SGLang 0.5.23 … : tensor"; `part` of the decision is what it is about.
    """
    found = list(entries)
    if found:
        yield error(code, f"{engine(contract)} {what}: {counted_names(found)}", found[0].span_of(part), help=help)


def unreadable(message: str, help: str | None = None) -> Unsupported:
    """An artifact that is missing, malformed, or names what the engine does not have."""
    return Unsupported(error("P502", message, help=help))
