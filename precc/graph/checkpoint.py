"""A checkpoint as a model graph: what its headers hold, explained by the family's table.

The configuration says what has to be there, the headers what is, and in which form. Only three things may be
absent: a head tied to the embedding, a whole multi-token-prediction layer, and that layer's copies of
embedding and head. A stack of experts may be stored one expert by one. What is there and unexplained is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from math import prod
from pathlib import Path
from typing import TypeAlias

from precc.graph.config import Description, describe, load_json
from precc.graph.errors import ModelError, or_list, shorten
from precc.graph.forms import UNQUANTIZED, Form
from precc.graph.headers import Stored, read_headers
from precc.graph.layouts import CODES, COMPANIONS, STACKED_PARTS, Unknown, form_of, taken_apart
from precc.graph.misnamed import help_for_missing, help_for_stray
from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.graph.shards import check_file, check_listed
from precc.graph.storage import one_format
from precc.syntax.words import Role

WEIGHT = "weight"
"""The word of a weight itself, whatever its own name is."""

Endings: TypeAlias = tuple[tuple[str, str], ...]

_UNUSED = ("inv_freq",)
"""The last word of buffers that old checkpoints hold and nothing reads, in modules called `rotary_emb`."""

_TABLES = ("tid2eid",)
"""The last words of tables of integers that tokens are looked up in: no weights, and none of a weight's parts."""

_CACHE_SCALES = ("k_scale", "v_scale", "q_scale", "kv_scale", "output_scale")
"""The last words of single numbers that scale the KV cache and what goes into it: they belong to no weight."""


def read_checkpoint(folder: Path, files: Sequence[Path], name: str, listed: Iterable[str] = ()) -> ModelGraph:
    """The graph of a checkpoint whose `config.json` is in `folder`, and whose index has `listed` some names.

    Raises ModelError.
    """
    config = folder / "config.json"
    if not os.path.lexists(config):
        raise ModelError(
            f"{folder} has safetensors but no `config.json`",
            "The configuration says which family the tensors are of; put it beside them.",
        )
    check_file(config, folder)
    stored = read_headers(files)
    check_listed(folder, listed, stored)
    raw = load_json(config)
    description = describe(raw, str(config), by_headers=True)
    if description.facts["tie_word_embeddings"]:
        head = any(module.endswith("lm_head") for module in map(_module, stored))
        description = describe(raw, str(config), head, by_headers=True)
    return _Checkpoint(folder, stored).graph(description, name)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


