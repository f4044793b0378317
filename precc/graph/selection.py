"""Which tensors a selector reaches: whole path components, roles, layers, and what protection it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import ceil
from re import compile as compile_pattern
from re import escape
from typing import Literal, NamedTuple, TypeAlias

from precc.graph.model import Tensor
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
    """This matches what any member of a group matches, and opens what any of these opens."""
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

_Place: TypeAlias = tuple[int, int]
"""Where in the path a partial match stands, and what it has opened."""


class _Step(NamedTuple):
    """One component of a path selector, compiled."""

    kind: Literal["name", "depth", "layers"]
    accepts: Callable[[str], bool]
    literal: bool = False


def _path_matcher(selector: PathSelector, layers: int) -> Matcher:
    steps = tuple(_step(component, layers) for component in selector.components)
    needed = frozenset(
        component.alternatives[0]
        for component in selector.components
        if isinstance(component, Name) and component.is_literal and len(component.alternatives) == 1
    )

    in_layers = [step.accepts for step in steps if step.kind == "layers"]

    def test(tensor: Tensor) -> int:
        if any(tensor.layer is None or not accepts(str(tensor.layer)) for accepts in in_layers):
            return 0
        return _matched(steps, tensor) if needed <= tensor.word_set else 0

    return test


def _matched(steps: tuple[_Step, ...], tensor: Tensor) -> int:
    """The bits of all ways in which a run of the path matches the steps."""
    path = tensor.words
    places = {(start, 0) for start in range(len(path))}
    for at, step in enumerate(steps):
        places = {after for place in places for after in _after(step, at == len(steps) - 1, place, path, tensor)}
    found = MATCHES if places else 0
    for _, opened in places:
        found |= opened
    return found


def _after(step: _Step, last: bool, place: _Place, path: tuple[str, ...], tensor: Tensor) -> Iterable[_Place]:
    """Where one step leads from a place."""
    here, opened = place
    if step.kind == "depth":
        return ((end, opened) for end in range(here, len(path) + 1))
    if here >= len(path):
        return ()
    if step.kind == "layers":
        inside = tensor.layer is not None and path[here : here + 2] == ("layers", str(tensor.layer))
        return ((here + 2, opened),) if inside and step.accepts(path[here + 1]) else ()
    if not step.accepts(path[here]):
        return ()
    if step.literal and tensor.outer is not None and here == tensor.outer_depth - 1:
        opened |= OPENS_OUTER
    if step.literal and last and here == len(path) - 1:
        opened |= OPENS_OWN
    return ((here + 1, opened),)


def _step(component: Component, layers: int) -> _Step:
    if isinstance(component, AnyDepth):
        return _Step("depth", lambda _: True)
    if isinstance(component, Layers):
        chosen, _ = chosen_layers(component.which, layers)
        return _Step("layers", frozenset(map(str, chosen)).__contains__)
    return _Step("name", word_test(component.alternatives), component.is_literal)


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
    tests = [word_test(alternatives) for alternatives in dict.fromkeys(_numeric_components(selectors))]
    if not tests:
        return tuple(tensors)
    cuts: dict[range, tuple[range, ...]] = {}
    found: list[Tensor] = []
    for tensor in tensors:
        experts = tensor.experts
        if experts is None:
            found.append(tensor)
            continue
        if experts not in cuts:
            cuts[experts] = tuple(_cut(experts, tests))
        pieces = cuts[experts]
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


def _numeric_components(selectors: Iterable[Selector]) -> Iterator[tuple[str, ...]]:
    """The components that could tell one expert's number from another's."""
    for selector in selectors:
        if isinstance(selector, GroupSelector):
            yield from _numeric_components(selector.members)
        elif isinstance(selector, CombinedSelector):
            yield from _numeric_components((selector.left, selector.right))
        elif isinstance(selector, PathSelector):
            yield from _numeric_in_path(selector.components)


def _numeric_in_path(components: tuple[Component, ...]) -> Iterator[tuple[str, ...]]:
    previous: Component | None = None
    for component in components:
        after_layers = isinstance(previous, Name) and previous.alternatives == ("layers",)
        if isinstance(component, Name) and not after_layers:
            words = (word for word in component.alternatives if word.replace("*", "").isdecimal())
            if any(True for _ in words):
                yield component.alternatives
        previous = component
