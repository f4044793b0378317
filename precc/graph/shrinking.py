"""A small model of the same structure: what an engine builds in a second and a test converts in one.

    small = shrink(graph)               # every layer, a few experts, narrow widths
    small = shrink(graph, layers=4)     # the first two layers and the last two
    small.graph, small.config           # the graph, and the `config.json` that gives it

`precc.contract.shrinking.shrunken` does the same to a contract and keeps its decisions. A size keeps what blocks see
of it: the powers of two up to 128 that divide it. `small.layers` and `small.experts` say which ones of the large model
were kept: layer `i` of the small one is layer `small.layers[i]` of the large one.

`complete_config` is the `config.json` of a graph at its own size, with the fields that no tensor depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from precc.graph.config import TEXT, TOWERS, describe
from precc.graph.errors import ModelError
from precc.graph.families import families
from precc.graph.families.expand import expand
from precc.graph.families.table import Facts, Family
from precc.graph.model import ModelGraph, Tensor
from precc.graph.storage import Storage, declared
from precc.graph.unseen import COMMON, UNSEEN
from precc.syntax.words import Role

BLOCK = 128
"""The widest block of any format; what divides a size beyond it changes nothing."""

FEW_EXPERTS = 4

MULTIPLES: Mapping[str, int] = {"hidden_size": 2, "intermediate_size": 3, "vocab_size": 4}
"""The sizes that stay apart from the others, in blocks: a transposed or swapped weight has another shape."""

WIDTHS = (
    *("hidden_size", "intermediate_size", "vocab_size", "moe_intermediate_size"),
    *("q_lora_rank", "kv_lora_rank", "o_lora_rank"),
    *("moe_shared_expert_intermediate_size", "moe_latent_size"),
    *("vision_hidden_size", "vision_intermediate_size"),
)
"""The facts that are sizes by themselves."""

HEADS = ("num_attention_heads", "num_key_value_heads", "num_global_key_value_heads", "index_n_heads")
"""The facts that are counts of heads, whose widths stay."""

IN_STEP = {"swa_num_attention_heads": "num_attention_heads", "swa_num_key_value_heads": "num_key_value_heads"}
"""The counts of heads that stay in proportion to others."""

NUMBERED = ("kda_layers", "full_attn_layers")
"""The facts that list layers of a kind by their numbers, counted from one."""

LISTED = (
    *("indexer_types", "mlp_layer_types", "layer_types", "layers_block_type", "compress_ratios"),
    *("hybrid_layer_pattern", "routed_layer_pattern", "indexed_layer_pattern", "valueless_layer_pattern"),
)
"""The facts that say something of each layer, one after the other."""

INTERVALS = {"full_attention_interval": "full_layers", "interleave_moe_layer_step": "moe_layers"}
"""The facts that say every how many layers one is of a kind, and the lists of these."""


@dataclass(frozen=True)
class Small:
    """A small model, and which layers and experts of the large one it stands for."""

    graph: ModelGraph
    config: dict[str, Any]
    layers: tuple[int, ...]
    experts: tuple[int, ...]


def shrink(graph: ModelGraph, layers: int | None = None, experts: Iterable[int] = ()) -> Small:
    """This is a small model of a graph's structure, with `layers` of its layers (all, if none is said).

    `experts` are numbers that have to be among those kept. Raises ModelError for a number of layers that the family
    cannot lay out.
    """
    return shrink_to(graph, _ends(graph, layers), experts)


def shrink_to(graph: ModelGraph, layers: Sequence[int], experts: Iterable[int] = ()) -> Small:
    """The same with the layers that are kept, in order."""
    family = _family(graph)
    kept = _experts(graph.expert_count, experts)
    facts = {**_narrow(family, graph.config), **_layer_facts(graph, layers)}
    if kept:
        facts["num_experts"] = len(kept)
        facts["num_experts_per_tok"] = min(facts["num_experts_per_tok"], max(1, len(kept) // 2))
    config = _config(family, graph, facts)
    described = describe(config, f"a small {graph.name}", facts["lm_head_stored"])
    small = described.graph(graph.name)
    return Small(_stored_as(small, graph, layers), config, tuple(layers), kept)


def complete_config(graph: ModelGraph) -> dict[str, Any]:
    """This is a `config.json` that gives the graph, for an engine to build: at the graph's own size."""
    return _config(_family(graph), graph, graph.config)


