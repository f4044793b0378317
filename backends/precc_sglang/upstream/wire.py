"""What the judge asks its worker, and what the worker answers: plain values, pickled over a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor of a model or of a checkpoint: its safetensors dtype and its shape."""

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Built:
    """One module as SGLang built it: the prefix it asked the quantization config with (None for one that never asks),
    its method in the words of `families`, whether inputs stay unquantized whatever the method says, its parameters."""

    asked: str | None
    method: str
    marlin: bool
    parameters: Mapping[str, Parameter]


Modules = Mapping[str, Built]
"""A model's modules that hold parameters or have a method, by name."""


@dataclass(frozen=True, slots=True)
class Job:
    """A question. `full` and `small` are checkpoint folders: the model at its own size, without weights, and a small
    one of the same structure whose tensors are `stored`; `filled` are the parameters that these fill. Both hold the
    artifacts.

    `variables` are the values that the engine must see (None for unset), `arguments` what the server must be started
    with. `capability` is that of the GPU that is pretended, times ten. `draft` says whether there is a draft model.
    """

    full: str
    small: str
    stored: Mapping[str, Parameter]
    filled: frozenset[str]
    variables: Mapping[str, str | None]
    arguments: Mapping[str, str | int | bool]
    capability: int
    draft: bool


@dataclass(frozen=True, slots=True)
class Cast:
    """A checkpoint tensor whose values are converted on the way into a parameter."""

    tensor: str
    parameter: str
    stored: str
    held: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a model's loader did with a checkpoint: parameters with bytes that it never wrote, tensors that it read,
    values that it converted."""

    unwritten: tuple[str, ...]
    read: frozenset[str]
    casts: tuple[Cast, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The engine's own exception: while it did what, and its words."""

    doing: str
    words: str


@dataclass
class Seen:
    """What the engine makes of the artifacts, as far as it came.

    `environment` are the variables in force after `env.sh`; `misread` and `misparsed` the variables and arguments
    that come out otherwise than they must: name → what it is, what it must be. `resolved` are the backends and the
    method that the engine settles on, `cache` and `dtype` the types it allocates.
    """

    environment: dict[str, str] = field(default_factory=dict)
    misread: dict[str, tuple[str, str]] = field(default_factory=dict)
    misparsed: dict[str, tuple[str, str]] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    cache: str = ""
    dtype: str = ""
    modules: Modules = field(default_factory=dict)
    draft: Modules = field(default_factory=dict)
    loaded: Loaded | None = None
    loaded_draft: Loaded | None = None
    stop: Stop | None = None
