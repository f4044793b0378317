"""The parameters that SGLang has to build for a contract, and the checkpoint tensors that fill them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from precc.contract import Contract, Entry
from precc.formats import StoredPart, stored_parts
from precc.graph.model import EXPERT, Tensor
from precc.syntax.words import Role
from precc_sglang.classes import CLASSES
from precc_sglang.families import FP8_TENSOR, MXFP4, MXFP4_WEIGHTS, NVFP4_STATIC, UNQUANTIZED, family_of
from precc_sglang.methods import Choice
from precc_sglang.model_class import TOWERS, ModelClass
from precc_sglang.names import Kind, Module, module_of
from precc_sglang.upstream.wire import Parameter, Shape

CODES_A_WORD = 8
"""Four-bit codes in one I32."""

DTYPES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}

HALVES = {"gate": "w13_", "up": "w13_", "down": "w2_"}
"""The fused parameter of an expert layer that holds each projection."""

STACKED: dict[str, tuple[str, ...]] = {"gate_up": ("gate", "up"), "gate": ("gate",), "up": ("up",), "down": ("down",)}
"""The projections in a stack of experts, by the part of the tensor."""

STACKED_BIASES = {"gate_up_proj_bias": "w13_weight_bias", "down_proj_bias": "w2_weight_bias"}
"""The biases of stacked experts, and the parameters of the expert layer that hold them."""

BLOCKS = {"weight": "blocks", "weight_scale": "scales"}
"""The parts of a stack of MXFP4 experts, and the words that its own name goes on with in a checkpoint."""

PAIRS_A_BLOCK = 16
"""Bytes of MXFP4 codes under one scale, which stand on an axis of their own in a checkpoint."""

JOINED = {"qkv": 3, "qkvz": 4, "ba": 2, "in": 5}
"""How many projections of a gated delta net or a Mamba-2 mixer one tensor holds, by its part."""

CORRECTION = "e_score_correction_bias"
"""What a router's own `bias` is loaded as: it corrects the choice of experts, and is no bias of the layer."""

ONE_INPUT_SCALE = frozenset({(FP8_TENSOR.name, "w13_input_scale")})
"""Scales that an expert layer has once for gate and up together."""

LISTED = frozenset({(NVFP4_STATIC.name, "w13_input_scale"), (FP8_TENSOR.name, "w13_weight_scale")})
"""Scales that an expert layer has in a list for each expert, of one where there is no gate."""

OUTSIDE_DECODER = frozenset(
    {"enorm", "hnorm", "eh_proj", "e_proj", "h_proj", "shared_head", "embed_tokens", "final_layernorm"}
    | {f"hc_head_{word}" for word in ("fn", "base", "scale")}
)
"""What a draft model holds beside its decoder layer."""


@dataclass
class Holder:
    """One module of SGLang: its name in the model, the entries that it holds, the parameters that these need.

    `module` is what asks for a method; None for what never multiplies (norms, biases of a fused layer among them).
    """

    name: str
    draft: bool
    module: Module | None
    entries: list[Entry] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)


def held_entries(contract: Contract, built: ModelClass) -> list[Entry]:
    """The entries that a class has modules for: a server builds some of them without their towers or MTP layers."""
    return [entry for entry in contract.entries if built.holds(entry.tensor)]


def holders(contract: Contract, choice: Choice) -> list[Holder]:
    """The modules that hold a contract's tensors, in order.

    Of several MTP layers that of the first: each runs in a draft model of its own, under the same names.
    """
    found: dict[tuple[bool, str, bool], Holder] = {}
    for entry in held_entries(contract, choice.built):
        tensor = entry.tensor
        if tensor.mtp and tensor.outer_depth > 1:
            continue
        module = module_of(tensor, choice.built)
        for name in _held_in(tensor, module, choice.built):
            key = tensor.mtp is not None, name, tensor.is_gemm
            holder = found.setdefault(key, Holder(name, tensor.mtp is not None, module))
            holder.entries.append(entry)
    for holder in found.values():
        named = _parameters(holder, choice.built).items()
        holder.parameters = {choice.built.placed((word,))[-1]: parameter for word, parameter in named}
    return list(found.values())


