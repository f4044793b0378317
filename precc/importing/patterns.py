"""The tensors of a model that rules of another tool reach: any test of a name, asked for as few names as will do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.records import record

Test = Callable[[str], bool]
"""Whether a rule reaches a module, by its Hugging Face name without `.weight`."""


@record
class Pattern:
    """One rule's test, and what it says about names before it is asked.

    `prefix` is text that every name it accepts begins with; empty for a rule that may accept any. `by_expert` is false
    where experts of one layer cannot be told apart by it, so that the first one's name speaks for all of them. `word`
    is one whole component that every name it accepts has; empty for no such word, never an expert's number. `expert` is
    the number of the one expert whose names it accepts, where it says one.
    """

    test: Test
    prefix: str = ""
    by_expert: bool = True
    word: str = ""
    expert: int | None = None


@record
class Piece:
    """A tensor, or some of its experts, with the positions of the rules that reach it, in their order."""

    tensor: Tensor
    hits: tuple[int, ...]


def pieces(graph: ModelGraph, patterns: Sequence[Pattern]) -> tuple[Piece, ...]:
    """Every tensor of a model with the rules that reach it; ranges of experts are cut where a rule tells them apart."""
    shelf = _Shelf(patterns)
    return tuple(piece for tensor in graph.tensors for piece in _pieces(tensor, patterns, shelf.near(tensor)))


class _Shelf:
    """The positions of rules by what the names that they accept begin with (as far as the layer), or by their word."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._under: dict[tuple[str, ...], list[int]] = {}
        self._with: dict[str, list[int]] = {}
        for at, pattern in enumerate(patterns):
            if pattern.word:
                self._with.setdefault(pattern.word, []).append(at)
            else:
                self._under.setdefault(_place(pattern.prefix), []).append(at)

    def near(self, tensor: Tensor) -> list[int]:
        """The rules that could reach a tensor."""
        placed = (at for depth in range(len(tensor.path) + 1) for at in self._under.get(tensor.path[:depth], ()))
        named = (at for word in {*tensor.path, tensor.parameter} for at in self._with.get(word, ()))
        return sorted((*placed, *named))


def _place(prefix: str) -> tuple[str, ...]:
    *whole, _ = prefix.split(".")
    depth = next((depth for depth, word in enumerate(whole, 1) if word.isdecimal()), len(whole))
    return tuple(whole[:depth])


def _pieces(tensor: Tensor, patterns: Sequence[Pattern], near: Iterable[int]) -> Iterator[Piece]:
    found = [(at, parts) for at in near if (parts := reached(patterns[at], tensor))]
    if all(part.experts == tensor.experts for _, parts in found for part in parts):
        yield Piece(tensor, tuple(at for at, _ in found))
        return
    reach = [(at, part.experts or range(0)) for at, parts in found for part in parts]
    for experts in _cuts(tensor, [part for _, parts in found for part in parts]):
        hits = tuple(at for at, held in reach if experts.start in held)
        yield Piece(tensor.narrowed(experts), hits)


def _cuts(tensor: Tensor, parts: Iterable[Tensor]) -> Iterator[range]:
    ranges = [experts for experts in (tensor.experts, *(part.experts for part in parts)) if experts is not None]
    edges = sorted({edge for experts in ranges for edge in (experts.start, experts.stop)})
    yield from (range(start, stop) for start, stop in pairwise(edges))


def reached(pattern: Pattern, tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensor, or the ranges of its experts, that a rule reaches; empty for none."""
    if tensor.experts is None:
        return (tensor,) if any(map(pattern.test, _names(tensor, pattern.prefix))) else ()
    head = _head(tensor)
    if not head.startswith(pattern.prefix) and not pattern.prefix.startswith(head):
        return ()
    if not pattern.by_expert:
        return (tensor,) if pattern.test(next(tensor.modules())) else ()
    if pattern.expert is not None:
        return _one(pattern, tensor, pattern.expert)
    return tuple(_runs(pattern.test, tensor))


def _one(pattern: Pattern, tensor: Tensor, expert: int) -> tuple[Tensor, ...]:
    """One expert's tensor, if the rule reaches it."""
    name = ".".join(tensor.path).replace(EXPERT, str(expert))
    has = expert in (tensor.experts or ()) and pattern.test(name)
    return (tensor.narrowed(range(expert, expert + 1)),) if has else ()


def _names(tensor: Tensor, prefix: str) -> Iterator[str]:
    """What a rule may call a tensor: its module, and (a bias) its own name."""
    name = ".".join(tensor.path)
    if name.startswith(prefix):
        yield name
    if tensor.parameter not in ("", "weight") and f"{name}.{tensor.parameter}".startswith(prefix):
        yield f"{name}.{tensor.parameter}"


def _head(tensor: Tensor) -> str:
    return ".".join(tensor.path[: tensor.path.index(EXPERT)]) + "."


def _runs(test: Test, tensor: Tensor) -> Iterator[Tensor]:
    assert tensor.experts is not None
    answers = zip(tensor.experts, map(test, tensor.modules()), strict=True)
    for accepted, run in groupby(answers, key=lambda answer: answer[1]):
        if accepted:
            experts = [expert for expert, _ in run]
            yield tensor.narrowed(range(experts[0], experts[-1] + 1))


def counted(tensors: Iterable[Tensor]) -> int:
    """How many stored tensors these are, each expert's for itself."""
    return sum(tensor.count for tensor in tensors)


def all_reached(pattern: Pattern, graph: ModelGraph) -> tuple[Tensor, ...]:
    """Every tensor of a model that a rule reaches."""
    return tuple(part for tensor in graph.tensors for part in reached(pattern, tensor))


def folded(tensors: Iterable[Tensor], most: int = 3) -> str:
    """The names of tensors with their ranges of layers and experts, the first few of them."""
    from precc.contract.entry import Cause, Entry
    from precc.contract.wording import folded_names
    from precc.formats import BF16

    return folded_names([Entry(tensor, BF16, Cause("", 0, "")) for tensor in tensors], most)
