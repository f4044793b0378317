"""MXFP4 checkpoints of gpt-oss: `quant_method: mxfp4` in `config.json`.

Only the routed experts are quantized, in their weights. The list names what is not, as regular expressions that a name
begins with; an expert layer among them stays as it is.
"""

from __future__ import annotations

import re

from precc.graph.model import ModelGraph
from precc.importing import schemes
from precc.importing.checkpoint import Section, config_section
from precc.importing.naming import regular
from precc.importing.patterns import Pattern, Piece, counted, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule
from precc.syntax.words import Role

TOOL = "MXFP4 checkpoints of gpt-oss (config.json)"
RANK = 10

_KEYS = ("quant_method", "modules_to_not_convert", "dequantize")


def recognizes(source: Source) -> bool:
    """Whether `config.json` says `quant_method: mxfp4`."""
    section = config_section(source)
    return section is not None and section.method == "mxfp4"


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the checkpoint's list decides."""
    section = config_section(source)
    assert section is not None
    key, entries = section.names("modules_to_not_convert")
    found = pieces(graph, [_pattern(section, entry) for entry in entries])
    rules = (
        SourceRule(entry, f"{section.where}.{key}[{at}]", counted(p.tensor for p in found if at in p.hits))
        for at, entry in enumerate(entries)
    )
    return Reading(tuple(map(_decided, found)), tuple(rules), tuple(section.unread(_KEYS)))


def _pattern(section: Section, entry: str) -> Pattern:
    try:
        return regular(entry)
    except re.error as problem:
        raise section.refused(f"`{entry}` is no pattern: {problem}") from None


def _decided(piece: Piece) -> Decided:
    tensor = piece.tensor
    is_expert = tensor.role is Role.ROUTED_EXPERTS and tensor.is_gemm
    return tensor, schemes.MXFP4_WEIGHTS if is_expert and not piece.hits else None
