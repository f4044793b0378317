"""What a target is: something that emits artifacts from a contract and reads them back by its engine's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "precc.backends"
"""The entry-point group that backends register in."""

CONTRACT_LINE = "# precc contract "
"""How the line with the contract's digest begins, in artifacts that allow comments."""


@dataclass(frozen=True)
class Artifact:
    """One file that a backend writes; `path` is relative to the output folder (`te/megatron.args`)."""

    path: str
    text: str
    executable: bool = False

    @cached_property
    def sha256(self) -> str:
        from hashlib import sha256

        return sha256(self.text.encode()).hexdigest()


class Unsupported(Exception):
    """The engine cannot express the contract; carries the findings that say which rule, tensor and remedy."""

    def __init__(self, *findings: Diagnostic) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Reading:
    """What artifacts say about one tensor by the engine's own rules, and the line of which artifact said so.

    `decision` is whatever the engine can know, in the backend's own words; it is compared by equality with what
    `Backend.decides` answers for the same tensor, and shown with `str`.
    """

    decision: object
    because: str


class Backend(Protocol):
    """One target. Everything is a function of its arguments; nothing is printed or written."""

    name: str
    """The target's name (`te`, `sglang`, `converter`), and the output folder of its artifacts."""

    engines: Mapping[str, tuple[str, ...]]
    """For each engine that the artifacts are for: the versions whose rules are modelled, newest first."""

    rules: str
    """The package whose modules are this engine's own checks (see `precc.rules`)."""

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """What each engine calls the module of an entry's tensor: engine → name; nothing for what it has not."""

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        """This writes the contract for the engine, or raises `Unsupported`."""

    def decides(self, contract: Contract) -> Sequence[object]:
        """This is what the engine can know of each entry of the contract, in the contract's order."""

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
        """This reads artifacts (path → text) by the engine's own rules: one answer an entry, in order.

        Only names, roles and shapes of the contract's tensors are used, never its decisions. An artifact that is
        missing or malformed raises `Unsupported` with a finding P502.
        """


MEMBERS = ("name", "engines", "rules", "names", "emit", "decides", "read_back")
"""What an entry point must have to be a backend."""


def find_backend(name: str) -> Backend:
    """This loads one target by its entry point.

    Raises KeyError for a name that nobody registered, ImportError or AttributeError for an entry point that does not
    load or is no backend.
    """
    backend = available()[name].load()
    missing = [member for member in MEMBERS if not hasattr(backend, member)]
    if missing:
        raise AttributeError(f"its entry point is no backend: it has no {', '.join(missing)}")
    return backend  # type: ignore[no-any-return]


def available() -> dict[str, EntryPoint]:
    """The registered targets: name → entry point, not yet loaded."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def select_version(stated: str, modelled: tuple[str, ...]) -> str | None:
    """The modelled version that a stated one means: the newest for none, `0.19.2` for `0.19`; None if unknown."""
    if not stated:
        return modelled[0]
    return next((v for v in modelled if v == stated or v.startswith(stated + ".")), None)


def named_contract(text: str) -> str:
    """The digest that an artifact's contract line names; what cannot be one where there are none or several lines."""
    lines = (line for line in text.splitlines() if line.startswith(CONTRACT_LINE))
    return " and ".join(line.removeprefix(CONTRACT_LINE) for line in lines)


def shell_lines(variables: Mapping[str, str], unset: Iterable[str]) -> Iterator[str]:
    """The lines of an `env.sh`: it may be sourced under `set -u`, and leaves no variable of its own as it was."""
    yield from (f"export {name}={value}\n" for name, value in variables.items())
    yield from (f"unset {name}\n" for name in unset)


def stated_version(contract: Contract, engine: str) -> str:
    """The version of an engine that a contract's layouts state; empty for none."""
    return next((getattr(side, engine) for side in (contract.train, contract.rollout) if hasattr(side, engine)), "")


def unmodelled_versions(
    contract: Contract, engines: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The stated versions whose rules are not modelled: engine, what was said, what is modelled."""
    for engine, modelled in engines.items():
        stated = stated_version(contract, engine)
        if select_version(stated, modelled) is None:
            yield engine, stated, modelled
