"""ModelOpt's `quant_cfg`, as a dump (JSON, YAML; the mapping of old and the list of now) or in a PTQ recipe.

A wildcard is compared with the whole names of quantizers (`model.layers.0.mlp.up_proj.weight_quantizer`), so that `*`
crosses dots, and the last entry that matches one has it. A layer is what its two quantizers end as. MTP layers are not
there: the tool loads models without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from precc.diagnostics import Diagnostic, error, warning
from precc.formats import Decision
from precc.graph.model import ModelGraph
from precc.importing import modelopt_files, quantizers
from precc.importing.checkpoint import NO_SPELLING, has_own_class, is_convertible
from precc.importing.patterns import Pattern, Piece, counted, folded, pieces
from precc.importing.quantizers import Entry, Quantizer, Unspelled
from precc.importing.reaching import going_on
from precc.importing.reading import Decided, Document, Reading, Source, SourceRule, Unimportable
from precc.syntax.words import Role

TOOL = "ModelOpt recipes and quant_cfg"
RANK = 50

SEEMS, BEYOND = "P901", "P904"

WEIGHT, INPUT = "weight_quantizer", "input_quantizer"
_CACHES = ("k_bmm_quantizer", "v_bmm_quantizer")
_ATTENTION = ("q_bmm_quantizer", "p_bmm_quantizer", "softmax_quantizer")

_SCALING = {
    "awq_lite": "scales inputs channel by channel before they are rounded",
    "awq_clip": "scales inputs channel by channel before they are rounded",
    "awq_full": "scales inputs channel by channel before they are rounded",
    "smoothquant": "moves scales from inputs to weights",
    "svdquant": "adds a product of two narrow matrices to every layer",
}
"""Algorithms that put a further operation in front of a GEMM."""

_FIRST = Quantizer(True, {})
"""A quantizer that no entry reached: on, in ModelOpt's INT8."""

# fmt: off
_DEFAULTS = frozenset((
    "*", "default", "*block_sparse_moe.gate*", "*linear_attn.conv1d*", "*self_attention.conv1d*",
    "*linear_attn.in_proj_a*", "*linear_attn.in_proj_b*", "*lm_head*", "*mixer.conv1d*", "*mlp.gate.*",
    "*mlp.shared_expert_gate.*", "*output_layer*", "*proj_out.*", "*router*", "mtp.*", "output.*", "*embed_vision*",
    "*vision_tower*", "*visual*", "*vision_model*", "*multi_modal_projector*", "*block_sparse_moe*weight_quantizer",
    "*block_sparse_moe*input_quantizer", "*mixer.experts.*weight_quantizer", "*mixer.experts.*input_quantizer",
))
# fmt: on
"""Entries that ModelOpt's presets have for every model."""


def recognizes(source: Source) -> bool:
    """Whether a file has a `quant_cfg`, in itself or below `quantize`, or is a recipe that searches for one."""
    return any(_is_config(document) for document in source.documents)


