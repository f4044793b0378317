"""What a target is: something that emits artifacts from a contract and reads them back by its engine's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, error
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.records import record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "precc.backends"
"""The entry-point group that backends register in."""

CONTRACT_LINE = "# precc contract "
"""How the line with the contract's digest begins, in artifacts that allow comments."""


COMPILED = "out"
"""How findings about a launch name the compiled folder; the command line puts the one that it was given there."""


@record
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


class Reading(NamedTuple):
    """What artifacts say about one tensor by the engine's own rules, and the line of which artifact said so.

    `decision` is whatever the engine can know, in the backend's own words; it is compared by equality with what
    `Backend.decides` answers for the same tensor, and shown with `str`.
    """

    decision: object
    because: str


@record
class ForeignRule:
    """One rule of a file that no contract wrote: its text and place, and the tensors that it reaches and decides.

    `beyond` says what it reaches beside what its words name; empty where it reaches what it says.
    """

    text: str
    where: str
    matched: int
    won: int
    beyond: str = ""


@record
class Foreign:
    """What an engine makes of a launch that no contract wrote.

    `decisions` has every tensor of the model; None where the engine multiplies it as it is stored, or not at all.
    `remarks` are sentences about what no decision says: an argument that changes numbers, stages that differ.
    """

    decisions: tuple[tuple[Tensor, Decision | None], ...]
    rules: tuple[ForeignRule, ...]
    remarks: tuple[str, ...] = ()


class EngineUnavailable(Exception):
    """The engine that should judge is not installed, or not in a version that can; `help` says what to install."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.help = help


@record
class Judgement:
    """What an engine's own code makes of artifacts.

    `engines` are the installed versions that judged. `tensors` are those of the contract that the engine could be
    asked about, `agree` those that it runs as the contract says; every other one is in a finding (P511: it decides
    otherwise; P512: it stops, with its own words). `checks` say what was run, a sentence each.
    """

    engines: Mapping[str, str]
    tensors: int
    agree: int
    findings: tuple[Diagnostic, ...] = ()
    checks: tuple[str, ...] = ()


@record
class Attestation:
    """A run's evidence: which contract a live process, or a launch line, was compared with, and what differs.

    `modules` counts what was compared: the linear layers of a model, or the arguments and variables of a launch.
    """

    target: str
    digest: str
    engines: Mapping[str, str]
    modules: int
    findings: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The record for the run's log: one line of JSON, the findings as sentences."""
        return {
            "target": self.target,
            "contract": self.digest,
            "engines": dict(self.engines),
            "modules": self.modules,
            "differences": [finding.message for finding in self.findings],
        }


class NotAttested(Exception):
    """What runs is not what was compiled; `attestation` has every difference."""

    def __init__(self, attestation: Attestation) -> None:
        first, *more = attestation.findings
        others = f" (and {len(more)} more differences)" if more else ""
        super().__init__(
            f"{attestation.target} does not run contract {attestation.digest[:12]}: {first.message}{others}"
        )
        self.attestation = attestation