def opened(tensor: Tensor) -> tuple[object, ...]:
    """What a tensor of a layer is called, whichever layer it is."""
    if tensor.mtp is not None:
        return ("mtp", tensor.mtp, *tensor.path[tensor.outer_depth :], tensor.parameter)
    path = tensor.path if tensor.layer is None else tensor.path[tensor.path.index(str(tensor.layer)) + 1 :]
    return (tensor.layer is not None, *path, tensor.parameter)


def _family(graph: ModelGraph) -> Family:
    return next(family for family in families() if family.name == graph.family)


def _ends(graph: ModelGraph, wanted: int | None) -> Sequence[int]:
    """The first layers and the last ones, or those before these with which the family can go on."""
    layers = graph.layers
    if wanted is None or wanted >= layers:
        return range(layers)
    first = (wanted + 1) // 2
    for stop in range(layers, wanted - 1, -1):
        kept = (*range(first), *range(stop - (wanted - first), stop))
        if _can_repeat(graph, kept):
            return kept
    return (*range(first), *range(layers - (wanted - first), layers))


def _can_repeat(graph: ModelGraph, layers: Sequence[int]) -> bool:
    try:
        _layer_facts(graph, layers)
    except ModelError:
        return False
    return _has_every_kind(graph, layers)


def _has_every_kind(graph: ModelGraph, layers: Sequence[int]) -> bool:
    """Whether each kind of mixer is among the layers, where a layer has one mixer alone."""
    kinds = graph.config.get("layers_block_type", ())
    return {kinds[layer] for layer in layers if kinds} == set(kinds)


def _experts(count: int, wanted: Iterable[int]) -> tuple[int, ...]:
    """The kept ones: those that are wanted, and the first others until there are a few."""
    kept = set(wanted)
    others = (expert for expert in range(count) if expert not in kept)
    kept.update(expert for expert, _ in zip(others, range(FEW_EXPERTS - len(kept)), strict=False))
    return tuple(sorted(kept))


# --- sizes -------------------------------------------------------------------------------------------


def _narrow(family: Family, facts: Facts) -> dict[str, Any]:
    """The facts with small sizes: widths first, then as few heads as leave every axis as divisible as it was."""
    small = dict(facts)
    for fact in WIDTHS:
        if small.get(fact):
            small[fact] = _width(small[fact], MULTIPLES.get(fact, 1))
    small |= family.small(small)
    small |= family.derive(small)
    for heads in _head_counts(facts):
        few = {**small, **heads}
        if _divisors(family, few) == _divisors(family, facts):
            return few
    return small


def _width(size: int, blocks: int) -> int:
    """A size of about so many blocks, divisible by the same power of two up to a block's width."""
    part = gcd(size, BLOCK)
    return min(size, BLOCK * blocks if part == BLOCK else BLOCK * blocks + part)