def _held_in(tensor: Tensor, module: Module | None, built: ModelClass) -> Iterator[str]:
    """The names of the modules that hold a tensor: one, or one an expert where a class keeps experts apart."""
    path = _path(tensor, built)
    if module is not None and module.kind is Kind.EXPERTS:
        yield ".".join(path[:-1] if tensor.stacked else path[: path.index(EXPERT)])
    elif EXPERT in path:
        yield from (".".join(path).replace(EXPERT, str(expert)) for expert in tensor.experts or ())
    else:
        path = path if tensor.parameter else path[:-1]
        fuses = tensor.outer in TOWERS or built.bars(tensor)
        never = module is not None and module.kind is Kind.NEVER and not fuses
        fused = None if never else built.fused(path, tensor.role)
        yield ".".join(path) if fused is None else fused[0]


def _path(tensor: Tensor, built: ModelClass) -> tuple[str, ...]:
    """Where a tensor stands in SGLang's tree; the decoder layer of a draft model has a name of its own."""
    if tensor.mtp is None or tensor.outer_depth == 1:
        return built.placed(tensor.path)
    below = built.drafted(tensor.path[tensor.outer_depth :])
    if tensor.role is Role.LM_HEAD:
        return ("lm_head",)
    return ("model", *below) if below[0] in OUTSIDE_DECODER else ("model", built.draft_layer, *below)


# --- parameters --------------------------------------------------------------------------------------


def _parameters(holder: Holder, built: ModelClass) -> dict[str, Parameter]:
    """Each parameter of a module, the parts of a fused one put together."""
    experts = holder.module is not None and holder.module.kind is Kind.EXPERTS
    parts: dict[str, list[tuple[Parameter, Entry]]] = {}
    held_apart = _unstacked if experts else lambda entry: iter((entry,))
    for entry in chain.from_iterable(map(held_apart, holder.entries)):
        half = HALVES[entry.tensor.part] if experts else ""
        for word, parameter in held(entry, built):
            named = CORRECTION if entry.tensor.role is Role.ROUTER and word == "bias" else word
            parts.setdefault(half + named, []).append((parameter, entry))
    if not experts:
        parts = {word: list(_with_values(group)) for word, group in parts.items()}
        fused = {word: _fused(list(chain.from_iterable(map(_slots, group)))) for word, group in parts.items()}
        return {STACKED_BIASES.get(word, word): parameter for word, parameter in fused.items()}
    return {word: _of_experts(word, group) for word, group in parts.items()}


def _unstacked(entry: Entry) -> Iterator[Entry]:
    """The projections of a stack as they were if each expert's stood alone; an entry that is no stack itself."""
    tensor = entry.tensor
    if not tensor.stacked:
        yield entry
        return
    parts = STACKED[tensor.part]
    rows, columns = tensor.shape[3 - tensor.contraction] // len(parts), tensor.shape[tensor.contraction]
    for part in parts:
        path = (*tensor.path[:-1], EXPERT, f"{part}_proj")
        single = replace(tensor, path=path, parameter="weight", shape=(rows, columns), part=part, contracted=(1,))
        yield replace(entry, tensor=replace(single, experts=range(tensor.stacked)))


def parts_stacks(contract: Contract) -> bool:
    """Whether a checkpoint holds experts one by one: all, if those of some bare stack are quantized, but in MXFP4."""
    quantized = (entry for entry in contract.entries if entry.decision.weight.is_quantized and _is_bare(entry.tensor))
    return any(family_of(entry.decision) is not MXFP4_WEIGHTS for entry in quantized)


def _is_bare(tensor: Tensor) -> bool:
    """Whether a tensor is a stack of experts that is no layer's `weight`."""
    return bool(tensor.stacked) and not tensor.parameter


def stored_entries(entry: Entry, apart: bool) -> Iterator[Entry]:
    """An entry as a checkpoint holds it, which has its stacks `apart` or not."""
    yield from _unstacked(entry) if apart else (entry,)


def held(entry: Entry, built: ModelClass | None) -> Iterator[tuple[str, Parameter]]:
    """The stored parts of one tensor (of one expert) by the word that names each for a class."""
    tensor, family = entry.tensor, family_of(entry.decision) or UNQUANTIZED
    if family is MXFP4_WEIGHTS and built is not None and built.mxfp4 == "beside":
        family = MXFP4  # stored alike whatever the inputs are
    if family is UNQUANTIZED or not tensor.is_gemm:
        dtype = DTYPES.get(entry.decision.weight.format, entry.decision.weight.format)
        yield tensor.parameter or tensor.path[-1], Parameter(dtype, tensor.shape)
        return
    for stored, part in zip(family.stored, _stored(entry), strict=True):
        word, dtype = stored.split()
        yield word, Parameter(dtype, _packed(part) if word == "weight_packed" else part.shape)