class _Checkpoint:
    """The stored tensors, taken away one by one as the table explains them."""

    def __init__(self, folder: Path, stored: dict[str, Stored]) -> None:
        self._folder = folder
        self._left = _used(stored)
        self._regular: Sequence[Tensor] = ()
        there = {name.rpartition(".")[2] for name in stored}
        self._companions = tuple(word for word in COMPANIONS if word in there)

    def graph(self, description: Description, name: str) -> ModelGraph:
        regular = description.graph(name)
        self._regular = regular.tensors
        expected = self._present(regular.tensors)
        tensors = tuple(part for tensor in expected for part in self._take(tensor))
        if self._left:
            raise self._unexplained(next(iter(self._left)), regular)
        graph = replace(regular, tensors=tensors)
        facts = {**regular.config, "quantization": one_format(tensor.form for tensor in tensors)}
        if "num_mtp_layers" in facts:
            facts["num_mtp_layers"] = graph.mtp_layers
        return replace(graph, config=facts)

    def _present(self, tensors: Sequence[Tensor]) -> Iterator[Tensor]:
        """The tensors that have to be stored, those left out that may be absent and are."""
        stored_mtp = {tensor.mtp for tensor in tensors if tensor.mtp is not None and self._is_there(tensor)}
        for tensor in tensors:
            copy = tensor.mtp is not None and tensor.role in (Role.EMBEDDING, Role.LM_HEAD)
            if (tensor.mtp is None or tensor.mtp in stored_mtp) and (not copy or self._is_there(tensor)):
                yield tensor

    def _is_there(self, tensor: Tensor) -> bool:
        return self._has(tensor) or any(map(self._has, _apart(tensor)))

    def _take(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensor as it is stored; a range of experts in as many parts as there are changes of form."""
        apart = _apart(tensor)
        if any(map(self._has, apart)) and not self._has(tensor):
            yield self._put_together(tensor, apart)
            return
        forms = self._forms(tensor)
        if tensor.experts is None:
            yield _stored_as(tensor, forms[0])
            return
        start = tensor.experts.start
        for form, run in groupby(forms):
            end = start + sum(1 for _ in run)
            yield _stored_as(tensor.narrowed(range(start, end)), form)
            start = end

    def _put_together(self, stack: Tensor, apart: Sequence[Tensor]) -> Tensor:
        """A stack whose experts are stored one by one, all in one form."""
        forms = {form: single.module for single in apart for form in self._forms(single)}
        if len(forms) > 1:
            (form, module), (other, second), *_ = forms.items()
            raise self._error(
                module, f"is stored as {form}, `{shorten(second, 100)}` as {other}: one stack of experts has one form"
            )
        return replace(stack, form=next(iter(forms))._replace(apart=tuple(single.path[-1] for single in apart)))

    # --- one weight ------------------------------------------------------------------------------------

    def _forms(self, tensor: Tensor) -> list[Form]:
        """The form of each expert's weight, or the one form."""
        endings = self._endings(tensor)
        spelled = tuple(ending for _, ending in endings)
        take, known, forms = self._left.pop, dict[tuple[Stored | None, ...], Form](), []
        for module in tensor.modules():
            found = tuple([take(module + ending, None) for ending in spelled])
            form = known.get(found)
            if form is None:
                form = known[found] = self._form(module, tensor, endings, found)
            forms.append(form)
        return forms

    def _form(self, module: str, tensor: Tensor, endings: Endings, found: Sequence[Stored | None]) -> Form:
        stored = {word: one for (word, _), one in zip(endings, found, strict=True) if one is not None}
        own, shape = stored.get(WEIGHT), tensor.shape
        if not CODES & stored.keys():
            raise self._missing(module + endings[0][1], stored)
        if own is not None and len(stored) == 1 and own.dtype in UNQUANTIZED:
            if own.shape != shape:
                what = f"has the shape {list(own.shape)}, but `config.json` gives {list(shape)}"
                raise self._error(module + endings[0][1], what)
            return Form(UNQUANTIZED[own.dtype])
        try:
            return form_of(stored, shape, tensor.contraction if tensor.contracted else len(shape) - 1)
        except Unknown as problem:
            name = module + dict(reversed(endings))[problem.word]
            raise self._error(name, problem.what, f"`config.json` gives this weight {list(shape)}.") from None

    def _endings(self, tensor: Tensor) -> Endings:
        """The words of what can be stored for a weight, each with what follows the module's name then."""
        if tensor.parameter:
            words = self._companions if len(tensor.shape) > 1 else ()
            return ((WEIGHT, f".{tensor.parameter}"), *((word, f".{word}") for word in words))
        shortened = [(word, word.removeprefix(WEIGHT)) for word in COMPANIONS if word.startswith(WEIGHT)]
        return ((WEIGHT, ""), *shortened, *((word, f"_{word}") for word in COMPANIONS))

    def _has(self, tensor: Tensor) -> bool:
        """Whether anything is stored for a tensor, for one of a range of experts."""
        endings = self._endings(tensor)
        return any(module + ending in self._left for module in tensor.modules() for _, ending in endings)

    # --- what is wrong ---------------------------------------------------------------------------------

    def _missing(self, name: str, beside: Iterable[str]) -> ModelError:
        there = or_list([*beside][:1])
        what = f"is missing, and its {there} is there" if there else "is missing"
        return self._error(name, what, help_for_missing(name, self._strays()))

    def _strays(self) -> set[str]:
        """What is stored and belongs to no tensor of the table."""
        strays = set(self._left)
        for tensor in chain.from_iterable((tensor, *_apart(tensor)) for tensor in self._regular):
            endings = [ending for _, ending in self._endings(tensor)]
            strays.difference_update(module + ending for module in tensor.modules() for ending in endings)
        return strays

    def _unexplained(self, name: str, graph: ModelGraph) -> ModelError:
        what = f"is no tensor that the table of {graph.family} explains ({len(self._left):,} are not)"
        return self._error(name, what, help_for_stray(name, graph))

    def _error(self, name: str, what: str, help: str = "") -> ModelError:
        return ModelError(f"{self._folder}: `{shorten(name, 100)}` {what}", help)


def _used(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """What is stored without what belongs to no weight."""
    words = {name.rpartition(".")[2] for name in stored}
    if words.isdisjoint((*_UNUSED, *_TABLES, *_CACHE_SCALES)):
        return dict(stored)
    return {name: one for name, one in stored.items() if not _is_unused(name, one)}


def _is_unused(name: str, stored: Stored) -> bool:
    module, _, word = name.rpartition(".")
    if word in _CACHE_SCALES:
        return "attn" in module and prod(stored.shape) == 1
    return word in _TABLES or (word in _UNUSED and module.endswith("rotary_emb"))


def _apart(tensor: Tensor) -> tuple[Tensor, ...]:
    """The weights of every expert of a stack, as they are named where they are stored one by one."""
    parts = STACKED_PARTS.get(tensor.part, ()) if tensor.stacked and not tensor.parameter else ()
    if not parts:
        return ()
    shape = taken_apart(parts, tensor.shape, tensor.contraction)
    single = replace(tensor, parameter=WEIGHT, shape=shape, contracted=(1,), experts=range(tensor.stacked))
    return tuple(replace(single, path=(*tensor.path[:-1], EXPERT, part), part=part) for part in parts)


def _stored_as(tensor: Tensor, form: Form) -> Tensor:
    return tensor if form == tensor.form else replace(tensor, form=form)
