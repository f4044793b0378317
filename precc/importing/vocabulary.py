"""The selectors that a person would write for a model: roles, names, pairs of names, layers, and the MTP layers.

A tensor's *template* is its path with the decoder layer left open. No selector but one with layers tells tensors of one
template apart, so each is asked about templates only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from precc.contract.fold import LAYER, template
from precc.front import read_policy
from precc.graph.model import EXPERT, Tensor
from precc.graph.selection import matcher, reaches, union
from precc.records import record
from precc.source import SourceFile
from precc.syntax.words import RESERVED, Role

Key = tuple[object, ...]
"""A template: path and parameter with the layer open, and the experts."""


@record
class Phrase:
    """One selector without layers: its text, the templates it decides about, and how far it is from natural.

    `{layers}` in the text is the place of the brackets in a path; a phrase without it takes them behind an `in`.
    """

    text: str
    reached: frozenset[Key]
    effort: float

    def within(self, layers: str) -> str:
        """The selector with brackets; empty for all layers."""
        if "{layers}" in self.text:
            return self.text.replace("{layers}", f"layers{layers or '[:]'}")
        if self.text == EVERYTHING:
            return f"layers{layers or '[:]'}"
        if not layers:
            return self.text
        return f"{self.text} in layers{layers}"


EVERYTHING = "**"


def key_of(tensor: Tensor) -> Key:
    """The template of a tensor."""
    return (*template(tensor), tensor.experts)


def phrases(tensors: Iterable[Tensor], layers: int) -> tuple[Phrase, ...]:
    """Every phrase for a model, the more natural ones in front."""
    first = {key_of(tensor): tensor for tensor in tensors}
    found = [_phrase(text, effort, first, layers) for text, effort in dict(_words(first)).items()]
    found.append(Phrase(EVERYTHING, frozenset(key for key, t in first.items() if _is_open(t)), 0.3))
    found += [Phrase(_exact(t, _numbers(t, first)), frozenset([key]), 3.0) for key, t in first.items() if t.is_gemm]
    return tuple(sorted((phrase for phrase in found if phrase.reached), key=lambda phrase: phrase.effort))


def _is_open(tensor: Tensor) -> bool:
    """Whether a slice of layers reaches a tensor."""
    return tensor.layer is not None and not tensor.protected and tensor.outer is None and tensor.is_gemm


def _phrase(text: str, effort: float, first: dict[Key, Tensor], layers: int) -> Phrase:
    policy, findings = read_policy(SourceFile("", f"{text}: bf16\n"))
    if any(finding.is_error for finding in findings) or not policy.rules:
        return Phrase(text, frozenset(), effort)
    test = union([matcher(selector, layers) for selector in policy.rules[0].selectors])
    reached = frozenset(key for key, tensor in first.items() if reaches(test(tensor), tensor))
    return Phrase(text, reached, effort)


def _words(first: Mapping[Key, Tensor]) -> Iterator[tuple[str, float]]:
    """The texts of phrases, each with its effort; of a text that comes twice the last effort counts."""
    operands = [tensor for tensor in first.values() if tensor.is_gemm]
    for tensor in operands:
        yield from _names(tensor)
        yield from _experts(tensor, _numbers(tensor, first))
    yield from _roles(operands)


def _roles(tensors: list[Tensor]) -> Iterator[tuple[str, float]]:
    for role in Role:
        having = [tensor for tensor in tensors if tensor.has_role(role)]
        if having:
            yield f"@{role.value}", 0.0
        if role is not Role.MTP and any(tensor.outer is Role.MTP for tensor in having):
            yield f"@{role.value} in @mtp", 0.5


def _names(tensor: Tensor) -> Iterator[tuple[str, float]]:
    named = [word for word in tensor.path if word != EXPERT and not word.isdecimal()]
    last = named[-1]
    if last in RESERVED:
        return
    yield last, 0.1
    if tensor.outer is Role.MTP:
        yield f"{last} in @mtp", 0.7
    if tensor.role is not None:
        yield f"{last} in @{tensor.role.value}", 0.6
    if len(named) > 1 and named[-2] not in RESERVED and tensor.path[-2] == named[-2]:
        yield named[-2], 0.2
        yield f"{named[-2]}.{last}", 0.4


def _numbers(tensor: Tensor, first: Mapping[Key, Tensor]) -> str:
    """The experts of a tensor as a component of a path: `*` for all, `7`, or `{0,3,4}`; empty where there are none."""
    if tensor.experts is None:
        return ""
    siblings = [other for key, other in first.items() if key[:-1] == key_of(tensor)[:-1]]
    if len(siblings) == 1:
        return "*"
    numbers = ",".join(map(str, tensor.experts))
    return numbers if len(tensor.experts) == 1 else f"{{{numbers}}}"


def _experts(tensor: Tensor, numbers: str) -> Iterator[tuple[str, float]]:
    """Some experts of a layer, by their numbers."""
    if numbers not in ("", "*"):
        at = tensor.path.index(EXPERT)
        yield f"{tensor.path[at - 1]}.{numbers}", 1.0
        yield ".".join((tensor.path[at - 1], numbers, *tensor.path[at + 1 :])), 1.2


def _exact(tensor: Tensor, numbers: str) -> str:
    """The whole path of a template, with the place of its layer."""
    path = [numbers if word == EXPERT else word for word in template(tensor)[:-1]]
    if LAYER in path:
        at = path.index(LAYER)
        path[at - 1 : at + 1] = ["{layers}"]
    return ".".join(("**", *path) if path[0] in RESERVED else path)


def brackets(numbers: Iterable[int], layers: int) -> str:
    """Decoder layers as a selector writes them: `[:3]`, `[-8:]`, `[4:12]`, `[7]`, `[0,5,9]`; empty for all."""
    chosen = sorted(numbers)
    first, last = chosen[0], chosen[-1]
    if chosen != list(range(first, last + 1)):
        return f"[{','.join(map(str, chosen))}]"
    if len(chosen) == layers:
        return ""
    if len(chosen) == 1:
        return f"[{first}]" if last != layers - 1 or layers == 1 else "[-1]"
    if first == 0:
        return f"[:{last + 1}]"
    return f"[{first - layers}:]" if last == layers - 1 else f"[{first}:{last + 1}]"
