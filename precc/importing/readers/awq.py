"""AWQ checkpoints: `quant_method: awq` in `config.json`, or AutoAWQ's own `quant_config.json`.

Every linear layer of the decoder layers is quantized but those that an entry of `modules_to_not_convert` is a part of,
as text: `mlp.gate` takes `mlp.gate_proj` with it. Servers look for an entry in the whole name; AutoAWQ, which writes
these files, in what follows the layer's number, and an entry that names a layer kept nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing import schemes
from precc.importing.checkpoint import Section, config_section, is_convertible, is_head
from precc.importing.naming import has_number
from precc.importing.patterns import Pattern, Piece, counted, folded, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule

TOOL = "AWQ checkpoints (config.json, quant_config.json)"
RANK = 10

LEGACY = "quant_config.json"

# fmt: off
_KEYS = frozenset((
    "quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format", "backend",
    "modules_to_not_convert", "fuse_max_seq_len", "do_fuse", "modules_to_fuse", "exllama_config", "lm_head", "sym",
    "desc_act", "meta", "dynamic",
))
# fmt: on
_VERSIONS = frozenset({"", "gemm", "gemv", "gemv_fast", "marlin", "exllama", "llm-awq", "ipex"})
"""Layouts of the same integers for different kernels."""

_BLOCK = re.compile(r"^.*?\.layers\.\d+\.")


def recognizes(source: Source) -> bool:
    """Whether a section says `quant_method: awq`, or the file is AutoAWQ's own."""
    return _section(source) is not None


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the settings and the list decide."""
    section = _section(source)
    assert section is not None
    decision = _decision(section)
    key, entries = section.names("modules_to_not_convert")
    found = pieces(graph, [contained(entry) for entry in entries])
    return Reading(
        decisions=tuple(_decided(piece, decision) for piece in found),
        rules=tuple(_rules(entries, f"{section.where}.{key}", found)),
        findings=tuple(section.unread(_KEYS)),
    )


def _section(source: Source) -> Section | None:
    section = config_section(source)
    if section is not None and section.method == "awq":
        return section
    document = source.document(LEGACY) or (None if source.is_folder else next(iter(source.documents), None))
    said = document.section() if document is not None else None
    if section is None and document is not None and said is not None and {"w_bit", "q_group_size"} <= said.keys():
        return Section(document.name, said)
    return None


def contained(entry: str) -> Pattern:
    """A piece of text anywhere in a name."""
    return Pattern(lambda name: entry in name, by_expert=has_number(f"experts{entry}"))


def _decision(section: Section) -> Decision:
    said = section.content
    bits, group = (
        said.get(key, said.get(legacy)) for key, legacy in (("bits", "w_bit"), ("group_size", "q_group_size"))
    )
    if said.get("zero_point", True):
        raise section.refused(
            "zero points (`zero_point: true`, which is what AWQ does unless told) have no spelling",
            "a policy's integers are symmetric",
        )
    if str(said.get("version") or said.get("format") or "").lower() not in _VERSIONS or said.get("dynamic"):
        raise section.refused("this layout of AWQ has no spelling", f"known are {', '.join(sorted(_VERSIONS - {''}))}")
    found = schemes.integers(bits, group) if isinstance(bits, int) and isinstance(group, int) else None
    if found is None:
        raise section.refused(
            f"{bits}-bit integers in groups of {group} have no spelling",
            "a policy has int4 and int8 in groups of 32, 64 and 128",
        )
    return found


def _decided(piece: Piece, decision: Decision) -> Decided:
    return piece.tensor, decision if _is_asked(piece.tensor) and not piece.hits else None


def _is_asked(tensor: Tensor) -> bool:
    return tensor.layer is not None and is_convertible(tensor) and not is_head(tensor)


def _rules(entries: tuple[str, ...], where: str, found: tuple[Piece, ...]) -> Iterator[SourceRule]:
    for at, entry in enumerate(entries):
        reached = [piece.tensor for piece in found if at in piece.hits]
        yield SourceRule(entry, f"{where}[{at}]", counted(reached), _beyond(entry, reached), idle=entry == "lm_head")


def _beyond(entry: str, reached: list[Tensor]) -> str:
    """The layers whose names only go on with the entry's last letters, or begin before its first."""
    run = f".{entry.strip('.')}."
    longer = [tensor for tensor in reached if run not in f".{tensor.module}." and _is_asked(tensor)]
    if longer:
        return folded(longer)
    below = [tensor for tensor in reached if _is_asked(tensor)]
    if below and not any(entry in _BLOCK.sub("", tensor.module) for tensor in below):
        return f"{folded(below)} to servers, but AutoAWQ looks below a layer's number and quantized them"
    return ""
