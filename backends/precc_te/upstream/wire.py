"""What the judge asks its worker, and what the worker answers: plain values, pickled over a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from precc_te.running import Running


@dataclass(frozen=True, slots=True)
class Structure:
    """What of a model decides which linear layers Megatron builds. Sizes are no part of it.

    `experts_in` says for each decoder layer whether it has routed experts. `experts` are those of a layer that one
    rank holds. `query_rank` is whether MLA compresses the query too. `linear_in` says for each decoder layer whether it
    is a gated delta net; empty where none is. `indexer_in` are the layers that have an indexer.
    """

    experts_in: tuple[bool, ...]
    experts: int = 0
    shared: bool = False
    latent: bool = False
    query_rank: bool = False
    indexer_in: frozenset[int] = frozenset()
    mtp: int = 0
    linear_in: tuple[bool, ...] = ()

    @property
    def layers(self) -> int:
        return len(self.experts_in)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a job is laid out: pipeline stages, virtual chunks a stage, and grouped or sequential experts.

    `evaluates` is for what runs otherwise in evaluation; a layout that is asked about is for training.
    """

    pp: int = 1
    vpp: int = 1
    grouped: bool = True
    evaluates: bool = False

    def __str__(self) -> str:
        virtual = f" vpp={self.vpp}" if self.vpp > 1 else ""
        experts = "grouped" if self.grouped else "sequential"
        return f"pp={self.pp}{virtual}, {experts} experts{', in evaluation' if self.evaluates else ''}"


@dataclass(frozen=True, slots=True)
class Engines:
    """What is installed: the versions, empty for none, and why Megatron's code or its parser does not load."""

    megatron_core: str
    te: str
    problem: str = ""
    parser: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A question: the artifacts in `folder`, started in an environment, for models of a structure."""

    folder: str
    environment: Mapping[str, str]
    structure: Structure
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The engine's own exception: what it was doing, and its words in a line."""

    doing: str
    words: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is in force for a linear layer; `custom` where a factory of the recipe file makes it."""

    running: Running
    custom: bool = False


@dataclass(slots=True)
class Seen:
    """An answer: for each layout what is in force for each linear layer, by its path with the global number of its
    decoder layer; and where the engine stopped."""

    layouts: dict[Layout, dict[str, Sighting]] = field(default_factory=dict)
    stops: list[Stop] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Process:
    """A fresh process under `env.sh`: its environment, and what TransformerEngine's recipe classes are by default.

    `problem` has the words of what a shell or a class raised.
    """

    environment: Mapping[str, str]
    recipes: Mapping[str, Running]
    problem: str = ""


MOST = 300
_BEYOND = " For further information visit "
"""What pydantic adds to its own words."""


def words_of(problem: BaseException) -> str:
    """An exception in a line of at most `MOST` characters."""
    said = " ".join(str(problem).split()).partition(_BEYOND)[0]
    return f"{type(problem).__name__}: {said if len(said) <= MOST else said[:MOST] + '…'}"
