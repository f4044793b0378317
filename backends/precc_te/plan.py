"""What Megatron is told: the global mode, the layers that flags keep in BF16, and ordered matchers a stage.

The last rule wins in a policy and the first match wins in Megatron, so nothing of the policy's order is left here:
matchers follow from the decisions. Every pattern names the decoder or one MTP layer, never both; the last one, `*`,
keeps what nothing decides in BF16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from precc.contract import Contract
from precc.records import record
from precc_te.environment import Process, builtin, expressible
from precc_te.factories import MODULE, factory_name
from precc_te.modules import modules_of
from precc_te.names import GROUPED, Module
from precc_te.precision import BF16, Recipe, TePrecision
from precc_te.versions import NEWEST

Layers: TypeAlias = "dict[int, TePrecision]"

DEFAULT = "everything_else"

_GLOBAL: tuple[Recipe, ...] = ("nvfp4", "mxfp8", "blockwise", "tensorwise")
"""The global mode is the first of these that the contract uses: the padding of experts follows the global mode, and
each pads for all that stand behind it."""


@record
class Config:
    """One named recipe of the YAML. `factory` is the path of a custom recipe's factory, else empty; `forced` recipes
    quantize even where the surrounding autocast is BF16."""

    name: str
    precision: TePrecision
    factory: str = ""
    forced: bool = False


@record
class Matcher:
    """One matcher of the YAML."""

    label: str
    pattern: str
    config: Config


@record
class Plan:
    """Everything that is written, before it is text. `stages` has one list of matchers, or one a pipeline stage."""

    mode: Recipe
    start: int
    end: int
    process: Process
    stages: tuple[tuple[Matcher, ...], ...]

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configs that matchers name, in the order in which they first do."""
        return tuple(dict.fromkeys(matcher.config for stage in self.stages for matcher in stage))


@record
class Layering:
    """How precisions depend on the decoder layer.

    `start` and `end` are the leading and trailing layers that the flags keep in BF16. `general` is the precision of
    each kind of linear layer, `exceptions` what differs from it between those layers.
    """

    start: int
    end: int
    general: dict[str, TePrecision]
    exceptions: dict[int, dict[str, TePrecision]]
    kinds: dict[int, frozenset[str]]


def layering(precisions: dict[Module, TePrecision], layers: int) -> Layering:
    """This separates what flags say, what holds for all layers, and what depends on a layer."""
    by_kind: dict[str, Layers] = {}
    for module, precision in precisions.items():
        if module.layer is not None:
            by_kind.setdefault(module.suffix, {})[module.layer] = precision
    start, end = _flagged(by_kind, layers)
    general: dict[str, TePrecision] = {}
    exceptions: dict[int, dict[str, TePrecision]] = {}
    for kind, held in sorted(by_kind.items()):
        inner = {layer: precision for layer, precision in held.items() if start <= layer < layers - end}
        general[kind] = _most_common(inner)
        for layer, precision in inner.items():
            if precision != general[kind]:
                exceptions.setdefault(layer, {})[kind] = precision
    kinds = {layer: frozenset(k for k, held in by_kind.items() if layer in held) for layer in exceptions}
    return Layering(start, end, general, dict(sorted(exceptions.items())), kinds)


def _flagged(by_kind: dict[str, Layers], layers: int) -> tuple[int, int]:
    """The leading and trailing layers that are wholly BF16, as far as a kind in them is quantized elsewhere."""
    quantized = {layer for held in by_kind.values() for layer, precision in held.items() if precision != BF16}
    if not quantized:
        return 0, 0
    lead, trail = min(quantized), max(quantized) + 1
    mixed = {layer for held in by_kind.values() if any(p != BF16 for p in held.values()) for layer in held}
    start = max((layer + 1 for layer in mixed if layer < lead), default=0)
    end = max((layers - layer for layer in mixed if layer >= trail), default=0)
    return start, end


def _most_common(held: Layers) -> TePrecision:
    """The precision that most layers have; of equals, that of the first layer."""
    counted = Counter(held[layer] for layer in sorted(held))
    return counted.most_common(1)[0][0] if counted else BF16


def plan(contract: Contract) -> Plan:
    """This plans the artifacts of a contract that the rules have passed."""
    modules = modules_of(contract)
    process = choose_process({precision: len(lines) for precision, lines in modules.quantized.items()})
    mode = global_mode(set(modules.quantized))
    layers = layering(modules.precisions, contract.model.layers)
    writer = _Writer(mode, process)
    ahead = tuple(writer.mtp(modules.precisions))
    general = tuple(writer.general(layers))
    default = Matcher(DEFAULT, "*", writer.config(BF16))
    stages = tuple(
        (*ahead, *writer.exceptions(layers, stage), *general, default)
        for stage in stages_of(contract.model.layers, contract.train.pp if layers.exceptions else 1)
    )
    return Plan(mode, layers.start, layers.end, process, stages)


def stages_of(layers: int, stages: int) -> tuple[range, ...]:
    """The global layers of each pipeline stage. The layers must divide."""
    each = layers // stages
    return tuple(range(stage * each, (stage + 1) * each) for stage in range(stages))


