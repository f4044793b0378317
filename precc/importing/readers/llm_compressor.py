"""llm-compressor recipes: stages of modifiers, as YAML or JSON.

A modifier that has a `scheme` or `config_groups` sets the schemes of the layers that it reaches, by the rules of
compressed-tensors; a later one replaces them where it reaches the same layers, and one that has neither works with
those that are there. How values are chosen (GPTQ, AWQ, SmoothQuant, observers) is no matter of a policy; a zero point,
an act-order that the file must tell, a sparsity or a rotation is, and has no spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from precc.diagnostics import error
from precc.graph.model import ModelGraph
from precc.importing.checkpoint import NO_SPELLING, Section
from precc.importing.naming import ending, exact
from precc.importing.overlaying import overlaid
from precc.importing.patterns import Pattern
from precc.importing.readers.compressed_tensors import Dialect, read_groups, targets_of
from precc.importing.reading import Decided, Document, Reading, Source, Unimportable

TOOL = "llm-compressor recipes"
RANK = 50

BEYOND = "P904"

_QUANTIZERS = frozenset(
    {"QuantizationModifier", "GPTQModifier", "AWQModifier", "AutoRoundModifier", "SmoothQuantModifier"}
)
_MOVERS: Mapping[str, str] = {
    "AWQModifier": "scales channels of weights before they are rounded",
    "SmoothQuantModifier": "moves scales from inputs to weights",
    "LogarithmicEqualizationModifier": "evens out channels of weights",
}
"""Modifiers that change weights and leave their formats alone."""

_STATED = ("config_groups", "scheme", "kv_cache_scheme")
# fmt: off
_KNOWN = frozenset((
    "config_groups", "targets", "ignore", "scheme", "kv_cache_scheme", "weight_observer", "input_observer",
    "output_observer", "observer", "bypass_divisibility_checks", "block_size", "dampening_frac", "actorder",
    "offload_hessians", "sequential_targets", "sequential_update", "smoothing_strength", "mappings", "duo_scaling",
    "n_grid", "offload_device", "max_chunk_memory", "num_calibration_steps", "group", "iters",
    "enable_torch_compile", "batch_size", "disable_quantization_observer_epoch", "start", "end", "index", "stage",
))
# fmt: on
_SAME_LAYOUT = (None, False, "weight", "static")
"""Act-orders that a file need not tell: columns are visited in another order, and stay in their groups."""


class Modifier(NamedTuple):
    """One modifier of a recipe: its class, its place, and its arguments."""

    name: str
    where: str
    arguments: Mapping[str, Any]


def recognizes(source: Source) -> bool:
    """Whether a file has stages of modifiers."""
    return any(_is_recipe(document) for document in source.documents)


def _is_recipe(document: Document) -> bool:
    said = document.section() or {}
    return any(
        str(stage).endswith("_stage")
        and isinstance(groups, dict)
        and any(str(g).endswith("_modifiers") for g in groups)
        for stage, groups in said.items()
    )


def read(source: Source, graph: ModelGraph) -> Reading:
    """What the recipe's modifiers decide, one after the other."""
    document = next(document for document in source.documents if _is_recipe(document))
    modifiers = tuple(_modifiers(document))
    readings = [_read(modifier, graph) for modifier in modifiers if _quantizes(modifier)]
    return Reading(
        decisions=tuple(map(_loaded, overlaid([reading.decisions for reading in readings], graph))),
        rules=tuple(rule for reading in readings for rule in reading.rules),
        findings=tuple(finding for reading in readings for finding in reading.findings),
        kv_cache=next((reading.kv_cache for reading in reversed(readings) if reading.kv_cache), None),
        remarks=tuple(_remarks(modifiers)),
    )


def _loaded(decided: Decided) -> Decided:
    """MTP layers stay as they are: the tool loads models without them."""
    tensor, decision = decided
    return tensor, None if tensor.mtp is not None else decision


def _modifiers(document: Document) -> Iterator[Modifier]:
    """The modifiers in the order of the file. Raises Unimportable for one whose effect no policy can say."""
    for stage, groups in (document.section() or {}).items():
        if not str(stage).endswith("_stage") or not isinstance(groups, dict):
            continue
        for group, modifiers in groups.items():
            if str(group).endswith("_modifiers") and isinstance(modifiers, dict):
                for name, arguments in modifiers.items():
                    where = f"{document.name}: {stage}.{group}.{name}"
                    yield _checked(Modifier(str(name), where, arguments if isinstance(arguments, dict) else {}))


def _checked(modifier: Modifier) -> Modifier:
    if modifier.name not in _QUANTIZERS and modifier.name not in _MOVERS:
        known = ", ".join(sorted(_QUANTIZERS | _MOVERS.keys()))
        message = f"{modifier.where}: what this modifier does has no spelling"
        raise Unimportable([error(NO_SPELLING, message, help=f"known are {known}")])
    return modifier


def _quantizes(modifier: Modifier) -> bool:
    """Whether a modifier sets schemes, or works with those that are there."""
    return any(modifier.arguments.get(key) is not None for key in _STATED)


def _remarks(modifiers: tuple[Modifier, ...]) -> Iterator[str]:
    for modifier in modifiers:
        if modifier.name in _MOVERS:
            yield f"{modifier.name} {_MOVERS[modifier.name]}; a policy says formats, not how values are chosen."


