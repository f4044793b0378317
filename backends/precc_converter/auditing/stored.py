"""What the headers say of every tensor, against what the contract promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from precc.contract.wording import listed
from precc.graph.forms import UNQUANTIZED, Layout
from precc.graph.headers import Located, Stored
from precc.graph.layouts import COMPANIONS, recognize
from precc_converter.auditing.checkpoint import Checkpoint
from precc_converter.auditing.faults import CONVERT, MISSING_OR_EXTRA, OTHER_LAYOUT, UNLIKE, Fault, Faults
from precc_converter.auditing.layouts import NOTES
from precc_converter.auditing.promises import Promise

_ALSO = {"weight_shape": ("I32",)}
"""Dtypes that hold the same numbers and that servers read as well."""

_UNUSED = ("rotary_emb.inv_freq",)
"""Buffers that old checkpoints hold and nothing reads."""

_EXTRA = Fault(MISSING_OR_EXTRA, "the contract has no such tensors", "take them out, or compile for this checkpoint")
_UNASKED_SCALE = Fault(
    MISSING_OR_EXTRA,
    "scales of inputs are stored, where the contract scales inputs as they come",
    "take them out: a server that finds them multiplies with them",
)


@dataclass
class Comparison:
    """What became of the promises: how many stored tensors they are, and those that are as promised, by name."""

    checked: int = 0
    right: dict[str, Located] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)


def compare_headers(checkpoint: Checkpoint, promises: Iterable[Promise]) -> Comparison:
    """This compares names, dtypes and shapes: one look-up a tensor, and a second look at what is wrong."""
    done = Comparison()
    left = dict(checkpoint.tensors)
    wrong: list[tuple[Promise, dict[str, Located]]] = []
    for promise in promises:
        found: dict[str, Located] = {}
        good: dict[str, Located] = {}
        stem = promise.name("")
        for word, wanted in promise.stored.items():
            located = left.pop(stem + word, None)
            if located is not None:
                found[word] = located
                if located.stored == wanted or same(located.stored, wanted, word):
                    good[stem + word] = located
        done.checked += len(promise.stored)
        if len(good) == len(promise.stored):
            done.right.update(good)
        else:
            wrong.append((promise, found))
    _explain(checkpoint, wrong, left, done)
    return done


def same(found: Stored, wanted: Stored, word: str) -> bool:
    """Whether a tensor is stored as promised; one value may be a scalar or stand in a list of one."""
    alike = found.dtype == wanted.dtype or found.dtype in _ALSO.get(word, ())
    return alike and (found.shape == wanted.shape or prod(found.shape) == prod(wanted.shape) == 1)


def _explain(
    checkpoint: Checkpoint, wrong: list[tuple[Promise, dict[str, Located]]], left: dict[str, Located], done: Comparison
) -> None:
    beside: dict[str, dict[str, Located]] = {}
    for name, located in left.items():
        module, _, word = name.rpartition(".")
        if word in COMPANIONS or word == "weight":
            beside.setdefault(module, {})[word] = located
    for promise, found in wrong:
        whole = {**found, **beside.get(promise.module, {})} if promise.own == "weight" else found
        explained = _Explaining(checkpoint, promise, found, whole, done)()
        for word in explained:
            left.pop(promise.name(word), None)
    _extra(left, done)


def _extra(left: Mapping[str, Located], done: Comparison) -> None:
    for name, located in left.items():
        if not name.endswith(_UNUSED):
            word = name.rpartition(".")[2]
            done.faults.add(_UNASKED_SCALE if word == "input_scale" else _EXTRA, [name], located.file)


@dataclass
class _Explaining:
    """One weight that is not as promised: `found` are its own words, `whole` everything in its module."""

    checkpoint: Checkpoint
    promise: Promise
    found: Mapping[str, Located]
    whole: Mapping[str, Located]
    done: Comparison

    def __call__(self) -> Iterable[str]:
        """This notes the fault and answers with the words, beside the promised ones, that it explains."""
        if self._lost():
            return ()
        as_whole = self._stored_otherwise()
        if as_whole is not None:
            self._add(as_whole, self.promise.own if self.promise.own in self.whole else next(iter(self.whole)))
            return self.whole
        for word, wanted in self.promise.stored.items():
            self._one(word, wanted)
        return ()

    def _lost(self) -> bool:
        """Whether all that is missing went with a shard; what of the rest is right counts as right."""
        names = {word: self.promise.name(word) for word in self.promise.stored}
        absent = [word for word in names if word not in self.found]
        unlike = [w for w, at in self.found.items() if not same(at.stored, self.promise.stored[w], w)]
        if unlike or not all(self.checkpoint.is_lost(names[word]) for word in absent):
            return False
        self.done.right.update((names[word], located) for word, located in self.found.items())
        return True

    def _stored_otherwise(self) -> Fault | None:
        """The fault of a weight that is stored whole, in another format or in another tool's names."""
        found = {word: located.stored for word, located in self.whole.items()}
        own, promised = found.get(self.promise.own), self.promise.weight
        if own and own.dtype in UNQUANTIZED and own.shape == self.promise.shape and promised.is_quantized:
            return _format(UNQUANTIZED[own.dtype], promised.format)
        layout = recognize(found) if self.promise.own == "weight" else None
        if layout is None or layout.words.keys() == self.promise.stored.keys() - {"input_scale"}:
            return self._same_words(layout, found)
        if layout.format != promised.format:
            return _format(layout.format, promised.format)
        return _layout(layout, self.promise)

    def _same_words(self, layout: Layout | None, found: Mapping[str, Stored]) -> Fault | None:
        """Another format under the same names: MXFP8 and FP8 blocks both have a `weight_scale_inv`."""
        if layout is None or layout.format == self.promise.weight.format or found.keys() != self.promise.stored.keys():
            return None
        return _format(layout.format, self.promise.weight.format)

    def _one(self, word: str, wanted: Stored) -> None:
        located = self.found.get(word)
        if located is None:
            if not self.checkpoint.is_lost(self.promise.name(word)):
                self._add(Fault(MISSING_OR_EXTRA, self._missing(word), CONVERT), word)
        elif not same(located.stored, wanted, word):
            what = f"{_shown(located.stored)} is stored, where the contract promises {_shown(wanted)}"
            self._add(Fault(UNLIKE, what, f"{CONVERT}, or compile the policy for this checkpoint"), word)
        else:
            self.done.right[self.promise.name(word)] = located

    def _missing(self, word: str) -> str:
        if word == self.promise.own or not self.found:
            return "tensors of the contract are missing"
        return f"the `{word}` beside a {self.promise.weight.format} weight is missing"

    def _add(self, fault: Fault, word: str) -> None:
        located = self.whole.get(word)
        self.done.faults.add(fault, [self.promise.name(word)], located and located.file)


def _format(found: str, promised: str) -> Fault:
    return Fault(UNLIKE, f"{found} is stored, where the contract promises {promised}", CONVERT)


def _layout(layout: Layout, promise: Promise) -> Fault:
    theirs, ours = (listed([f"`{word}`" for word in words]) for words in (layout.words, promise.stored))
    note = NOTES.get((layout.format, layout.writer))
    what = f"{layout.format} is stored in the names of {layout.writer}, {theirs}, where the contract's are {ours}"
    help = f"{CONVERT}, or rename and rewrite the scales" + (f": {note}" if note else "")
    return Fault(OTHER_LAYOUT, what, help)


def _shown(stored: Stored) -> str:
    return f"{stored.dtype} {list(stored.shape)}"