def _is_config(document: Document) -> bool:
    sections = (document.section(), document.section("quantize"))
    if any(said is not None and "quant_cfg" in said for said in sections):
        return True
    parts = (document.section("quantize"), document.section("auto_quantize"))
    return document.section("metadata") is not None and any(part is not None for part in parts)


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the quantizers of each layer end as."""
    document = next(document for document in source.documents if _is_config(document))
    where, content = _content(document)
    entries = _entries(document, content)
    found = pieces(graph, [_pattern(entry) for entry in entries])
    layers = [_Layer(piece, entries) for piece in found]
    return Reading(
        decisions=tuple(_decided(document, layer) for layer in layers),
        rules=tuple(_rules(where, entries, layers, graph)),
        findings=tuple(_unserved(document, layers)),
        kv_cache=_kv_cache(document, entries, graph),
    )


def _content(document: Document) -> tuple[str, Mapping[str, Any]]:
    """The place and the content of the section with the `quant_cfg`. Raises Unimportable."""
    if document.section("auto_quantize") is not None:
        problem = "the recipe searches for formats (`auto_quantize`): it has none until it has run"
        raise _refused(document, NO_SPELLING, problem, "import the checkpoint that it wrote")
    data = modelopt_files.resolved(document)
    inner = data.get("quantize") if "quant_cfg" not in data else None
    where, content = ("quantize.", inner) if isinstance(inner, dict) else ("", data)
    for method in _methods(content.get("algorithm")):
        if method in _SCALING:
            raise _refused(document, NO_SPELLING, f"`algorithm: {method}` has no spelling: it {_SCALING[method]}")
    return f"{document.name}: {where}quant_cfg", content


def _methods(algorithm: object) -> Iterator[str]:
    for one in algorithm if isinstance(algorithm, list) else [algorithm]:
        yield str(one.get("method") if isinstance(one, dict) else one)


def _entries(document: Document, content: Mapping[str, Any]) -> tuple[Entry, ...]:
    try:
        return tuple(quantizers.entries(content.get("quant_cfg")))
    except ValueError as problem:
        raise _refused(document, SEEMS, str(problem)) from None


def _refused(document: Document, code: str, problem: str, help: str | None = None) -> Unimportable:
    return Unimportable([error(code, f"{document.path}: {problem}", help=help)])


# --- quantizers of a layer ---------------------------------------------------------------------------


def quantizer_name(module: str, kind: str) -> str:
    """The name of a module's quantizer; a stacked 3-D weight of all experts has one of its own name."""
    stands_below_experts = module.rpartition(".")[0].endswith(".experts") and not module[-1].isdigit()
    return f"{module}{'_' if stands_below_experts else '.'}{kind}"


def _pattern(entry: Entry) -> Pattern:
    def test(module: str) -> bool:
        return any(entry.matches(quantizer_name(module, kind)) for kind in (WEIGHT, INPUT))

    literal = entry.name.partition("*")[0].partition("?")[0].partition("[")[0]
    prefix = literal.rpartition(".")[0]  # what follows may be the quantizer's own name
    return Pattern(test, prefix, by_expert=any(letter.isdigit() or letter in "?[" for letter in entry.name))


class _Layer:
    """One linear layer, or those of some experts: the entries that have its quantizers, and what these end as."""

    def __init__(self, piece: Piece, entries: Sequence[Entry]) -> None:
        self.tensor = piece.tensor
        self.hits = piece.hits
        module = next(piece.tensor.modules())
        self.last: dict[str, int] = {}
        self.ends: dict[str, Quantizer] = {}
        for kind in (WEIGHT, INPUT):
            name, state = quantizer_name(module, kind), _FIRST
            for at in piece.hits:
                if entries[at].matches(name):
                    self.last[kind], state = at, state.after(entries[at])
            self.ends[kind] = state

    @property
    def is_there(self) -> bool:
        """Whether the tool has such a layer: MTP layers are not loaded; norms, embeddings and routers are none."""
        return self.tensor.is_gemm and self.tensor.mtp is None and not has_own_class(self.tensor)

    @property
    def is_served(self) -> bool:
        """Whether engines would run it below 16 bits: no router, no expert gate, no tower."""
        return self.is_there and is_convertible(self.tensor)

    @property
    def is_quantized(self) -> bool:
        return any(end.enabled for end in self.ends.values())


def _decided(document: Document, layer: _Layer) -> Decided:
    if not layer.is_served or not layer.is_quantized:
        return layer.tensor, None
    return layer.tensor, _decision(document, layer)


def _decision(document: Document, layer: _Layer) -> Decision:
    weights, inputs = layer.ends[WEIGHT], layer.ends[INPUT]
    name = layer.tensor.module
    if not weights.enabled:
        raise _refused(
            document, NO_SPELLING, f"{name} has quantized inputs and weights that are not, which no engine runs"
        )
    for kind, end in layer.ends.items():
        if end.enabled and not end.cfg:
            problem = f"no entry says what {name}.{kind} is: it stays in ModelOpt's INT8"
            raise _refused(document, NO_SPELLING, problem, "put `{quantizer_name: '*', enable: false}` in front")
    try:
        return quantizers.decision(
            quantizers.weight_format(weights.cfg), quantizers.input_format(inputs.cfg) if inputs.enabled else None
        )
    except Unspelled as problem:
        raise _refused(document, NO_SPELLING, f"{name}: {problem}") from None


