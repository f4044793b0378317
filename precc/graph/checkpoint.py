"""A checkpoint as a model graph: what its headers hold, explained by the family's table.

The configuration says what has to be there, the headers what is, and in which dtype. Only three things may be
absent: a head tied to the embedding, a whole multi-token-prediction layer, and that layer's copies of
embedding and head. What is there and unexplained is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from precc.graph.config import Description, describe, load_json
from precc.graph.errors import ModelError, nearest, or_list, shorten
from precc.graph.headers import Stored, read_headers
from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role

_SCALE = "_scale_inv"
"""Appended to the name of an FP8 weight, for the scales of its blocks."""

_DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F8_E4M3": "fp8"}
_SCALE_DTYPES = ("F32", "BF16", "F8_E8M0")
_BLOCK = (128, 128)

Shape: TypeAlias = tuple[int, ...]
Storage: TypeAlias = tuple[str, tuple[int, int] | None]
"""A dtype, and the block that shares a scale."""


def read_checkpoint(folder: Path, files: Sequence[Path], name: str) -> ModelGraph:
    """The graph of a checkpoint whose `config.json` is in `folder`. Raises ModelError."""
    config = folder / "config.json"
    if not config.exists():
        raise ModelError(
            f"{folder} has safetensors but no `config.json`",
            "The configuration says which family the tensors are of; put it beside them.",
        )
    stored = read_headers(_without_consolidated(files))
    raw = load_json(config)
    description = describe(raw, str(config))
    if description.facts["tie_word_embeddings"]:
        description = describe(raw, str(config), lm_head_stored="lm_head.weight" in stored)
    return _Checkpoint(folder, stored).graph(description, name)


def _without_consolidated(files: Sequence[Path]) -> Sequence[Path]:
    """Some releases ship the weights a second time, under the names of their own framework."""
    shards = [file for file in files if not file.name.startswith("consolidated")]
    return shards or files


class _Checkpoint:
    """The stored tensors, taken away one by one as the table explains them."""

    def __init__(self, folder: Path, stored: dict[str, Stored]) -> None:
        self._folder = folder
        self._left = {name: value for name, value in stored.items() if not name.endswith("rotary_emb.inv_freq")}

    def graph(self, description: Description, name: str) -> ModelGraph:
        regular = description.graph(name)
        expected = self._present(regular.tensors)
        tensors = tuple(part for tensor in expected for part in self._take(tensor))
        if self._left:
            raise self._unexplained(next(iter(self._left)), regular)
        graph = replace(regular, tensors=tensors)
        scaled = any(tensor.stored_block for tensor in tensors)
        facts = {**regular.config, "quantization": "fp8_block" if scaled else None}
        if "num_mtp_layers" in facts:
            facts["num_mtp_layers"] = graph.mtp_layers
        return replace(graph, config=facts)

    def _present(self, tensors: Sequence[Tensor]) -> Iterator[Tensor]:
        """The tensors that have to be stored, those left out that may be absent and are."""
        stored_mtp = {tensor.mtp for tensor in tensors if tensor.mtp is not None and self._has(tensor)}
        for tensor in tensors:
            copy = tensor.mtp is not None and tensor.role in (Role.EMBEDDING, Role.LM_HEAD)
            if (tensor.mtp is None or tensor.mtp in stored_mtp) and (not copy or self._has(tensor)):
                yield tensor

    def _has(self, tensor: Tensor) -> bool:
        return any(name in self._left for name in _names(tensor))

    def _take(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensor as it is stored; a range of experts in as many parts as there are changes of dtype."""
        *_, scales = replace(tensor, stored_block=_BLOCK).stored_shapes() if tensor.is_gemm else ((),)
        stored = [self._storage(name, tensor.shape, scales) for name in _names(tensor)]
        if tensor.experts is None:
            yield _stored_as(tensor, stored[0])
            return
        start = tensor.experts.start
        for storage, run in groupby(stored):
            end = start + sum(1 for _ in run)
            yield _stored_as(tensor.narrowed(range(start, end)), storage)
            start = end

    def _storage(self, name: str, shape: Shape, scales: Shape) -> Storage:
        found = self._left.pop(name, None)
        scale = self._left.pop(name + _SCALE, None)
        if found is None:
            raise self._missing(name)
        if found.shape != shape:
            raise self._error(name, f"has the shape {list(found.shape)}, but `config.json` gives {list(shape)}")
        if found.dtype not in _DTYPES:
            raise self._error(name, f"is stored as {found.dtype}, which is no dtype of a weight known here")
        dtype = _DTYPES[found.dtype]
        if (dtype == "fp8") is (scale is None):
            what = f"is FP8 but has no `{_SCALE}`" if scale is None else f"has `{_SCALE}` but is {found.dtype}"
            raise self._error(name, what)
        if scale is None:
            return dtype, None
        self._check_scale(name + _SCALE, scale, scales)
        return dtype, _BLOCK

    def _check_scale(self, name: str, scale: Stored, shape: Shape) -> None:
        if scale.shape != shape:
            raise self._error(name, f"has the shape {list(scale.shape)}, but 128×128 blocks give {list(shape)}")
        if scale.dtype not in _SCALE_DTYPES:
            raise self._error(name, f"is stored as {scale.dtype}, which is no dtype of a scale known here")

    def _missing(self, name: str) -> ModelError:
        near = nearest(name, _beside(name, self._left), 1)
        help = f"The nearest stored name is {or_list(near)}. " if near else ""
        return self._error(name, "is missing", f"{help}Is a shard missing, or is `config.json` another model's?")

    def _unexplained(self, name: str, graph: ModelGraph) -> ModelError:
        near = nearest(name, _beside(name, _names_like(name, graph.tensors)), 1)
        help = f"The nearest name it knows is {or_list(near)}. " if near else ""
        return self._error(
            name,
            f"is no tensor that the table of {graph.family} explains ({len(self._left):,} are not)",
            f"{help}A checkpoint quantized by another tool has to be given in its original form.",
        )

    def _error(self, name: str, what: str, help: str = "") -> ModelError:
        return ModelError(f"{self._folder}: `{shorten(name, 100)}` {what}", help)


def _stored_as(tensor: Tensor, storage: Storage) -> Tensor:
    if storage == (tensor.dtype, tensor.stored_block):
        return tensor
    return replace(tensor, dtype=storage[0], stored_block=storage[1])


def _names(tensor: Tensor) -> Iterator[str]:
    """The stored name of each expert's tensor, or the one name."""
    end = f".{tensor.parameter}" if tensor.parameter else ""
    return (module + end for module in tensor.modules())


def _beside(name: str, names: Iterable[str]) -> Iterator[str]:
    """The names in the same layer, or outside all layers: comparing with all 92,000 would take seconds."""
    layer = _layer(name)
    return (other for other in names if _layer(other) == layer)


def _layer(name: str) -> list[str]:
    *layer, rest = name.split(".", 3)
    return layer if len(layer) == 3 and rest else []


def _names_like(name: str, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Every known name, of the experts that one whose number stands in `name`."""
    number = re.search(r"experts\.(\d+)", name)
    for tensor in tensors:
        path = ".".join(tensor.path).replace(EXPERT, number[1] if number else EXPERT)
        yield f"{path}.{tensor.parameter}" if tensor.parameter else path
