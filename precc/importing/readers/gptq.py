"""GPTQ checkpoints: `quant_method: gptq` in `config.json`, or the same facts in GPTQModel's `quantize_config.json`.

Every linear layer of the decoder layers is quantized, the LM head where `lm_head` says so. `dynamic` are GPTQModel's
exceptions, in order: the first regular expression that a whole module name begins with decides, `-:` leaves the layer
as it is, `+:` (or nothing) changes some of the settings. Optimum's `modules_in_block_to_quantize` are names that a
quantized layer ends with; all others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from precc.formats import Decision
from precc.graph.model import ModelGraph
from precc.importing import schemes
from precc.importing.checkpoint import Section, config_section, is_convertible, is_head
from precc.importing.naming import has_number, regular
from precc.importing.patterns import Pattern, Piece, counted, pieces
from precc.importing.reaching import by_number, going_on
from precc.importing.reading import Decided, Document, Reading, Source, SourceRule

TOOL = "GPTQ checkpoints (config.json, quantize_config.json)"
RANK = 10

LEGACY = "quantize_config.json"

# fmt: off
_KEYS = frozenset((
    "quant_method", "method", "bits", "group_size", "sym", "desc_act", "static_groups", "true_sequential",
    "damp_percent", "damp_auto_increment", "format", "checkpoint_format", "is_marlin_format", "pack_dtype",
    "lm_head", "dynamic", "meta", "modules_in_block_to_quantize", "block_name_to_quantize",
    "module_name_preceding_first_block", "act_group_aware", "rotation", "mse", "dataset", "tokenizer", "batch_size",
    "backend", "model_seqlen", "max_input_length", "pad_token_id", "cache_block_outputs", "use_cuda_fp16",
    "use_exllama", "exllama_config", "disable_exllama", "model_name_or_path", "model_file_base_name", "quantizer",
    "parallel_packing", "version",
))
# fmt: on
_FORMATS = frozenset({"gptq", "gptq_v2", "marlin", ""})
"""Layouts of the same integers; they differ in how a zero point is stored, which symmetric weights have not."""

_OPEN = re.compile(r"(?:\.\*)+\Z")
"""What may follow the end of a pattern."""

_OVERRIDES = ("bits", "group_size", "sym", "desc_act", "static_groups")


def recognizes(source: Source) -> bool:
    """Whether a section says `quant_method: gptq`, or the file is GPTQModel's own."""
    return _section(source) is not None


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the settings and their exceptions decide."""
    section = _section(source)
    assert section is not None
    settings = Settings(section)
    exceptions, kept = settings.exceptions, settings.block_names
    found = pieces(graph, [*(exception.pattern for exception in exceptions), *map(_ending, kept or ())])
    decided = _Decided(settings, len(exceptions))
    return Reading(
        decisions=tuple(map(decided, found)),
        rules=(*_dynamic_rules(settings, found, decided), *_block_rules(section, kept or (), found, len(exceptions))),
        findings=tuple(section.unread(_KEYS)),
    )


def _section(source: Source) -> Section | None:
    section = config_section(source)
    if section is not None and section.method == "gptq":
        return section
    document = source.document(LEGACY) or (None if source.is_folder else next(iter(source.documents), None))
    if section is None and document is not None and _is_legacy(document):
        return Section(document.name, document.section() or {})
    return None


def _is_legacy(document: Document) -> bool:
    said = document.section()
    if said is None or not {"bits", "group_size"} <= said.keys():
        return False
    return "desc_act" in said and str(said.get("quant_method") or "gptq").lower() == "gptq"


class Override:
    """One entry of `dynamic`: its text, its test, and the settings that it changes (None: not quantized)."""

    def __init__(self, section: Section, text: str, changed: object) -> None:
        self.text = text
        self.is_negative = text.startswith("-:")
        entry = text[2:] if text.startswith(("-:", "+:")) else text
        try:
            self.pattern = regular(entry)
        except re.error as problem:
            raise section.refused(f"`dynamic` has `{text}`, which is no pattern: {problem}") from None
        self.changed = changed if isinstance(changed, dict) else {}


class Settings:
    """The section's settings, and what they make of a layer."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.quantizes_head = bool(section.content.get("lm_head"))
        form = str(section.content.get("checkpoint_format") or section.content.get("format") or "").lower()
        if form not in _FORMATS:
            raise section.refused(f"`format: {form}` has no spelling", "known are gptq, gptq_v2 and marlin")
        for key in ("rotation", "adapter"):
            if section.content.get(key):
                raise section.refused(f"`{key}: {section.content[key]}` has no spelling")

    @cached_property
    def exceptions(self) -> tuple[Override, ...]:
        """The entries of `dynamic`. Raises Unimportable."""
        said = self.section.content.get("dynamic") or {}
        if not isinstance(said, dict):
            raise self.section.refused("`dynamic` is no map from patterns to settings")
        return tuple(Override(self.section, str(text), changed) for text, changed in said.items())

    @cached_property
    def block_names(self) -> tuple[str, ...] | None:
        """The names that are quantized; None where the section has no such list. Raises Unimportable."""
        said = self.section.content.get("modules_in_block_to_quantize")
        if said is None:
            return None
        flat = [name for group in said for name in (group if isinstance(group, list) else [group])]
        if not all(isinstance(name, str) for name in flat):
            raise self.section.refused("`modules_in_block_to_quantize` is no list of names")
        return tuple(dict.fromkeys(flat))

    def decision(self, changed: Mapping[str, Any]) -> Decision:
        """What a layer gets under some changed settings. Raises Unimportable."""
        bits, group, symmetric, ordered, static = (
            changed.get(key, self.section.content.get(key)) for key in _OVERRIDES
        )
        if symmetric is False:
            raise self.section.refused(
                "zero points (`sym: false`) have no spelling", "a policy's integers are symmetric"
            )
        if ordered and not static and group != -1:
            raise self.section.refused(
                "act-order (`desc_act: true`) has no spelling: its groups are no runs of columns",
                "quantize again with `desc_act: false` (or `static_groups: true`)",
            )
        found = schemes.integers(bits, group) if isinstance(bits, int) and isinstance(group, int) else None
        if found is None:
            raise self.section.refused(
                f"{bits}-bit integers in groups of {group} have no spelling",
                "a policy has int4 and int8 in groups of 32, 64 and 128",
            )
        return found


