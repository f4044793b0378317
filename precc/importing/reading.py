"""What a reader of another tool's files is, and what it answers.

A reader is a module in `precc.importing.readers` that has the members of `Reader`. It knows one tool: which files are
that tool's, and by which rules the tool itself matches names. It answers for every tensor of a model what the tool
decides, and for every rule of the source what it reached. It writes no policy: `synthesis` does, for all readers.

A reader imports `precc.{graph,formats,diagnostics,source,records}`, this package and the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from precc.diagnostics import Diagnostic
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.records import field, record


@record
class Document:
    """One file of a source.

    `path` is what findings show, `name` the last component of it, `text` the content (UTF-8). `data` is what the
    content says as JSON (`.json`) or YAML (`.yaml`, `.yml`); None for any other file, a shell script or arguments.
    """

    path: str
    name: str
    text: str = field(repr=False)
    data: Any = field(default=None, repr=False)

    def section(self, *keys: str) -> Mapping[str, Any] | None:
        """The object below some keys, the document's own without; None where there is none."""
        found = self.data
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None


@record
class Source:
    """What was given: one file, or the files of a folder that any tool could have written.

    `path` is what was given. `documents` are sorted by name; for a file that lies beside others only that file is
    among them. `is_folder` says which of the two it is.
    """

    path: str
    documents: tuple[Document, ...] = ()
    is_folder: bool = False

    def document(self, *names: str) -> Document | None:
        """The first document that has one of some names."""
        return next((found for name in names for found in self.documents if found.name == name), None)


@record
class SourceRule:
    """One rule of the source: an entry of a list, a group's target, a matcher, a flag.

    `text` is the rule as the source writes it, `where` the place (`config.json: quantization_config.ignore[3]`).
    `matched` counts the stored tensors that it reaches, each expert's for itself, norms and biases among them. `beyond`
    says what it reaches beside what its words name, as one phrase (`model.layers.{10..19}`); empty where the rule
    reaches what it says. `beaten` is set where it reaches tensors and decides about none of them. `idle` is set where
    reaching nothing is no mistake: a default, a class name on a model without that class, a tower that this model has
    not.
    """

    text: str
    where: str
    matched: int
    beyond: str = ""
    beaten: bool = False
    idle: bool = False


Decided: TypeAlias = tuple[Tensor, Decision | None]
"""A tensor, or some of its experts (`tensor.narrowed`), with what the tool decides about it.

None: the tool leaves it as it is stored. A decision holds what the tool states and nothing else: `backward` and `train`
are None where it has no word about them, and the policy's own defaults then hold. A served input scale that lies in the
checkpoint (`static`) is never trained with: give such a decision `train="bf16"`.
"""

NOTHING: Mapping[str, str] = MappingProxyType({})


@record
class Reading:
    """What a source decides on a model.

    `decisions` has every tensor of the graph, in any order; the experts of a range may be told apart, and each is then
    in one of the narrowed ranges. `rules` are all rules of the source, in its order. `findings` are what the reader
    itself found, placed by their text (they have no span); dead, beaten and over-reaching rules are reported from
    `rules` and are not among them. `kv_cache` is the KV cache's format (`bf16`, `fp8`); None where the source has no
    word about it. `train` and `rollout` are settings for the policy's lines of that name (`{"gpu": "h200"}`), only
    those that the source states or that its formats need. `targets` are the targets that the source is for; empty for
    no such word. `remarks` are sentences for the head of the policy, one a line, without `#`.
    """

    decisions: tuple[Decided, ...] = field(repr=False)
    rules: tuple[SourceRule, ...] = field(default=(), repr=False)
    findings: tuple[Diagnostic, ...] = ()
    kv_cache: str | None = None
    train: Mapping[str, str] = NOTHING
    rollout: Mapping[str, str] = NOTHING
    targets: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Unimportable(Exception):
    """A source has no policy: what it says has no spelling (P902), or it is not what it seems (P901)."""

    def __init__(self, findings: Iterable[Diagnostic]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(finding.message for finding in self.findings))


class Reader(Protocol):
    """The members of a reader module.

    `TOOL` names the tool in sentences (`compressed-tensors`). `RANK` orders readers that recognise the same source,
    the lowest first: 10 for what stands in a checkpoint's `config.json`, 20 for `hf_quant_config.json`, 50 for what a
    checkpoint was made by (a recipe), 70 for a trainer's files, 90 for launch flags.
    """

    TOOL: str
    RANK: int

    def recognizes(self, source: Source) -> bool:
        """Whether the source is this tool's. Looks at names and keys only, and raises nothing."""

    def read(self, source: Source, graph: ModelGraph) -> Reading:
        """What the source decides on a model. Raises Unimportable."""
