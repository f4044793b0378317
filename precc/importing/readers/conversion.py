"""What `precc`'s converter stores: its plan, or the `config.json` of a checkpoint that it wrote for no server.

Both name the converted weights, ranges of layers and experts folded (`layers.{3..50}`), each with its quantizer. Of the
inputs they say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from precc.diagnostics import error, info
from precc.formats import Quantization
from precc.graph.model import ModelGraph
from precc.importing import schemes
from precc.importing.checkpoint import config_section
from precc.importing.patterns import Pattern, Piece, counted, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule, Unimportable

TOOL = "precc's converter (plan.json, config.json)"
RANK = 2

SEEMS, OPEN = "P901", "P910"

_RANGE = re.compile(r"\{(\d+)-(\d+)\}")
"""`{3..50}` with its dots out of the way of those between components."""


def recognizes(source: Source) -> bool:
    """Whether a file is a plan, or the section of `config.json` one without a server."""
    return _tensors(source) is not None


def _tensors(source: Source) -> tuple[str, Mapping[str, Any]] | None:
    """Where the quantizers stand, and each by the name of its tensors."""
    section = config_section(source)
    if section is not None and section.method == "precc" and isinstance(section.content.get("tensors"), dict):
        return section.where, section.content["tensors"]
    for document in source.documents:
        said = document.section() or {}
        if {"digest", "shards", "totals", "tensors"} <= said.keys() and isinstance(said["tensors"], list):
            lines = (line for line in said["tensors"] if isinstance(line, dict) and "quantizer" in line)
            return document.name, {str(line.get("tensor")): line["quantizer"] for line in lines}
    return None


def read(source: Source, graph: ModelGraph) -> Reading:
    """The stored format of each tensor."""
    found = _tensors(source)
    assert found is not None
    where, quantizers = found
    stored = [_weight(where, name, said) for name, said in quantizers.items()]
    parts = pieces(graph, [_folded(name) for name in quantizers])
    opened = "the files of a conversion do not say how inputs are multiplied, nor what trains: inputs are taken in BF16"
    return Reading(
        decisions=tuple(_decided(piece, stored) for piece in parts),
        rules=tuple(_rules(where, quantizers, parts)),
        findings=(info(OPEN, opened),) if stored else (),
    )


def _decided(piece: Piece, stored: list[Quantization]) -> Decided:
    return piece.tensor, schemes.served(stored[piece.hits[0]]) if piece.hits else None


def _weight(where: str, name: str, said: Any) -> Quantization:
    try:
        return Quantization.from_json(said)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise Unimportable([error(SEEMS, f"{where}: the quantizer of {name} is malformed")]) from None


def _folded(name: str) -> Pattern:
    """The tensors of a name with ranges in it."""
    words = name.removesuffix(".weight").replace("..", "-").split(".")
    wanted = [_numbers(word) for word in words]

    def test(module: str) -> bool:
        parts = module.removesuffix(".weight").split(".")
        return len(parts) == len(wanted) and all(
            part == word if isinstance(word, str) else part.isdecimal() and int(part) in word
            for part, word in zip(parts, wanted, strict=True)
        )

    return Pattern(test, prefix="".join(f"{word}." for word in words[: _plain(words)]))


def _plain(words: list[str]) -> int:
    """How many words stand in front of the first range."""
    return next((at for at, word in enumerate(words) if _RANGE.fullmatch(word)), len(words) - 1)


def _numbers(word: str) -> range | str:
    found = _RANGE.fullmatch(word)
    return range(int(found[1]), int(found[2]) + 1) if found else word


def _rules(where: str, names: Mapping[str, Any], parts: tuple[Piece, ...]) -> Iterator[SourceRule]:
    for at, name in enumerate(names):
        yield SourceRule(name, where, counted(piece.tensor for piece in parts if at in piece.hits))
