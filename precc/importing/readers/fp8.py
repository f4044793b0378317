"""FP8 and MXFP8 checkpoints as their authors publish them: `quant_method: fp8` or `mxfp8` in `config.json`.

Every linear layer is quantized but those of a list (`modules_to_not_convert`, `ignored_layers`). An entry is a run of
whole components of a name, which is how servers read it; `transformers` takes the same list for regular expressions
that a name begins with, and what it would keep beside is told. The LM head and the routers are never converted. The
scales of blocks are FP32, and powers of two where `scale_fmt` says so. Routed experts may be in MXFP4 beside block FP8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from precc.diagnostics import Diagnostic, warning
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing import schemes
from precc.importing.checkpoint import UNREAD, Section, config_section, is_convertible, is_head, kv_cache
from precc.importing.experts import FIELD, KEY, Experts, experts_of, inputs_of_mxfp4
from precc.importing.naming import dotted
from precc.importing.patterns import Piece, counted, folded, pieces
from precc.importing.reading import Decided, Reading, Source, SourceRule

TOOL = "FP8 and MXFP8 checkpoints (config.json)"
RANK = 10
DIFFER = "P905"

_KEYS = (
    *("quant_method", KEY, "fmt", "activation_scheme", "weight_block_size", "scale_fmt", "modules_to_not_convert"),
    *("ignored_layers", "kv_cache_quant_algo", "kv_cache_scheme", "producer", "version"),
)
_FORMATS = (None, "e4m3", "float8_e4m3fn")
_MX_BLOCKS = (None, [1, 32])


def recognizes(source: Source) -> bool:
    """Whether `config.json` says `quant_method: fp8` or `mxfp8`, and mixes in nothing of ModelOpt's."""
    section = config_section(source)
    return section is not None and section.method in ("fp8", "mxfp8") and "quant_algo" not in section.content


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the checkpoint's list decides."""
    section = config_section(source)
    assert section is not None
    decision = _decision(section)
    key, entries = section.names("ignored_layers", "modules_to_not_convert")
    found = pieces(graph, [dotted(entry) for entry in entries])
    experts = experts_of(source, section, graph) if decision in _BLOCKS else Experts("fp8")
    decisions = tuple(_decided(piece, decision, experts) for piece in found)
    return Reading(
        decisions=decisions,
        rules=tuple(_rules(entries, f"{section.where}.{key}", found)),
        findings=(
            *section.unread(_KEYS),
            *_about_experts(section, decisions, experts),
            *inputs_of_mxfp4(decisions),
        ),
        kv_cache=kv_cache(section),
    )


def _decision(section: Section) -> Decision:
    said = section.content
    if said.get("fmt") not in _FORMATS:
        raise section.refused(f"`fmt: {said['fmt']}` has no spelling", "FP8 is E4M3 in a policy")
    block, is_static = said.get("weight_block_size"), said.get("activation_scheme", "dynamic") == "static"
    if section.method == "mxfp8":
        if block not in _MX_BLOCKS or is_static:
            raise section.refused(f"MXFP8 in blocks of {block} has no spelling", "MXFP8 has blocks of 1×32")
        return schemes.MXFP8
    if block is None:
        return schemes.FP8_STATIC if is_static else schemes.FP8_DYNAMIC
    if block != [128, 128] or is_static:
        how = "static inputs" if is_static else f"blocks of {block}"
        raise section.refused(f"FP8 in {how} has no spelling", "`fp8_block` has weights in 128×128, inputs in 1×128")
    return schemes.fp8_block("pow2" if said.get("scale_fmt") == "ue8m0" else "fp32")


_BLOCKS = tuple(map(schemes.fp8_block, ("pow2", "fp32")))


def _decided(piece: Piece, decision: Decision, experts: Experts) -> Decided:
    tensor = piece.tensor
    is_asked = is_convertible(tensor) and not is_head(tensor) and not piece.hits
    if is_asked and experts.are_mxfp4(tensor):
        return tensor, schemes.MXFP4
    return tensor, decision if is_asked else None


def _about_experts(section: Section, decisions: Iterable[Decided], experts: Experts) -> Iterator[Diagnostic]:
    """What no place says about routed experts, and where two places differ."""
    low = [tensor for tensor, decision in decisions if decision is not None]
    unsaid = [tensor for tensor in low if tensor.dtype in _FOUR_BITS and experts.are_mxfp4(tensor) is None]
    if unsaid:
        yield warning(
            UNREAD,
            f"{section.where} alone does not say whether {folded(unsaid)} are in MXFP4, as in the model's release: "
            f"`{FIELD}` in config.json does, or the headers of the checkpoint",
            help=f"the policy has them in block FP8; import the whole config.json with its `{FIELD}`, or the folder "
            "with the shards",
        )
    apart = [tensor for tensor in low if experts.method is None and experts.differ(tensor)]
    if apart:
        message = f"config.json says `{FIELD}: {experts.dtype}`, the shards hold {folded(apart)} as "
        yield warning(
            DIFFER, f"{message}{experts.held(apart[0])}", help="the policy follows the shards, as SGLang does"
        )


_FOUR_BITS = ("mxfp4", "nvfp4")


def _rules(entries: tuple[str, ...], where: str, found: tuple[Piece, ...]) -> Iterator[SourceRule]:
    reached: list[list[Tensor]] = [[] for _ in entries]
    for piece in found:
        for at in piece.hits:
            reached[at].append(piece.tensor)
    others = _Others(piece.tensor for piece in found if is_convertible(piece.tensor) and not piece.hits)
    for at, entry in enumerate(entries):
        yield SourceRule(entry, f"{where}[{at}]", counted(reached[at]), others.beyond(entry))


class _Others:
    """The linear layers that no entry reaches, by how their names begin and end."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = {tensor.module: tensor for tensor in tensors}
        self._begin = sorted(self._tensors)
        self._end = sorted(name[::-1] for name in self._tensors)

    def beyond(self, entry: str) -> str:
        """What `transformers` would keep by the same entry: the names that begin or end with its letters."""
        names = [*_run(self._begin, entry), *(name[::-1] for name in _run(self._end, entry[::-1]))]
        taken = [self._tensors[name] for name in dict.fromkeys(names)]
        return f"as `transformers` reads it, also {folded(taken)}" if taken else ""


def _run(names: list[str], beginning: str) -> list[str]:
    """Those of sorted names that begin so."""
    return names[bisect_left(names, beginning) : bisect_left(names, beginning + _LAST)]


_LAST = "\U0010ffff"
