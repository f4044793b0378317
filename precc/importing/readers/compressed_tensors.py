"""compressed-tensors checkpoints: `quant_method: compressed-tensors` in `config.json`.

Groups of targets (names, `re:` patterns, class names) have a scheme each, and `ignore` beats them all. A pattern is
compared with `re.match`, from the beginning of a name and not to its end. Of the targets that reach a layer an exact
name wins, then a pattern, then a class; among equals the first in alphabetical order, wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from precc.diagnostics import Diagnostic, warning
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing import schemes
from precc.importing.checkpoint import Section, config_section, has_own_class, is_convertible, kv_cache
from precc.importing.naming import ending, exact, regular
from precc.importing.patterns import Pattern, Piece, counted, folded, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule

TOOL = "compressed-tensors checkpoints (config.json)"
RANK = 10

BEYOND = "P904"

_KEYS = frozenset(
    (
        *("quant_method", "format", "config_groups", "ignore", "kv_cache_scheme", "quantization_status"),
        *("global_compression_ratio", "version", "sparsity_config", "transform_config"),
    )
)
_GROUP_KEYS = frozenset(("targets", "weights", "input_activations", "output_activations", "format"))
_CLASS = re.compile(r"[A-Z]\w*")


class Dialect(NamedTuple):
    """What differs between a checkpoint and a recipe: the keys that are known, how a name of the ignore list is
    compared (a server takes it for the end of one, the tool for the whole), and whether the tool is still to run, on
    every `Linear` of the model."""

    known: frozenset[str]
    named_by: Callable[[str], Pattern]
    is_run: bool


class Target(NamedTuple):
    """One target of a group: its text, where it stands, what it reaches, and its scheme."""

    text: str
    where: str
    pattern: Pattern | None
    scheme: Decision

    @property
    def rank(self) -> tuple[int, str]:
        """The order in which targets are asked, the winner first."""
        kind = 2 if self.pattern is None else int(self.text.startswith("re:"))
        return kind, self.text


def recognizes(source: Source) -> bool:
    """Whether `config.json` says `quant_method: compressed-tensors`."""
    section = config_section(source)
    return section is not None and section.method == "compressed-tensors"


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the checkpoint's groups decide."""
    section = config_section(source)
    assert section is not None
    _check(section)
    targets = targets_of(section)
    return read_groups(section, graph, targets, section.names("ignore")[1])


def read_groups(
    section: Section,
    graph: ModelGraph,
    targets: tuple[Target, ...],
    ignore: tuple[str, ...],
    dialect: Dialect | None = None,
) -> Reading:
    """What targets and an ignore list decide, in a checkpoint if no other dialect is given."""
    known, named_by, is_run = dialect or Dialect(_KEYS, ending, is_run=False)
    ranked = sorted(targets, key=lambda target: target.rank)
    named = [target for target in ranked if target.pattern is not None]
    classes = [target for target in ranked if target.pattern is None]
    patterns = [
        *(_ignored(section, entry, named_by) for entry in ignore),
        *(t.pattern for t in named if t.pattern is not None),
    ]
    found = pieces(graph, patterns)
    decided = _Decided(len(ignore), named, classes)
    return Reading(
        decisions=tuple(map(decided, found)),
        rules=(*_ignore_rules(section, ignore, found), *_target_rules(targets, named, found, len(ignore), decided)),
        findings=(*section.unread(known), *(_unserved(section, found, decided) if is_run else ())),
        kv_cache=kv_cache(section),
    )


def _unserved(section: Section, found: Sequence[Piece], decided: _Decided) -> Iterator[Diagnostic]:
    """Layers of the class `Linear` that engines multiply in high precision only, and that nothing ignores."""
    odd = [piece.tensor for piece in found if decided.reaches_unserved(piece)]
    if odd:
        message = f"{section.where}: `Linear` reaches {folded(odd)} too; no engine runs it below 16 bits"
        yield warning(BEYOND, message, help="the policy leaves it in BF16; ignore it there too")