def _head_counts(facts: Facts) -> Iterator[dict[str, int]]:
    """Counts of heads, the fewest first; queries stay grouped where they are and keep to one group where not."""
    heads, groups = facts["num_attention_heads"], facts.get("num_key_value_heads")
    for count in range(1, heads + 1):
        found = {fact: min(count, facts[fact]) for fact in HEADS if fact in facts}
        if groups is not None:
            found["num_attention_heads"] = count * (1 if heads == groups else 2)
        found |= {fact: found[like] * facts[fact] // facts[like] for fact, like in IN_STEP.items() if fact in facts}
        yield found


def _divisors(family: Family, facts: Facts) -> set[tuple[str, tuple[int, ...]]]:
    """What divides each axis of each weight that a policy may quantize, as far as blocks can tell."""
    one = {**facts, "num_hidden_layers": 1, "num_mtp_layers": min(1, facts.get("num_mtp_layers", 0))}
    one |= {fact: (0,) for fact in _LAYER_SETS if facts.get(fact)}
    weights = (tensor for tensor in expand(family, one, Storage()) if tensor.is_gemm and not tensor.protected)
    return {(weight.name.split("{")[0] + weight.part, _powers(weight.shape)) for weight in weights}


_LAYER_SETS = (
    *("moe_layers", "dense_layers", "full_layers", "linear_layers", "sliding_layers"),
    *("mamba_layers", "attention_layers"),
    *("indexer_layers", "sparse_layers", "compressed_layers", "scored_layers"),
)


def _powers(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(gcd(size, BLOCK) for size in shape)


# --- layers ------------------------------------------------------------------------------------------


def _layer_facts(graph: ModelGraph, layers: Sequence[int]) -> dict[str, Any]:
    """The facts that say how many layers there are, which of them are dense, and what else single ones are."""
    facts: dict[str, Any] = {"num_hidden_layers": len(layers)}
    if len(layers) == graph.layers:
        return facts
    facts |= {fact: _listed(graph, fact, layers) for fact in LISTED if graph.config.get(fact)}
    facts |= {fact: _numbered(graph.config[fact], layers) for fact in NUMBERED if fact in graph.config}
    if "num_hash_layers" in graph.config:
        facts["num_hash_layers"] = sum(layer < graph.config["num_hash_layers"] for layer in layers)
    for fact, listed in INTERVALS.items():
        if fact in graph.config:
            facts[fact] = _interval(graph, layers, listed)
    if "dense_layers" not in graph.config:
        return facts
    sparse = [layer in graph.config["moe_layers"] for layer in layers]
    if "moe_layers_enum" in graph.config:
        return {**facts, "moe_layers_enum": ",".join(str(at) for at, routed in enumerate(sparse) if routed)}
    if "mlp_only_layers" in graph.config:
        dense = tuple(position for position, routed in enumerate(sparse) if not routed)
        return {**facts, "mlp_only_layers": dense, "decoder_sparse_step": 1}
    if "first_k_dense_replace" in graph.config:
        return {**facts, **_dense_first(graph, sparse)}
    return facts


def _listed(graph: ModelGraph, fact: str, layers: Sequence[int]) -> tuple[object, ...]:
    """What a list says of the kept layers, and of MTP layers, if it goes on."""
    said = graph.config[fact]
    return (*(said[layer] for layer in layers), *said[graph.layers :])


def _numbered(numbers: Sequence[int], layers: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the kept layers that are in a list, all counted from one."""
    return tuple(position + 1 for position, layer in enumerate(layers) if layer + 1 in numbers)


def _dense_first(graph: ModelGraph, sparse: list[bool]) -> dict[str, int]:
    dense = sparse.count(False)
    if not all(sparse[dense:]):
        raise ModelError(
            f"{graph.name}: its dense layers stand between routed ones, which {len(sparse)} layers cannot repeat",
            "Keep all layers.",
        )
    every = {"moe_layer_freq": 1} if "moe_layer_freq" in graph.config else {}
    return {"first_k_dense_replace": dense, **every}


def _interval(graph: ModelGraph, layers: Sequence[int], listed: str) -> int:
    """Every how many of the kept layers one is of a list."""
    full = [position + 1 for position, layer in enumerate(layers) if layer in graph.config[listed]]
    every = full[0] if full else len(layers) + 1
    if full != list(range(every, len(layers) + 1, every)):
        raise ModelError(
            f"{graph.name}: its {listed} stand at equal distances, which {len(layers)} layers cannot repeat",
            "Keep all layers.",
        )
    return every


# --- what is written ---------------------------------------------------------------------------------


def _config(family: Family, graph: ModelGraph, facts: Facts) -> dict[str, Any]:
    known = {field.key: _plain(facts[field.fact]) for field in family.fields if field.fact in facts}
    named = {"architectures": [graph.architecture], "model_type": facts["model_type"]}
    dtype = {"torch_dtype": _DTYPES[facts["torch_dtype"]]}
    config = {**named, **COMMON, **UNSEEN.get(family.name, {}), **known, **dtype}
    if family.text_model_type:
        config = {**named, **_wrapped(family, config), **dtype}
    quantization = _quantization(graph, facts) if facts.get("quantization") else None
    return config if quantization is None else {**config, "quantization_config": quantization}


def _wrapped(family: Family, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a multimodal wrapper; both it and its `text_config` say whether the head is tied."""
    sections: dict[str, dict[str, Any]] = {TEXT: {}}
    for key, value in flat.items():
        *above, name = key.split(".")
        inner = sections
        for section in above if above and above[0] in (TEXT, *TOWERS) else (TEXT, *above):
            inner = inner.setdefault(section, {})
        if key != "architectures":
            inner[name] = value
    sections[TEXT]["model_type"] = family.text_model_type
    return {"tie_word_embeddings": flat["tie_word_embeddings"], **sections}


_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _quantization(graph: ModelGraph, facts: Facts) -> dict[str, Any] | None:
    """How a checkpoint in low precision says what it holds; None where it has several forms, or one of no method."""
    weights = [tensor for tensor in graph.tensors if tensor.is_gemm and not tensor.protected]
    if facts.get("expert_dtype"):  # which says it of the routed experts
        weights = [tensor for tensor in weights if tensor.role is not Role.ROUTED_EXPERTS]
    forms = {tensor.form for tensor in weights if tensor.form.is_quantized}
    kept = [*_kept_kinds(weights), *_kept_subtrees(graph, weights, facts)]
    config = declared(forms.pop(), kept) if len(forms) == 1 else None
    if config is not None and facts.get("scale_fmt"):
        config["scale_fmt"] = facts["scale_fmt"]
    return config


def _kept_kinds(weights: Sequence[Tensor]) -> list[str]:
    """The last word of each kind of weight that is kept, or the last two where others have that word too."""
    low = [tensor.path for tensor in weights if tensor.form.is_quantized]
    stored = {path[-1] for path in low} | {".".join(path[-2:]) for path in low}
    kept = (tensor.path for tensor in weights if tensor.outer is None and not tensor.form.is_quantized)
    kinds = {path[-1] if path[-1] not in stored else ".".join(path[-2:]) for path in kept}
    return sorted(kinds - stored)


def _kept_subtrees(graph: ModelGraph, weights: Sequence[Tensor], facts: Facts) -> list[str]:
    """The roots of towers and MTP layers none of whose weights is in low precision, as the small model names them."""
    outer = [tensor for tensor in weights if tensor.outer is not None]
    low = {tensor.path[: tensor.outer_depth] for tensor in outer if tensor.form.is_quantized}
    roots = {tensor.path[: tensor.outer_depth] for tensor in outer} - low
    moved = facts["num_hidden_layers"] - graph.layers
    return sorted(".".join(_moved(word, moved) for word in root) for root in roots)


def _moved(word: str, layers: int) -> str:
    return str(int(word) + layers) if word.isdecimal() else word


def _stored_as(small: ModelGraph, large: ModelGraph, layers: Sequence[int]) -> ModelGraph:
    """The small graph without what the large one does not store, in the large one's dtypes."""
    stored: dict[tuple[int | None, tuple[object, ...]], Tensor] = {}
    for tensor in large.tensors:
        stored.setdefault((tensor.layer, opened(tensor)), tensor)
    tensors = []
    for tensor in small.tensors:
        layer = None if tensor.layer is None else layers[tensor.layer]
        like = stored.get((layer, opened(tensor)))
        if like is not None:
            tensors.append(replace(tensor, form=like.form))
    return replace(small, tensors=tuple(tensors))
