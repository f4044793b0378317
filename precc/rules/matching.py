"""Selectors that match nothing on a model, and why."""

from __future__ import annotations

from collections.abc import Iterator

from precc.graph.families import vocabulary
from precc.graph.model import ModelGraph, Tensor
from precc.graph.selection import matcher
from precc.records import record, replace
from precc.resolve.bind import Binding
from precc.syntax.ast import (
    CombinedSelector,
    Component,
    GroupSelector,
    IsCondition,
    Layers,
    Name,
    PathSelector,
    RoleSelector,
    Selector,
)


@record
class Miss:
    """A path that matches nothing on this model. `known`: some family has such a name. `elsewhere`: tensors of this
    model that play the same part under another name and that the rule does not reach. `outside`: only the numbers in
    its brackets miss."""

    selector: PathSelector
    known: bool
    optional: bool
    elsewhere: tuple[Tensor, ...] = ()
    outside: bool = False

    @property
    def text(self) -> str:
        return self.selector.span.text.rstrip("?")


def leaves(selector: Selector, optional: bool = False) -> Iterator[tuple[PathSelector | RoleSelector, bool]]:
    """The paths and roles that a selector is made of, each with whether it may match nothing."""
    if isinstance(selector, CombinedSelector):
        yield from leaves(selector.left, optional)
        yield from leaves(selector.right, optional)
    elif isinstance(selector, GroupSelector):
        for member in selector.members:
            yield from leaves(member, optional or selector.optional)
    else:
        yield selector, optional or selector.optional


def matches_any(selector: Selector, model: ModelGraph) -> bool:
    """Whether anything on the model matches, protected or not."""
    test = matcher(selector, model.layers)
    return any(test(tensor) for tensor in model.tensors)


def misses(binding: Binding) -> Iterator[Miss]:
    """Every path in the policy's rules that matches nothing on the model."""
    for use in binding.uses:
        for selector in use.rule.selectors:
            yield from _misses(selector, frozenset(use.matched), binding.model)


def expected_misses(binding: Binding) -> Iterator[Miss]:
    """Every path in the policy's expectations that matches nothing on the model."""
    for expect in binding.policy.expects:
        if isinstance(expect.condition, IsCondition):
            yield from _misses(expect.condition.selector, frozenset(), binding.model)


def _misses(selector: Selector, matched: frozenset[int], model: ModelGraph) -> Iterator[Miss]:
    for leaf, optional in leaves(selector):
        if isinstance(leaf, PathSelector) and not matches_any(leaf, model):
            yield _miss(leaf, optional, matched, model)


def _miss(leaf: PathSelector, optional: bool, matched: frozenset[int], model: ModelGraph) -> Miss:
    anywhere = replace(leaf, components=tuple(_any_layer(leaf.components)))
    if matches_any(anywhere, model):
        return Miss(leaf, known=True, optional=optional, outside=True)
    test = matcher(anywhere, 1)
    known = [tensor for tensor in vocabulary() if test(tensor)]
    parts = {(tensor.role, tensor.part) for tensor in known if tensor.is_gemm and tensor.outer is None}
    same = [t for t in model.tensors if t.is_gemm and t.outer is None and (t.role, t.part) in parts]
    reached = any(model.tensors[at] in same for at in matched) if same else False
    return Miss(leaf, bool(known), optional, () if reached else tuple(same))


def _any_layer(components: tuple[Component, ...]) -> Iterator[Component]:
    """The same path with the numbers of layers and experts left open."""
    for component in components:
        if isinstance(component, Layers):
            yield Name(("layers",), span=component.span)
            yield Name(("*",), span=component.span)
        elif isinstance(component, Name) and all(word.isdecimal() for word in component.alternatives):
            yield Name(("*",), span=component.span)
        else:
            yield component