class _Decided:
    """What the lists decide about a piece."""

    def __init__(self, ignored: int, named: list[Target], classes: list[Target]) -> None:
        self._ignored = ignored
        self._named = named
        self._linear = next((target for target in classes if target.text == "Linear"), None)

    def target(self, piece: Piece) -> Target | None:
        """The target that decides, if any does."""
        if not _is_linear(piece.tensor) or any(hit < self._ignored for hit in piece.hits):
            return None
        by_name = [self._named[hit - self._ignored] for hit in piece.hits]
        return by_name[0] if by_name else (self._linear if is_convertible(piece.tensor) else None)

    def reaches_unserved(self, piece: Piece) -> bool:
        """Whether the class `Linear` reaches a layer that no engine runs below 16 bits, and no name does."""
        tensor = piece.tensor
        is_linear = tensor.is_gemm and len(tensor.shape) == 2 and tensor.mtp is None and not has_own_class(tensor)
        return self._linear is not None and is_linear and not is_convertible(tensor) and not piece.hits

    def __call__(self, piece: Piece) -> Decided:
        target = self.target(piece)
        return piece.tensor, None if target is None else target.scheme


def _is_linear(tensor: Tensor) -> bool:
    return tensor.is_gemm and (is_convertible(tensor) or tensor.outer is not None) and not _is_never(tensor)


def _is_never(tensor: Tensor) -> bool:
    return tensor.protected and not is_convertible(tensor)


# --- schemes -----------------------------------------------------------------------------------------


def _check(section: Section) -> None:
    """This refuses what changes numbers and has no spelling."""
    for key in ("sparsity_config", "transform_config", "linear_fp8_config"):
        if section.content.get(key):
            raise section.refused(f"`{key}` has no spelling")


def targets_of(section: Section) -> tuple[Target, ...]:
    """The targets of a section's groups. Raises Unimportable."""
    return tuple(_targets(section))


def _targets(section: Section) -> Iterator[Target]:
    groups = section.content.get("config_groups")
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise section.refused("it has no `config_groups`")
    for name, group in groups.items():
        beyond = set(group) - _GROUP_KEYS
        if beyond or group.get("output_activations"):
            raise section.refused(f"`{min(beyond, default='output_activations')}` of {name} has no spelling")
        scheme = scheme_of(section, group)
        targets = group.get("targets") or []
        if not isinstance(targets, list) or not all(isinstance(text, str) for text in targets):
            raise section.refused(f"`targets` of {name} is no list of names")
        for at, text in enumerate(targets):
            pattern = None if _CLASS.fullmatch(text) else _pattern(section, text)
            yield Target(text, f"{section.where}.config_groups.{name}.targets[{at}]", pattern, scheme)


def _ignored(section: Section, entry: str, named_by: Callable[[str], Pattern]) -> Pattern:
    return _pattern(section, entry) if entry.startswith("re:") else named_by(entry)


def _pattern(section: Section, entry: str) -> Pattern:
    try:
        return regular(entry[3:]) if entry.startswith("re:") else exact(entry)
    except re.error as problem:
        raise section.refused(f"`{entry}` is no pattern: {problem}") from None


_ARGUMENTS: Mapping[str, Any] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "strategy": None,
    "group_size": None,
    "block_structure": None,
    "dynamic": False,
    "actorder": None,
}
"""What compressed-tensors takes for an argument that is not there."""


def scheme_of(section: Section, group: Mapping[str, Any]) -> Decision:
    """The decision that a group's arguments spell. Raises Unimportable."""
    weights, inputs = _arguments(group.get("weights")), _arguments(group.get("input_activations"))
    if weights is None:
        raise section.refused("a group that quantizes no weights has no spelling")
    for side in (weights, inputs or weights):
        if not side["symmetric"]:
            raise section.refused(
                "zero points (`symmetric: false`) have no spelling", "a policy's integers are symmetric"
            )
    if weights["actorder"] not in (None, False, "weight", "static"):  # those leave each column in its group
        raise section.refused(f"act-order (`actorder: {weights['actorder']}`) has no spelling")
    found = _scheme(weights, inputs)
    if found is None:
        raise section.refused(f"weights {_shown(weights)} with inputs {_shown(inputs)} have no spelling")
    return found


def _arguments(said: object) -> dict[str, Any] | None:
    if not isinstance(said, dict):
        return None
    found = {key: said.get(key, default) for key, default in _ARGUMENTS.items()}
    if found["strategy"] is None:
        found["strategy"] = "group" if found["group_size"] else "tensor"
    return found


