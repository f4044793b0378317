"""ModelOpt checkpoints: `quant_algo` in `config.json`, in `hf_quant_config.json`, or in both.

One algorithm holds for every linear layer outside a list (`ignore`, `exclude_modules`), whose entries are globs over
module names; `MIXED_PRECISION` has a map (`quantized_layers`) from modules to algorithms instead, and what has no key
is not quantized. Of a folder with both files `config.json` counts, as it does to servers, and what the other one says
otherwise is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precc.diagnostics import Diagnostic, warning
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing import schemes
from precc.importing.checkpoint import Section, config_section, is_convertible, kv_cache, legacy_section
from precc.importing.naming import dotted, glob
from precc.importing.patterns import Piece, counted, folded, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule
from precc.syntax.words import Role

TOOL = "ModelOpt checkpoints (config.json, hf_quant_config.json)"
RANK = 20
DIFFER = "P905"

MIXED = "MIXED_PRECISION"

ALGORITHMS: Mapping[str, Decision] = {
    "FP8": schemes.FP8_STATIC,
    "FP8_PB_WO": schemes.fp8_block("fp32"),
    "FP8_BLOCK_SCALES": schemes.fp8_block("fp32"),
    "FP8_PER_CHANNEL_PER_TOKEN": schemes.FP8_CHANNEL,
    "MXFP8": schemes.MXFP8,
    "NVFP4": schemes.NVFP4_STATIC,
    "W4A16_NVFP4": schemes.NVFP4_WEIGHTS,
}

_GROUPS = {"NVFP4": 16, "W4A16_NVFP4": 16, "MXFP8": 32, "FP8_PB_WO": 128, "FP8_BLOCK_SCALES": 128}

_NO_SPELLING = {
    "NVFP4_AWQ": "its inputs are scaled channel by channel before they are rounded",
    "W4A16_AWQ": "its weights have zero points or scaled channels",
    "INT4_AWQ": "its weights have scaled channels",
    "W4A8_AWQ": "its weights have two scales and scaled channels",
    "W8A8_SQ_PER_CHANNEL": "it moves scales from inputs to weights",
}

_KEYS = (
    *("quant_method", "quant_algo", "group_size", "ignore", "exclude_modules", "modules_to_not_convert"),
    *("kv_cache_quant_algo", "kv_cache_scheme", "config_groups", "quantized_layers", "producer"),
)
_HYBRID_KEYS = (*_KEYS, "activation_scheme", "fmt", "moe_quant_algo", "scale_fmt", "weight_block_size")

_ABSORBED = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""Projections that SGLang leaves out of every layer where a list names those of one."""


def recognizes(source: Source) -> bool:
    """Whether one of the two files has a `quant_algo`."""
    section = config_section(source)
    return (section is not None and "quant_algo" in section.content) or legacy_section(source) is not None


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the checkpoint's lists decide, and where its two files differ."""
    both = (config_section(source), legacy_section(source))
    sections = [section for section in both if section is not None and "quant_algo" in section.content]
    first, *others = [_read(section, graph) for section in sections]
    if not others:
        return first
    findings = (*first.findings, *_differences(first, others[0], sections[0], sections[1]))
    return Reading(first.decisions, first.rules, findings, first.kv_cache or others[0].kv_cache)


def _read(section: Section, graph: ModelGraph) -> Reading:
    algorithm = str(section.content.get("quant_algo")).upper()
    key, entries = section.names("ignore", "exclude_modules", "modules_to_not_convert")
    layers = _layers(section) if algorithm == MIXED else {}
    patterns = [*map(glob, entries), *map(dotted, layers)]
    found = pieces(graph, patterns)
    is_hybrid = algorithm == MIXED and section.method == "fp8"
    decided = _Decided(section, len(entries), layers, algorithm, is_hybrid)
    wheres = [f"{section.where}.{key}[{at}]" for at in range(len(entries))]
    wheres += [f"{section.where}.quantized_layers" for _ in layers]
    return Reading(
        decisions=tuple(map(decided, found)),
        rules=tuple(_rules((*entries, *layers), wheres, found, len(entries))),
        findings=tuple(section.unread(_HYBRID_KEYS if is_hybrid else _KEYS)),
        kv_cache=kv_cache(section),
    )


class _Decided:
    """What one section decides about a piece: by its list, then by the longest module of its map that holds it, or by
    its one algorithm."""

    def __init__(
        self, section: Section, listed: int, layers: Mapping[str, Mapping[str, Any]], algorithm: str, is_hybrid: bool
    ) -> None:
        self._listed = listed
        self._mapped = [(len(module), _decision(section, facts)) for module, facts in layers.items()]
        self._rest: Decision | None = None
        if is_hybrid:
            self._rest = schemes.fp8_block("pow2" if section.content.get("scale_fmt") == "ue8m0" else "fp32")
        elif algorithm != MIXED:
            self._rest = _decision(section, section.content)
        self._is_hybrid = is_hybrid

    def __call__(self, piece: Piece) -> Decided:
        tensor = piece.tensor
        mapped = [self._mapped[hit - self._listed] for hit in piece.hits if hit >= self._listed]
        is_kept = any(hit < self._listed for hit in piece.hits) and not self._is_hybrid
        if mapped and not is_kept and tensor.is_gemm and not _is_never(tensor):
            return tensor, max(mapped, key=lambda entry: entry[0])[1]
        is_asked = is_convertible(tensor) and not is_kept
        if self._is_hybrid and tensor.role is Role.LM_HEAD:
            return tensor, None
        return tensor, self._rest if is_asked else None


