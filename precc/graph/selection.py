"""Which tensors a selector reaches: whole path components, roles, layers, and what protection it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import ceil
from re import compile as compile_pattern
from re import escape
from typing import TypeAlias

from precc.graph.model import EXPERT, Tensor
from precc.syntax.ast import (
    AnyDepth,
    Bound,
    CombinedSelector,
    Component,
    GroupSelector,
    Indices,
    Layers,
    Name,
    PathSelector,
    RoleSelector,
    Selector,
    Slice,
)
from precc.syntax.words import Role

MATCHES, OPENS_OUTER, OPENS_OWN = 1, 2, 4
"""What a selector does to a tensor, as bits: it matches; it opens the tower or MTP layer around it; it names it."""

Matcher: TypeAlias = Callable[[Tensor], int]

PROTECTED_ROLES = frozenset({Role.ROUTER, Role.EMBEDDING, Role.LM_HEAD, Role.NORM})
"""Roles that name a protected tensor itself, rather than something larger that it is part of."""


def matcher(selector: Selector, layers: int) -> Matcher:
    """This compiles a selector for a model of so many decoder layers; the result answers with bits."""
    if isinstance(selector, RoleSelector):
        return _role_matcher(Role(selector.role))
    if isinstance(selector, PathSelector):
        return _path_matcher(selector, layers)
    if isinstance(selector, GroupSelector):
        return union([matcher(member, layers) for member in selector.members])
    return _combined(selector, layers)


def union(members: list[Matcher]) -> Matcher:
    """This matches what any member matches; a tensor is open if one member that matches it opens it."""
    if len(members) == 1:
        return members[0]

    def test(tensor: Tensor) -> int:
        found = 0
        for member in members:
            found |= member(tensor)
        return found

    return test


def reaches(bits: int, tensor: Tensor) -> bool:
    """Whether a match decides about the tensor: it must open each protection that the tensor is under."""
    needed = MATCHES | (OPENS_OUTER if tensor.outer else 0) | (OPENS_OWN if tensor.protected else 0)
    return bits & needed == needed


def full_path(tensor: Tensor) -> tuple[str, ...]:
    """The components that selectors see: the module, and the parameter where it is not `weight`. A range of experts
    is seen as its first."""
    path = tensor.path
    if tensor.experts is not None:
        first = str(tensor.experts.start)
        path = tuple(first if word == EXPERT else word for word in path)
    return path if tensor.parameter in ("", "weight") else (*path, tensor.parameter)


def _combined(selector: CombinedSelector, layers: int) -> Matcher:
    left, right = matcher(selector.left, layers), matcher(selector.right, layers)
    if selector.operator == "except":
        return lambda tensor: 0 if right(tensor) else left(tensor)

    def both(tensor: Tensor) -> int:
        first = left(tensor)
        second = right(tensor) if first else 0
        return first | second if second else 0

    return both


def _role_matcher(role: Role) -> Matcher:
    opens_own = OPENS_OWN if role in PROTECTED_ROLES else 0

    def test(tensor: Tensor) -> int:
        if tensor.role is role:
            return MATCHES | opens_own | (OPENS_OUTER if tensor.outer is role else 0)
        if role in tensor.within:
            return MATCHES | (OPENS_OUTER if tensor.outer is role else 0)
        return 0

    return test


# --- paths -------------------------------------------------------------------------------------------

_Step: TypeAlias = tuple[str, Callable[[str], bool], bool]
"""Kind of component (`name`, `depth`, `layers`), the test of a word, and whether the component is literal."""


def _path_matcher(selector: PathSelector, layers: int) -> Matcher:
    steps = tuple(_step(component, layers) for component in selector.components)
    first = selector.components[0]
    words = frozenset(first.alternatives) if isinstance(first, Name) and first.is_literal else None

    def test(tensor: Tensor) -> int:
        path = full_path(tensor)
        if words is not None and words.isdisjoint(path):
            return 0
        found = 0
        for start in range(len(path)):
            found |= _run(steps, 0, path, start, tensor, 0)
        return found

    return test


def _run(steps: tuple[_Step, ...], at: int, path: tuple[str, ...], here: int, tensor: Tensor, opened: int) -> int:
    """The bits of all ways in which the steps from `at` on match the path from `here` on."""
    if at == len(steps):
        return MATCHES | opened
    kind, accepts, literal = steps[at]
    if kind == "depth":
        ends = range(here, len(path) + 1)
        return _any(_run(steps, at + 1, path, end, tensor, opened) for end in ends)
    if here >= len(path):
        return 0
    if kind == "layers":
        if path[here] != "layers" or here + 1 >= len(path) or tensor.layer is None:
            return 0
        if path[here + 1] != str(tensor.layer) or not accepts(path[here + 1]):
            return 0
        return _run(steps, at + 1, path, here + 2, tensor, opened)
    if not accepts(path[here]):
        return 0
    if literal and tensor.outer is not None and here == tensor.outer_depth - 1:
        opened |= OPENS_OUTER
    if literal and at == len(steps) - 1 and here == len(path) - 1:
        opened |= OPENS_OWN
    return _run(steps, at + 1, path, here + 1, tensor, opened)


def _any(bits: Iterable[int]) -> int:
    found = 0
    for more in bits:
        found |= more
    return found


def _step(component: Component, layers: int) -> _Step:
    if isinstance(component, AnyDepth):
        return "depth", lambda _: True, False
    if isinstance(component, Layers):
        chosen, _ = chosen_layers(component.which, layers)
        words = frozenset(map(str, chosen))
        return "layers", words.__contains__, False
    return "name", word_test(component.alternatives), component.is_literal


def word_test(alternatives: tuple[str, ...]) -> Callable[[str], bool]:
    """This tests one path component against plain alternatives in which `*` is any run of characters."""
    if alternatives == ("*",):
        return lambda _: True
    if not any("*" in text for text in alternatives):
        return frozenset(alternatives).__contains__
    pattern = "|".join(".*".join(map(escape, text.split("*"))) for text in alternatives)
    compiled = compile_pattern(f"(?:{pattern})")
    return lambda word: compiled.fullmatch(word) is not None


# --- layers ------------------------------------------------------------------------------------------


def chosen_layers(which: Indices | Slice, layers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The decoder layers that brackets name on a model of so many, and the indices that lie outside it."""
    if isinstance(which, Slice):
        start = 0 if which.start is None else _edge(which.start, layers)
        stop = layers if which.stop is None else _edge(which.stop, layers)
        return tuple(range(start, stop)), ()
    inside = tuple(index % layers for index in which.values if -layers <= index < layers)
    outside = tuple(index for index in which.values if not -layers <= index < layers)
    return inside, outside