def _shown(arguments: Mapping[str, Any] | None) -> str:
    if arguments is None:
        return "in BF16"
    words = (arguments["type"], arguments["num_bits"], arguments["strategy"], arguments["group_size"])
    return " ".join(str(word) for word in words if word is not None)


def _scheme(weights: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> Decision | None:
    if weights["type"] == "int":
        is_grouped = weights["strategy"] == "group" and inputs is None
        return schemes.integers(weights["num_bits"], weights["group_size"]) if is_grouped else None
    key = (_kind(weights), None if inputs is None else _kind(inputs), bool(inputs and inputs["dynamic"]))
    return next((scheme for known, scheme in _SCHEMES.items() if known == key), None)


def _kind(arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells schemes apart: bits, strategy, size."""
    size = arguments["block_structure"] or arguments["group_size"]
    words = (arguments["num_bits"], arguments["strategy"], size)
    return tuple(tuple(word) if isinstance(word, list) else word for word in words)


_TENSOR, _CHANNEL, _TOKEN = (8, "tensor", None), (8, "channel", None), (8, "token", None)
_NVFP4, _MXFP4, _MXFP8 = (4, "tensor_group", 16), (4, "group", 32), (8, "group", 32)
_BLOCKS, _BLOCK_INPUTS = (8, "block", (128, 128)), (8, "group", 128)

_SCHEMES: Mapping[tuple[Any, Any, bool], Decision] = {
    (_TENSOR, _TENSOR, False): schemes.FP8_STATIC,
    (_TENSOR, _TENSOR, True): schemes.FP8_DYNAMIC,
    (_TENSOR, None, False): schemes.FP8_WEIGHTS,
    (_CHANNEL, _TOKEN, True): schemes.FP8_CHANNEL,
    (_BLOCKS, _BLOCK_INPUTS, True): schemes.fp8_block("fp32"),
    (_NVFP4, _NVFP4, False): schemes.NVFP4_STATIC,
    (_NVFP4, _NVFP4, True): schemes.NVFP4_STATIC,
    (_NVFP4, None, False): schemes.NVFP4_WEIGHTS,
    (_MXFP4, None, False): schemes.MXFP4_WEIGHTS,
    (_MXFP8, _MXFP8, True): schemes.MXFP8,
}
"""Weights, inputs, whether inputs are scaled as they come (NVFP4's `dynamic: local` leaves the outer scale static)."""


# --- what the entries reach --------------------------------------------------------------------------


def _ignore_rules(section: Section, ignore: tuple[str, ...], found: tuple[Piece, ...]) -> Iterator[SourceRule]:
    for at, entry in enumerate(ignore):
        tensors = [piece.tensor for piece in found if at in piece.hits]
        yield SourceRule(entry, f"{section.where}.ignore[{at}]", counted(tensors), _beyond(entry, tensors))


def _target_rules(
    targets: tuple[Target, ...], named: list[Target], found: tuple[Piece, ...], ignored: int, decided: _Decided
) -> Iterator[SourceRule]:
    won: dict[int, int] = {}
    reached: dict[int, int] = {}
    for piece in found:
        target = decided.target(piece)
        if target is not None:
            won[id(target)] = won.get(id(target), 0) + piece.tensor.count
        for hit in piece.hits:
            if hit >= ignored:
                key = id(named[hit - ignored])
                reached[key] = reached.get(key, 0) + piece.tensor.count
    for target in targets:
        wins = won.get(id(target), 0)
        matched = wins if target.pattern is None else reached.get(id(target), 0)
        yield SourceRule(
            target.text, target.where, matched, beaten=bool(matched) and not wins, idle=target.pattern is None
        )


def _beyond(entry: str, tensors: list[Tensor]) -> str:
    """What a pattern that ends in a name reaches by having no `$`: `gate_proj` for `re:.*mlp.gate`."""
    stem = re.search(r"(\w+)$", entry)
    if not entry.startswith("re:") or stem is None:
        return ""
    longer = [t for t in tensors if not any(word == stem[1] for word in t.path) and is_convertible(t)]
    return folded(longer) if longer and len(longer) < len(tensors) else ""