def global_mode(quantized: set[TePrecision]) -> Recipe:
    """The engine-wide format: NVFP4 where anything is, and modules are overridden downwards."""
    used = {precision.recipe for precision in quantized}
    return next((recipe for recipe in _GLOBAL if recipe in used), "bf16")


def choose_process(quantized: dict[TePrecision, int]) -> Process:
    """The process-wide settings for these precisions (each with how many entries have it).

    One backward mode and one setting a recipe: the environment says all. Otherwise the backward variable is unset,
    the environment says the commonest native settings, and factories the rest.
    """
    simple = _simple_process(quantized)
    if simple is not None:
        return simple
    native = {precision: count for precision, count in quantized.items() if precision.backward == "native"}
    return Process(
        nvfp4=_commonest(native, "nvfp4") or _plain_nvfp4(quantized),
        blockwise=_commonest(native, "blockwise"),
        tensorwise=_commonest(native, "tensorwise"),
    )


def needs_factory(precision: TePrecision, process: Process) -> bool:
    """Whether the engine's own recipe of that format would run otherwise in such a process."""
    return precision.is_quantized and builtin(precision.recipe, process.variables(), NEWEST) != precision


def _simple_process(quantized: dict[TePrecision, int]) -> Process | None:
    settings = {precision.settings for precision in quantized}
    modes = {precision.backward for precision in quantized}
    held = {setting.recipe: setting for setting in settings}
    if len(modes) > 1 or len(held) < len(settings) or not all(map(expressible, settings)):
        return None
    mode = next(iter(modes), None) or "native"
    return Process(mode, held.get("nvfp4"), held.get("blockwise"), held.get("tensorwise"))


def _commonest(native: dict[TePrecision, int], recipe: Recipe) -> TePrecision | None:
    held = [(count, str(precision), precision) for precision, count in native.items() if precision.recipe == recipe]
    held = [found for found in held if expressible(found[2])]
    return max(held)[2].settings if held else None


def _plain_nvfp4(quantized: dict[TePrecision, int]) -> TePrecision | None:
    return TePrecision("nvfp4") if any(precision.recipe == "nvfp4" for precision in quantized) else None


class _Writer:
    """Names configs and writes patterns."""

    def __init__(self, mode: Recipe, process: Process) -> None:
        self._mode = mode
        self._process = process

    def config(self, precision: TePrecision, mtp: bool = False) -> Config:
        """The recipe of a precision: the engine's own where the process runs it so, a factory's otherwise."""
        name = str(precision.recipe)
        forced = mtp and precision.is_quantized and self._mode == "nvfp4"
        factory = ""
        if precision.is_quantized:
            name = factory_name(precision)
            factory = f"{MODULE}.{name}" if needs_factory(precision, self._process) else ""
        return Config(f"{name}_in_mtp" if forced else name, precision, factory, forced)

    def mtp(self, precisions: dict[Module, TePrecision]) -> Iterator[Matcher]:
        """MTP layers: never counted by the flags, always inside FP8's autocast and never inside FP4's."""
        for module, precision in precisions.items():
            if module.mtp is not None and precision.is_quantized:
                root = f"mtp.layers.{module.mtp}."
                pattern = root + ("" if module.direct else "*.") + below(module.suffix)
                yield Matcher(_label(f"mtp_{module.mtp}", module.suffix), pattern, self.config(precision, mtp=True))

    def general(self, layers: Layering) -> Iterator[Matcher]:
        """The kinds of linear layers that are quantized; the default keeps the others in BF16."""
        for kind, precision in layers.general.items():
            if precision.is_quantized:
                yield Matcher(_label("", kind), f"decoder.layers.*.{below(kind)}", self.config(precision))

    def exceptions(self, layers: Layering, stage: range) -> Iterator[Matcher]:
        """What differs in single layers of a stage, by the stage's own layer numbers."""
        for layer, found in layers.exceptions.items():
            if layer not in stage:
                continue
            root = f"decoder.layers.{layer - stage.start}."
            whole = {found.get(kind, layers.general[kind]) for kind in layers.kinds[layer]}
            if len(whole) == 1:
                yield Matcher(f"layer_{layer}", f"{root}*", self.config(whole.pop()))
                continue
            for kind, precision in found.items():
                yield Matcher(_label(f"layer_{layer}", kind), root + below(kind), self.config(precision))


def below(suffix: str) -> str:
    """A module's path below its layer as a pattern; that of experts covers the grouped and the sequential layout."""
    return suffix.replace(GROUPED, f"{GROUPED}*", 1) if suffix.startswith(GROUPED) else suffix


_KINDS = {
    "self_attention.": "attention_",
    "core_attention.indexer.": "indexer_",
    "mlp.shared_experts.": "shared_experts_",
    "mlp.experts.": "routed_experts_",
    "mlp.": "dense_mlp_",
    "linear_": "",
}


def _label(prefix: str, suffix: str) -> str:
    for path, word in _KINDS.items():
        suffix = suffix.replace(path, word)
    return f"{prefix}_{suffix}" if prefix else suffix