def _stored(entry: Entry) -> list[StoredPart]:
    return list(stored_parts(entry.decision, entry.tensor.shape, entry.tensor.contraction))


def _packed(codes: StoredPart) -> Shape:
    *rows, columns = codes.shape
    return (*rows, -(-2 * columns // CODES_A_WORD))


def _with_values(group: Sequence[tuple[Parameter, Entry]]) -> Iterator[tuple[Parameter, Entry]]:
    """The parts of a fused layer, keys once more where they are the values as well."""
    yield from group
    parts = {entry.tensor.part: (parameter, entry) for parameter, entry in group}
    if "q" in parts and "k" in parts and "v" not in parts:
        yield parts["k"]


def _slots(held_as: tuple[Parameter, Entry]) -> Iterator[Parameter]:
    """A stored part, a scalar as often as its weight has members that stand in one tensor of the checkpoint."""
    parameter, entry = held_as
    joined = entry.tensor.role is Role.LINEAR_ATTENTION and not parameter.shape
    yield from (parameter,) * (JOINED.get(entry.tensor.part, 1) if joined else 1)


def _fused(parts: Sequence[Parameter]) -> Parameter:
    """The parts of a linear layer: rows stand one after the other, scalars make a list."""
    first = parts[0]
    if not first.shape:
        return Parameter(first.dtype, (len(parts),))
    if first.dtype == "I64":
        return first
    return Parameter(first.dtype, (sum(part.shape[0] for part in parts), *first.shape[1:]))


def _of_experts(word: str, group: Iterable[tuple[Parameter, Entry]]) -> Parameter:
    """A part of all experts: the experts' axis first, then gate above up; a scalar for each."""
    counted: dict[str, int] = {}
    shapes: dict[str, Parameter] = {}
    family = UNQUANTIZED
    for parameter, entry in group:
        part = entry.tensor.part
        counted[part] = counted.get(part, 0) + entry.tensor.count
        shapes[part] = parameter
        family = family_of(entry.decision) or UNQUANTIZED
    experts = max(counted.values())
    one = _fused(list(shapes.values()))
    if one.shape == (len(shapes),):
        listed = len(shapes) > 1 or (family.name, word) in LISTED
        once = not listed or (family.name, word) in ONE_INPUT_SCALE
        return Parameter(one.dtype, (experts,) if once else (experts, len(shapes)))
    return Parameter(one.dtype, (experts, *one.shape))


# --- the checkpoint that fills them ------------------------------------------------------------------


def checkpoint(contract: Contract) -> dict[str, Parameter]:
    """The tensors of a checkpoint that follows a contract, as `decides` says they are stored."""
    tensors, apart, built = {}, parts_stacks(contract), CLASSES.get(contract.model.architecture)
    for entry in chain.from_iterable(stored_entries(entry, apart) for entry in contract.entries):
        for module in entry.tensor.modules():
            for word, parameter in held(entry, built):
                tensors[stored_name(entry.tensor, module, word)] = _on_disk(entry.tensor, word, parameter)
    return tensors


def _on_disk(tensor: Tensor, word: str, parameter: Parameter) -> Parameter:
    """A stored part as its writer shapes it: the codes of a stack in MXFP4 have an axis of blocks."""
    if not _is_bare(tensor) or BLOCKS.get(word) != "blocks":
        return parameter
    *lead, columns = parameter.shape
    return Parameter(parameter.dtype, (*lead, columns // PAIRS_A_BLOCK, PAIRS_A_BLOCK))


def stored_name(tensor: Tensor, module: str, word: str) -> str:
    """The name of one stored part of a tensor; a bare parameter has its path's, which those of MXFP4 go on from."""
    if tensor.parameter:
        return f"{module}.{word}"
    return f"{module}_{BLOCKS[word]}" if tensor.stacked and word in BLOCKS else module


def filled(found: Iterable[Holder]) -> frozenset[str]:
    """The names of all parameters of some modules."""
    return frozenset(f"{holder.name}.{word}" for holder in found for word in holder.parameters)
