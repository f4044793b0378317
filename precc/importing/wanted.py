"""What the policy has to decide: a reading's decisions as the language completes them, for every tensor of the model.

A tool that leaves a tensor alone leaves it as a policy without rules would; one that says nothing of the backward pass
gets the one that the language gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from precc.diagnostics import error
from precc.formats import Decision
from precc.front import read_policy
from precc.graph.model import ModelGraph, Tensor
from precc.importing.checkpoint import NO_SPELLING
from precc.importing.reading import Decided, Reading, Unimportable
from precc.records import record, replace
from precc.resolve.bind import bind
from precc.resolve.fill import Draft
from precc.source import SourceFile


@record
class Wanted:
    """A tensor, or some of its experts, with the whole decision that the policy must give it.

    `left` is what it has in a policy without rules.
    """

    tensor: Tensor
    decision: Decision
    left: Decision


def wanted(reading: Reading, graph: ModelGraph) -> tuple[Wanted, ...]:
    """The whole decision for every tensor. Raises Unimportable where the language has no spelling for one."""
    decisions = tuple(_cut_alike(tuple(_joined(reading.decisions))))
    tensors = tuple(tensor for tensor, _ in decisions)
    left, _ = read_policy(SourceFile("", "default: bf16\n"))
    entries = bind(left, dataclasses.replace(graph, tensors=tensors)).contract.entries
    return tuple(_wanted(decided, entry.decision) for decided, entry in zip(decisions, entries, strict=True))


def _joined(decisions: Iterable[Decided]) -> Iterator[Decided]:
    """The decisions with neighbouring experts joined that are decided alike."""
    held: Decided | None = None
    for tensor, decision in decisions:
        if held is not None and _goes_on(held, (tensor, decision)):
            held = held[0].narrowed(range(_experts(held[0]).start, _experts(tensor).stop)), decision
            continue
        if held is not None:
            yield held
        held = tensor, decision
    if held is not None:
        yield held


def _goes_on(held: Decided, following: Decided) -> bool:
    (one, first), (other, second) = held, following
    alike = first == second and (one.path, one.parameter) == (other.path, other.parameter)
    return alike and one.experts is not None and _experts(one).stop == _experts(other).start


def _experts(tensor: Tensor) -> range:
    return tensor.experts or range(0)


def _cut_alike(decisions: Sequence[Decided]) -> Iterator[Decided]:
    """The decisions with all ranges of experts cut where any is: a selector with a number tells experts apart in every
    layer."""
    ranges = {tensor.experts for tensor, _ in decisions if tensor.experts is not None}
    edges = sorted({edge for experts in ranges for edge in (experts.start, experts.stop)})
    for tensor, decision in decisions:
        if tensor.experts is None:
            yield tensor, decision
            continue
        for start, stop in pairwise(edges):
            if start in tensor.experts:
                yield tensor.narrowed(range(start, stop)), decision


def _wanted(decided: Decided, left: Decision) -> Wanted:
    tensor, decision = decided
    return Wanted(tensor, left if decision is None else completed(decision), left)


@lru_cache(maxsize=256)
def completed(decision: Decision) -> Decision:
    """A decision with what a policy that spells it adds. Raises Unimportable where none can spell it."""
    policy, findings = read_policy(SourceFile("", f"default: {decision}\n"))
    draft = Draft()
    for rule in policy.defaults:
        draft.apply(rule)
    found = draft.decision()
    said = found if decision.backward is not None else replace(found, backward=None)
    if any(finding.is_error for finding in findings) or said != decision:
        raise Unimportable([error(NO_SPELLING, f"no policy can spell `{decision}`")])
    return found
