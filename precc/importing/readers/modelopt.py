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
from precc.importing.experts import BY_HEADERS, KEY, experts_of, inputs_of_mxfp4
from precc.importing.naming import dotted, glob
from precc.importing.patterns import Pattern, Piece, counted, folded, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule
from precc.importing.served_names import ServedNames
from precc.syntax.words import Role

TOOL = "ModelOpt checkpoints (config.json, hf_quant_config.json)"
RANK = 20
BEYOND, DIFFER = "P904", "P905"

MIXED = "MIXED_PRECISION"

SERVERS_OWN = "modelopt_mixed"
"""The `quant_method` that only SGLang has: its words mean what SGLang makes of them."""

BLOCK_WEIGHTS = "FP8_PB_WO"
"""FP8 blocks, by the weights alone: ModelOpt 0.47 tells it so whatever its inputs are, and its preset leaves them in
BF16; SGLang 0.5.23 multiplies with inputs in FP8 blocks."""

ALGORITHMS: Mapping[str, Decision] = {
    "FP8": schemes.FP8_STATIC,
    BLOCK_WEIGHTS: schemes.FP8_BLOCK_WEIGHTS,
    "FP8_PB_REAL": schemes.FP8_BLOCK_WEIGHTS,
    "FP8_BLOCK_SCALES": schemes.fp8_block("fp32"),
    "FP8_PER_CHANNEL_PER_TOKEN": schemes.FP8_CHANNEL,
    "MXFP8": schemes.MXFP8,
    "NVFP4": schemes.NVFP4_STATIC,
    "W4A16_NVFP4": schemes.NVFP4_WEIGHTS,
}

_GROUPS = {"NVFP4": 16, "W4A16_NVFP4": 16, "MXFP8": 32, BLOCK_WEIGHTS: 128, "FP8_BLOCK_SCALES": 128}

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
_HYBRID_KEYS = (*_KEYS, KEY, "activation_scheme", "fmt", "moe_quant_algo", "scale_fmt", "weight_block_size")

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
    first, *others = [_read(source, section, graph) for section in sections]
    if not others:
        return first
    findings = (*first.findings, *_differences(first, others[0], sections[0], sections[1]))
    return Reading(first.decisions, first.rules, findings, first.kv_cache or others[0].kv_cache)


def _read(source: Source, section: Section, graph: ModelGraph) -> Reading:
    key, entries = section.names("ignore", "exclude_modules", "modules_to_not_convert")
    layers = _layers(section) if _algorithm(section) == MIXED else {}
    patterns = [*map(glob, entries), *map(dotted, layers)]
    found = _pieces(graph, patterns, (*entries, *layers))
    decided = _Decided(section, len(entries), layers, frozenset(_in_mxfp4(source, section, graph)))
    wheres = [f"{section.where}.{key}[{at}]" for at in range(len(entries))]
    wheres += [f"{section.where}.quantized_layers" for _ in layers]
    decisions = tuple(map(decided, found))
    return Reading(
        decisions=decisions,
        rules=tuple(_rules((*entries, *layers), wheres, found, len(entries))),
        findings=(
            *section.unread(_HYBRID_KEYS if _is_hybrid(section) else _KEYS),
            *_served_otherwise(section, decisions),
            *inputs_of_mxfp4(decisions),
        ),
        kv_cache=kv_cache(section),
    )


def _algorithm(section: Section) -> str:
    return str(section.content.get("quant_algo")).upper()


def _is_hybrid(section: Section) -> bool:
    """Whether NVFP4 experts stand beside block FP8, which is what the method is called by."""
    return _algorithm(section) == MIXED and section.method == "fp8"


def _in_mxfp4(source: Source, section: Section, graph: ModelGraph) -> Iterator[str]:
    """The modules of experts that are in MXFP4 unless a map says otherwise, where NVFP4 stands beside block FP8.

    The tool leaves those of MTP layers as they were released, and says nothing about it. SGLang takes all experts but
    those in NVFP4 for MXFP4 where the headers have codes of four bits, as NVFP4 has.
    """
    if not _is_hybrid(section):
        return
    experts = experts_of(source, section, graph)
    for tensor in graph.tensors:
        found = experts.are_mxfp4(tensor)
        if found or (found is None and graph.architecture in BY_HEADERS):
            yield tensor.module


def _pieces(graph: ModelGraph, patterns: list[Pattern], entries: tuple[str, ...]) -> tuple[Piece, ...]:
    """Every tensor with the entries that reach it; one that reaches nothing may be a server's name for a module."""
    found = pieces(graph, patterns)
    dead = set(range(len(patterns))) - {hit for piece in found for hit in piece.hits}
    names = ServedNames(graph)
    served = {at: names.standing_for(patterns[at].test) for at in sorted(dead) if not _is_default(entries[at])}
    if not any(served.values()):
        return found
    return pieces(graph, [served.get(at) or pattern for at, pattern in enumerate(patterns)])


def _served_otherwise(section: Section, decisions: tuple[Decided, ...]) -> Iterator[Diagnostic]:
    """Layers whose inputs a server quantizes, though the tool's word is about their weights."""
    tensors = [tensor for tensor, decision in decisions if decision == schemes.FP8_BLOCK_WEIGHTS]
    if tensors:
        yield warning(
            BEYOND,
            f"{section.where}: `{BLOCK_WEIGHTS}` is about weights alone; SGLang multiplies {folded(tensors)} with "
            "inputs in FP8 blocks, too",
            help="the policy has inputs in BF16, as ModelOpt does; `fp8_block scales fp32` is what SGLang serves",
        )


class _Decided:
    """What one section decides about a piece: by its list, then by the longest module of its map that holds it, or by
    its one algorithm. `mxfp4` are the modules of experts that are neither in NVFP4 nor in FP8."""

    def __init__(
        self, section: Section, listed: int, layers: Mapping[str, Mapping[str, Any]], mxfp4: frozenset[str]
    ) -> None:
        is_hybrid = self._is_hybrid = _is_hybrid(section)
        self._listed, self._mxfp4 = listed, mxfp4
        self._mapped = [(len(module), _decision(section, facts)) for module, facts in layers.items()]
        self._rest: Decision | None = None
        if is_hybrid:
            self._rest = schemes.fp8_block("pow2" if section.content.get("scale_fmt") == "ue8m0" else "fp32")
        elif _algorithm(section) != MIXED:
            self._rest = _decision(section, section.content)

    def __call__(self, piece: Piece) -> Decided:
        tensor = piece.tensor
        mapped = [self._mapped[hit - self._listed] for hit in piece.hits if hit >= self._listed]
        is_kept = any(hit < self._listed for hit in piece.hits) and not self._is_hybrid
        if mapped and not is_kept and tensor.is_gemm and not _is_never(tensor):
            return tensor, max(mapped, key=lambda entry: entry[0])[1]
        is_asked = is_convertible(tensor) and not is_kept
        if self._is_hybrid and tensor.role is Role.LM_HEAD:
            return tensor, None
        if is_asked and tensor.module in self._mxfp4:
            return tensor, schemes.MXFP4
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
    if algorithm == BLOCK_WEIGHTS and section.method == SERVERS_OWN:
        found = schemes.fp8_block("fp32")
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