def _edge(bound: Bound, layers: int) -> int:
    """A slice's end as a layer number, clamped. Shares round up, so 15 % of 48 layers are 8."""
    count = ceil(bound.value * layers / Fraction(100)) if bound.is_share else int(bound.value)
    if bound.from_end and (count or bound.is_share):
        count = layers - count
    return min(max(count, 0), layers)


# --- experts -----------------------------------------------------------------------------------------


def split_experts(tensors: Iterable[Tensor], selectors: Iterable[Selector]) -> tuple[Tensor, ...]:
    """This cuts ranges of experts so that each selector reaches all of a range or none of it."""
    tests = [word_test((word,)) for word in sorted(set(_numeric_words(selectors)))]
    if not tests:
        return tuple(tensors)
    cuts: dict[range, tuple[range, ...]] = {}
    found: list[Tensor] = []
    for tensor in tensors:
        if tensor.experts is None:
            found.append(tensor)
            continue
        pieces = cuts.setdefault(tensor.experts, tuple(_cut(tensor.experts, tests)))
        found.extend([tensor] if len(pieces) == 1 else map(tensor.narrowed, pieces))
    return tuple(found)


def _cut(experts: range, tests: list[Callable[[str], bool]]) -> Iterator[range]:
    start, held = experts.start, [test(str(experts.start)) for test in tests]
    for expert in experts[1:]:
        here = [test(str(expert)) for test in tests]
        if here != held:
            yield range(start, expert)
            start, held = expert, here
    yield range(start, experts.stop)


def _numeric_words(selectors: Iterable[Selector]) -> Iterator[str]:
    """The alternatives that could tell one expert's number from another's."""
    for selector in selectors:
        if isinstance(selector, GroupSelector):
            yield from _numeric_words(selector.members)
        elif isinstance(selector, CombinedSelector):
            yield from _numeric_words((selector.left, selector.right))
        elif isinstance(selector, PathSelector):
            yield from _numeric_in_path(selector.components)


def _numeric_in_path(components: tuple[Component, ...]) -> Iterator[str]:
    previous: Component | None = None
    for component in components:
        after_layers = isinstance(previous, Name) and previous.alternatives == ("layers",)
        if isinstance(component, Name) and not after_layers:
            plain = (word for word in component.alternatives if word.strip("*").replace("*", "").isdecimal())
            yield from plain
        previous = component