class _Decided:
    """What the settings decide about a piece; its hits are exceptions first, then names of the block list."""

    def __init__(self, settings: Settings, exceptions: int) -> None:
        self._settings = settings
        self._exceptions = exceptions
        self._known: dict[int | None, Decision] = {}

    def exception(self, piece: Piece) -> int | None:
        """The exception in force: the first that reaches it."""
        return next((hit for hit in piece.hits if hit < self._exceptions), None)

    def is_asked(self, piece: Piece) -> bool:
        """Whether a layer would be quantized but for the exceptions."""
        tensor = piece.tensor
        if is_head(tensor):
            return self._settings.quantizes_head
        if tensor.layer is None or not is_convertible(tensor):
            return False
        return self._settings.block_names is None or any(hit >= self._exceptions for hit in piece.hits)

    def __call__(self, piece: Piece) -> Decided:
        at = self.exception(piece)
        exception = None if at is None else self._settings.exceptions[at]
        if not self.is_asked(piece) or (exception is not None and exception.is_negative):
            return piece.tensor, None
        if at not in self._known:
            self._known[at] = self._settings.decision({} if exception is None else exception.changed)
        return piece.tensor, self._known[at]


def _ending(name: str) -> Pattern:
    """Optimum's test of a name within a block."""
    return Pattern(lambda module: module.endswith(name), by_expert=has_number(name))


def _dynamic_rules(settings: Settings, found: tuple[Piece, ...], decided: _Decided) -> Iterator[SourceRule]:
    for at, exception in enumerate(settings.exceptions):
        reached = [piece for piece in found if at in piece.hits]
        won = [piece for piece in reached if decided.exception(piece) == at and decided.is_asked(piece)]
        tensors = [piece.tensor for piece in won]
        yield SourceRule(
            exception.text,
            f"{settings.section.where}.dynamic[{at}]",
            counted(piece.tensor for piece in reached),
            going_on(_OPEN.sub("", exception.text), tensors) or by_number(exception.text, tensors),
            beaten=bool(reached) and not won and not exception.is_negative,
        )


def _block_rules(
    section: Section, names: tuple[str, ...], found: tuple[Piece, ...], exceptions: int
) -> Iterator[SourceRule]:
    for at, name in enumerate(names, exceptions):
        reached = counted(piece.tensor for piece in found if at in piece.hits)
        yield SourceRule(name, f"{section.where}.modules_in_block_to_quantize", reached)