def _unserved(document: Document, layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    """Layers that ModelOpt would quantize where they are linear layers, and no engine multiplies below 16 bits."""
    odd = [layer.tensor for layer in layers if layer.is_there and not layer.is_served and layer.ends[WEIGHT].enabled]
    if odd:
        yield warning(
            BEYOND,
            f"{document.name}: no entry leaves {folded(odd)} as it is; no engine runs it below 16 bits",
            help="the policy leaves it in BF16; disable it in the recipe too",
        )


# --- the KV cache and attention ----------------------------------------------------------------------


def _attention_modules(graph: ModelGraph) -> tuple[str, ...]:
    """The attentions of the decoder: those of a tower have no KV cache."""
    return tuple(t.module.rpartition(".")[0] for t in graph.tensors if t.part == "o" and t.outer is None)


def _state(name: str, entries: Sequence[Entry]) -> Quantizer | None:
    """What a quantizer of an attention ends as; None where no entry is for it."""
    state = None
    for entry in entries:
        if entry.matches(name, ""):
            state = (state or _FIRST).after(entry)
    return state


def _kv_cache(document: Document, entries: Sequence[Entry], graph: ModelGraph) -> str | None:
    """The KV cache that the attentions' quantizers are. Raises Unimportable."""
    found: set[bool] = set()
    for module in _attention_modules(graph):
        for kind in _ATTENTION:
            state = _state(f"{module}.{kind}", entries)
            if state is not None and state.enabled:
                raise _refused(document, NO_SPELLING, f"{module}.{kind} is on: attention below 16 bits has no spelling")
        for kind in _CACHES:
            state = _state(f"{module}.{kind}", entries)
            found.add(state is not None and state.enabled and _is_fp8(document, f"{module}.{kind}", state))
    if len(found) > 1:
        raise _refused(document, NO_SPELLING, "the KV cache is quantized in some layers only, which has no spelling")
    return "fp8" if found == {True} else None


def _is_fp8(document: Document, name: str, state: Quantizer) -> bool:
    try:
        if quantizers.is_fp8(state.cfg):
            return True
        problem = "a KV cache in any other format than per-tensor FP8 has no spelling"
    except Unspelled as unspelled:
        problem = str(unspelled)
    raise _refused(document, NO_SPELLING, f"{name}: {problem}")


# --- what the entries reach --------------------------------------------------------------------------


def _rules(where: str, entries: Sequence[Entry], layers: Sequence[_Layer], graph: ModelGraph) -> Iterator[SourceRule]:
    reached: list[list[_Layer]] = [[] for _ in entries]
    for layer in layers:
        for at in layer.hits:
            reached[at].append(layer)
    caches = [f"{module}.{kind}" for module in _attention_modules(graph)[:1] for kind in (*_CACHES, *_ATTENTION)]
    for at, entry in enumerate(entries):
        there = [layer for layer in reached[at] if layer.is_there]
        matched = counted(layer.tensor for layer in reached[at])
        is_idle = entry.name in _DEFAULTS or bool(entry.parent) or any(entry.matches(name, "") for name in caches)
        beaten = bool(there) and not any(at in layer.last.values() for layer in there) and not is_idle
        yield SourceRule(entry.text, f"{where}[{at}]", matched, _beyond(entry, there), beaten, is_idle)


def _beyond(entry: Entry, there: Sequence[_Layer]) -> str:
    stem = entry.name.removesuffix(WEIGHT).removesuffix(INPUT).rstrip("*")
    return going_on(stem, [layer.tensor for layer in there if layer.tensor.role is not Role.LM_HEAD])