def _is_never(tensor: Tensor) -> bool:
    """What is no linear layer whatever a map says: an expert's gate beside an expert's key."""
    return tensor.protected and tensor.role is not Role.LM_HEAD


def _layers(section: Section) -> Mapping[str, Mapping[str, Any]]:
    layers = section.content.get("quantized_layers")
    if not isinstance(layers, dict) or not layers or not all(isinstance(facts, dict) for facts in layers.values()):
        raise section.refused(f"`{MIXED}` needs a map `quantized_layers` from modules to algorithms")
    return layers


def _decision(section: Section, facts: Mapping[str, Any]) -> Decision:
    algorithm = str(facts.get("quant_algo")).upper()
    found = ALGORITHMS.get(algorithm)
    if found is None:
        why = _NO_SPELLING.get(algorithm, f"known are {', '.join(ALGORITHMS)}")
        raise section.refused(f"`quant_algo: {facts.get('quant_algo')}` has no spelling: {why}")
    size, own = facts.get("group_size"), _GROUPS.get(algorithm)
    if size is not None and own is not None and size != own:
        raise section.refused(f"`{algorithm}` in groups of {size} has no spelling", f"a policy's have {own}")
    return found


# --- what the entries reach --------------------------------------------------------------------------


def _rules(entries: tuple[str, ...], wheres: list[str], found: tuple[Piece, ...], listed: int) -> Iterator[SourceRule]:
    reached: list[list[Tensor]] = [[] for _ in entries]
    for piece in found:
        for at in piece.hits:
            reached[at].append(piece.tensor)
    named = set(entries[:listed])
    for at, entry in enumerate(entries):
        tensors = reached[at]
        beyond = _beyond(entry, tensors) or (_leaks(entry, named, found) if at < listed else "")
        yield SourceRule(entry, wheres[at], counted(tensors), beyond, idle=_is_default(entry))


def _is_default(entry: str) -> bool:
    """ModelOpt writes some entries for every model."""
    return entry in ("lm_head", "model.embed_tokens")


def _beyond(entry: str, tensors: list[Tensor]) -> str:
    """What a glob reaches by going on in the middle of a number: layer 10 for `layers.1*`."""
    stem = entry.removesuffix("*")
    if stem == entry or not stem[-1:].isdigit() or "*" in stem:
        return ""
    longer = [tensor for tensor in tensors if stem in tensor.module and tensor.module.partition(stem)[2][:1].isdigit()]
    return folded(longer) if longer and len(longer) < len(tensors) else ""


def _leaks(entry: str, named: set[str], found: tuple[Piece, ...]) -> str:
    """The projections of other layers that SGLang takes an entry for."""
    head, _, tail = entry.rpartition(".")
    if tail not in _ABSORBED or not head:
        return ""
    others = [p.tensor for p in found if p.tensor.path[-1] == tail and p.tensor.outer is None and not p.hits]
    return f"as SGLang reads it, also {folded(others)}" if others else ""


# --- two files of one checkpoint ---------------------------------------------------------------------


def _differences(one: Reading, other: Reading, here: Section, there: Section) -> Iterator[Diagnostic]:
    """What the second file says otherwise; its reader will see another model."""
    if one.kv_cache != other.kv_cache and None not in (one.kv_cache, other.kv_cache):
        yield warning(DIFFER, f"{here.where} says {one.kv_cache} for the KV cache, {there.where} {other.kv_cache}")
    apart: dict[tuple[str, str], list[Tensor]] = {}
    for tensor, first, second in _side_by_side(one, other):
        if first != second:
            apart.setdefault((_words(first), _words(second)), []).append(tensor)
    for (first_words, second_words), tensors in apart.items():
        yield warning(
            DIFFER,
            f"{folded(tensors)}: {first_words} in {here.where}, {second_words} in {there.where}",
            help=f"the policy follows {here.where}, as servers do; write one of the two files again",
        )


def _words(decision: Decision | None) -> str:
    return "as stored" if decision is None else str(decision)


def _side_by_side(one: Reading, other: Reading) -> Iterator[tuple[Tensor, Decision | None, Decision | None]]:
    """Each expert range of either reading with both decisions, where both cut alike or one has the whole."""
    theirs: dict[tuple[object, ...], list[Decided]] = {}
    for tensor, decision in other.decisions:
        theirs.setdefault((tensor.path, tensor.parameter), []).append((tensor, decision))
    for tensor, decision in one.decisions:
        for match, second in theirs.get((tensor.path, tensor.parameter), ()):
            if tensor.experts is None or match.experts is None:
                yield tensor, decision, second
                continue
            shared = range(max(tensor.experts.start, match.experts.start), min(tensor.experts.stop, match.experts.stop))
            if shared:
                yield tensor.narrowed(shared), decision, second