class Judged(Protocol):
    """A backend whose engine can judge its artifacts on this machine, without a GPU."""

    def upstream(self, contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
        """This asks the installed engine's own code what it makes of the artifacts (path → text, of all targets that
        were compiled together).

        Engines run in processes of their own. Raises EngineUnavailable where none is installed, or none in the
        version that the artifacts are for.
        """


class Outside(NamedTuple):
    """What an engine calls what holds a tensor that none of its lists or recipes decides, and why none does."""

    name: str
    why: str


class Complete(Protocol):
    """A backend that also names what its artifacts cannot address."""

    def outside(self, contract: Contract, entry: Entry) -> Mapping[str, Outside]:
        """What holds an entry's tensor in an engine for which `names` has no module: engine → name and reason."""


class Importing(Protocol):
    """A backend that reads launches of its engine that no contract wrote."""

    def read_foreign(
        self, model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
    ) -> Foreign:
        """This reads arguments, environment and recipe files (path → text) by the engine's own rules and defaults.

        The words of several commands stand one after the other, with a `;` between them. Raises Unsupported with
        findings P901 for what the engine would not start with, P902 for what is no decision.
        """


class Launched(Protocol):
    """A backend whose engine is started with arguments and an environment."""

    def launches(self, arguments: Sequence[str]) -> bool:
        """Whether a launch line starts this engine, or passes arguments on to it."""

    def launched(self, contract: Contract, arguments: Sequence[str]) -> Contract:
        """The contract under the parallel sizes of a launch line."""

    def attest_launch(
        self, contract: Contract, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Attestation:
        """This compares a launch line and the environment it starts in with what the contract needs."""


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


def is_on_request(backend: Backend) -> bool:
    """Whether a policy that names no targets is compiled for others only: the backend says so (`on_request`).

    That is one which takes the place of other targets, and cannot say all that they can.
    """
    return bool(getattr(backend, "on_request", False))


def engines_beneath(backends: Iterable[Backend]) -> tuple[str, ...]:
    """The engines that targets start themselves (`beneath`), by the names of the targets that stand for them."""
    return tuple(dict.fromkeys(engine for backend in backends for engine in getattr(backend, "beneath", ())))


def find_backend(name: str) -> Backend:
    """This loads one target by its entry point.

    Raises KeyError for a name that nobody registered, ImportError or AttributeError for an entry point that does not
    load or is no backend.
    """
    return load_backend(available()[name])


def load_backend(point: EntryPoint) -> Backend:
    """This loads the target behind an entry point. Raises ImportError or AttributeError as `find_backend` does."""
    backend = point.load()
    missing = [member for member in MEMBERS if not hasattr(backend, member)]
    if missing:
        raise AttributeError(f"its entry point is no backend: it has no {', '.join(missing)}")
    return backend  # type: ignore[no-any-return]


def available() -> dict[str, EntryPoint]:
    """The registered targets: name → entry point, not yet loaded."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def standard_targets() -> tuple[str, ...]:
    """The targets that a policy is compiled for which names none, in order."""
    return tuple(name for name, point in sorted(available().items()) if not is_on_request(load_backend(point)))


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


def installed_versions(distributions: Mapping[str, str]) -> dict[str, str]:
    """The installed version of each engine (engine → distribution), as its metadata has it; nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for engine, distribution in distributions.items():
        with suppress(PackageNotFoundError):
            found[engine] = version(distribution)
    return found


def differing_variables(
    wanted: Mapping[str, str], unset: Iterable[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """The variables that an environment has otherwise than an `env.json` says: name, what it should be, what it is;
    None for unset."""
    needed: dict[str, str | None] = {**wanted, **dict.fromkeys(unset)}
    for name, value in needed.items():
        if environment.get(name) != value:
            yield name, value, environment.get(name)


def variable_findings(
    facts: Mapping[str, Any], environment: Mapping[str, str], shell: str, why: Mapping[str, str], otherwise: str
) -> Iterator[Diagnostic]:
    """One finding (P511) for each variable of a launch that an `env.json` (`facts`) has otherwise.

    `shell` is the path of the `env.sh`, `why` what single variables do, `otherwise` what the others do.
    """
    for name, needed, found in differing_variables(facts["set"], facts["unset"], environment):
        there = f"{name} is {'unset' if found is None else found or 'empty'}"
        wants = f"needs {needed}" if needed is not None else "needs it unset"
        message = f"{there}; the contract {wants}: {why.get(name, otherwise)}"
        yield error("P511", message, help=f"source {COMPILED}/{shell}")


def stated_version(contract: Contract, engine: str) -> str:
    """The version of an engine that a contract's layouts state; empty for none."""
    return next((getattr(side, engine) for side in (contract.train, contract.rollout) if hasattr(side, engine)), "")


class Paired(Protocol):
    """A backend of several engines, one of which requires a version of another."""

    def required(self, contract: Contract) -> Mapping[str, str]:
        """The version of an engine that comes with the one of another that the contract is for: engine → version."""


def versions_for(backend: Backend, contract: Contract) -> dict[str, str | None]:
    """For each engine of a backend the version that its artifacts are made for: the stated one, or that which another
    engine's version requires, or the newest that is modelled; None for a stated one that is unknown."""
    required: Mapping[str, str] = backend.required(contract) if hasattr(backend, "required") else {}
    return {
        engine: select_version(stated_version(contract, engine) or required.get(engine, ""), modelled)
        for engine, modelled in backend.engines.items()
    }


def unmodelled_versions(
    contract: Contract, engines: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The stated versions whose rules are not modelled: engine, what was said, what is modelled."""
    for engine, modelled in engines.items():
        stated = stated_version(contract, engine)
        if select_version(stated, modelled) is None:
            yield engine, stated, modelled