def _read(modifier: Modifier, graph: ModelGraph) -> Reading:
    said = modifier.arguments
    content = {key: said[key] for key in said if key not in ("scheme", "targets", "actorder", "group")}
    section = Section(modifier.where, {**content, "config_groups": _groups(modifier)})
    ignore = section.names("ignore")[1]
    targets = targets_of(section)
    return read_groups(section, graph, targets, ignore, Dialect(_KNOWN, _whole, is_run=True))


def _whole(entry: str) -> Pattern:
    """One whole name; a head that a wrapper stores under a longer one has this name to `transformers`."""
    return ending(entry) if entry == "lm_head" else exact(entry)


# --- schemes -----------------------------------------------------------------------------------------


def _groups(modifier: Modifier) -> dict[str, dict[str, Any]]:
    """The groups that a modifier states, or those of its presets. Raises Unimportable."""
    said = modifier.arguments
    groups, scheme = said.get("config_groups"), said.get("scheme")
    if groups is not None and scheme is not None:
        raise _refused(modifier, "`scheme` and `config_groups` exclude each other")
    if scheme is not None:
        groups = {f"group_{at}": group for at, group in enumerate(_preset_groups(modifier, scheme))}
    if not isinstance(groups or {}, dict) or not all(isinstance(group, dict) for group in (groups or {}).values()):
        raise _refused(modifier, "`config_groups` is no map of groups")
    return {str(name): _ordered(modifier, group) for name, group in (groups or {}).items()}


def _preset_groups(modifier: Modifier, scheme: object) -> Iterator[dict[str, Any]]:
    targets = modifier.arguments.get("targets", ["Linear"])
    named = scheme if isinstance(scheme, dict) else {scheme: targets}
    for name, wanted in named.items():
        arguments = preset(str(name))
        if arguments is None:
            raise _refused(modifier, f"`scheme: {name}` is no preset of compressed-tensors")
        if arguments:
            yield {**arguments, "targets": [wanted] if isinstance(wanted, str) else list(wanted)}


def _ordered(modifier: Modifier, group: Mapping[str, Any]) -> dict[str, Any]:
    """A group with the act-order in force, left out where a file need not tell it. Raises Unimportable."""
    weights = group.get("weights")
    if not isinstance(weights, dict):
        return dict(group)
    own, stated = weights.get("actorder"), modifier.arguments.get("actorder")
    if own is not None and stated is not None and "actorder" in modifier.arguments and own != stated:
        raise _refused(modifier, f"`actorder` is {stated} here and {own} in a group")
    order = own if own is not None else stated
    is_grouped = weights.get("strategy") in ("group", "tensor_group") or weights.get("group_size")
    if order not in _SAME_LAYOUT and is_grouped:
        raise _refused(modifier, f"act-order (`actorder: {order}`) has no spelling: its groups are no runs of columns")
    return {**group, "weights": {**weights, "actorder": None}}


def _refused(modifier: Modifier, problem: str) -> Unimportable:
    return Unimportable([error(NO_SPELLING, f"{modifier.where}: {problem}")])


def _arguments(bits: int, kind: str, strategy: str, dynamic: object = False, **others: object) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": dynamic, **others}


def _integers(bits: int, inputs: int, symmetric: bool = True) -> dict[str, Any]:
    weights = {**_arguments(bits, "int", "group", group_size=128), "symmetric": symmetric}
    return {"weights": weights} | (
        {"input_activations": _arguments(inputs, "int", "token", True)} if inputs < 16 else {}
    )


_NVFP4 = _arguments(4, "float", "tensor_group", group_size=16)
_CHANNEL, _TOKEN = _arguments(8, "float", "channel"), _arguments(8, "float", "token", True)
_INT8 = {"weights": _arguments(8, "int", "channel"), "input_activations": _arguments(8, "int", "token", True)}


def _microscaled(bits: int, dynamic: bool = False) -> dict[str, Any]:
    return _arguments(bits, "float", "group", dynamic, group_size=32)


_GROUPED: Mapping[str, dict[str, Any]] = {
    f"W{bits}A{inputs}": _integers(bits, inputs) for bits in range(2, 9) for inputs in (4, 8, 16) if bits <= inputs
}
"""Integers in groups of 128, inputs as they come; eight bits on both sides are another preset."""

_PRESETS: Mapping[str, dict[str, Any]] = {
    "UNQUANTIZED": {},
    **_GROUPED,
    "W8A8": _INT8,
    "W4A16_ASYM": _integers(4, 16, symmetric=False),
    "INT8": _INT8,
    "W4AFP8": {**_integers(4, 16), "input_activations": _TOKEN},
    "FP8": {"weights": _arguments(8, "float", "tensor"), "input_activations": _arguments(8, "float", "tensor")},
    "FP8_DYNAMIC": {"weights": _CHANNEL, "input_activations": _TOKEN},
    "FP8_BLOCK": {
        "weights": _arguments(8, "float", "block", block_structure=[128, 128]),
        "input_activations": _arguments(8, "float", "group", True, group_size=128),
    },
    "NVFP4A16": {"weights": _NVFP4},
    "NVFP4": {"weights": _NVFP4, "input_activations": {**_NVFP4, "dynamic": "local"}},
    "MXFP4A16": {"weights": _microscaled(4)},
    "MXFP4": {"weights": _microscaled(4), "input_activations": _microscaled(4, True)},
    "MXFP8A16": {"weights": _microscaled(8)},
    "MXFP8": {"weights": _microscaled(8), "input_activations": _microscaled(8, True)},
}
"""The schemes that compressed-tensors 0.18 has names for."""


def preset(name: str) -> dict[str, Any] | None:
    """The arguments of a preset, in any case; None where compressed-tensors has none of that name."""
    return _PRESETS.get(name.upper())
