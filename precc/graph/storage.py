"""What a configuration says about how its checkpoint stores weights: `quantization_config`, or `hf_quant_config.json`.

This describes a checkpoint that is not there. The headers of one that is there say more, and they are believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from precc.graph.errors import MISSING, FieldError
from precc.graph.forms import ROW, Form
from precc.graph.model import EXPERT
from precc.records import record, replace
from precc.syntax.words import Role

if TYPE_CHECKING:
    from precc.graph.families.table import Row

Raw: TypeAlias = Mapping[str, Any]

FIELD = "quantization_config"

TOWERS = (Role.VISION, Role.AUDIO)

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


class Modules:
    """Modules by the entries of a list: runs of whole components, with `*` for anything, or `re:` expressions."""

    def __init__(self, entries: Iterable[str]) -> None:
        listed = tuple(entries)
        self._plain = frozenset(entry for entry in listed if "*" not in entry and not entry.startswith("re:"))
        self._patterns = tuple(map(_pattern, sorted({*listed} - self._plain)))

    def __contains__(self, path: tuple[str, ...]) -> bool:
        ends = range(1, len(path) + 1)
        if self._plain and any(".".join(path[start:end]) in self._plain for end in ends for start in range(end)):
            return True
        name = ".".join(path)
        return any(pattern.fullmatch(name) for pattern in self._patterns)


def _pattern(entry: str) -> re.Pattern[str]:
    if not entry.startswith("re:"):
        glob = re.escape(entry).replace(r"\*", ".*")
        return re.compile(rf"(?:.*\.)?{glob}(?:\..*)?")
    try:
        return re.compile(f"(?:{entry[3:]}).*", re.DOTALL)
    except re.error as problem:
        raise FieldError(FIELD, entry, f"a regular expression ({problem})") from None


NO_MODULES = Modules(())


@record
class Low:
    """Modules that are stored in a form: `roles` (None for all) of `modules` (None for all)."""

    form: Form
    modules: Modules | None = None
    roles: frozenset[Role] | None = None

    def covers(self, row: Row, path: tuple[str, ...], outer: Role | None) -> bool:
        """Whether a tensor is stored so. Protected ones and towers are only where they are named, in all releases."""
        if self.roles is not None and row.role not in self.roles:
            return False
        return path in self.modules if self.modules is not None else not (row.protected or outer in TOWERS)


@record
class Storage:
    """In which forms a checkpoint stores its tensors.

    `dtype` is that of what is not quantized, `low` what is, the first that covers a weight; modules of `kept` are not.
    `scale_fmt` is `ue8m0` where FP32 block scales are declared to be powers of two.
    """

    dtype: str = "bf16"
    low: tuple[Low, ...] = ()
    kept: Modules = NO_MODULES
    scale_fmt: str | None = None

    def of(self, row: Row, path: tuple[str, ...], outer: Role | None = None) -> Form:
        """The form of one tensor, which may stand in a tower."""
        if self.low and row.contracted:
            module = tuple("0" if word == EXPERT else word for word in path)
            if module not in self.kept:
                for low in self.low:
                    if low.covers(row, module, outer):
                        return low.form
        return Form(row.dtype or self.dtype)

    @property
    def format(self) -> str | None:
        """The format that it stores, `mixed` for several, None for none."""
        return one_format(low.form for low in self.low)


def one_format(forms: Iterable[Form]) -> str | None:
    """The one format of those forms that are quantized, `mixed` for several, None for none."""
    formats = {form.format for form in forms if form.is_quantized}
    return "mixed" if len(formats) > 1 else next(iter(formats), None)


def storage_of(raw: Raw, by_headers: bool = False) -> Storage:
    """What a configuration says about storage; `by_headers`, only what headers do not say. Raises FieldError."""
    dtype = raw.get("torch_dtype") or raw.get("dtype") or "bfloat16"
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FieldError("torch_dtype", dtype, " or ".join(DTYPES))
    shown = raw.get(FIELD)
    if shown is None:
        return Storage(DTYPES[dtype])
    if not isinstance(shown, dict):
        raise FieldError(FIELD, shown, "an object or null")
    if by_headers:
        return Storage(DTYPES[dtype], scale_fmt=_scale_fmt(shown))
    low = _reader(shown)(shown)
    if raw.get("expert_dtype") == "fp4":
        low = (_FP4_EXPERTS, *(replace(each, form=each.form._replace(words=_NATIVE)) for each in low))
    return Storage(DTYPES[dtype], low, Modules(_kept(shown)), _scale_fmt(shown))


_NATIVE = ("weight", "scale")
_FP4_EXPERTS = Low(Form("mxfp4", (1, 32), _NATIVE), roles=frozenset({Role.ROUTED_EXPERTS}))
"""DeepSeek-V4's own release: MXFP4 experts (`expert_dtype`) beside FP8, and `scale` beside every such weight."""


def _reader(shown: Raw) -> Callable[[Raw], tuple[Low, ...]]:
    method = shown.get("quant_method", "modelopt" if "quant_algo" in shown else MISSING)
    for word, read in _READERS.items():
        if isinstance(method, str) and (method == word or method.startswith(f"{word}_")):
            return read
    raise FieldError(f"{FIELD}.quant_method", method, f"{', '.join(_READERS)}, or the model be given unquantized")


# --- one reader a method -----------------------------------------------------------------------------

NVFP4 = Form("nvfp4", (1, 16), ("weight", "weight_scale", "weight_scale_2", "input_scale"))
_FP8_SCALED = ("weight", "weight_scale")
_FP8_STATIC = (*_FP8_SCALED, "input_scale")

_ALGORITHMS = {
    "NVFP4": NVFP4,
    "W4A16_NVFP4": Form("nvfp4", (1, 16)),
    "MXFP8": Form("mxfp8", (1, 32), _FP8_SCALED),
    "FP8": Form("fp8", None, _FP8_STATIC),
    "FP8_PB_WO": Form("fp8", (128, 128), _FP8_SCALED),
    "FP8_BLOCK_SCALES": Form("fp8", (128, 128), _FP8_SCALED),
}
"""ModelOpt's words → how its export stores them."""


def _fp8(shown: Raw) -> tuple[Low, ...]:
    block = shown.get("weight_block_size")
    static = shown.get("activation_scheme") == "static"
    forms = (
        (None, Form("fp8", None, _FP8_STATIC if static else _FP8_SCALED)),
        ([128, 128], Form("fp8", (128, 128))),
        ([1, 32], Form("mxfp8", (1, 32))),
    )
    for known, form in forms:
        if known == block:
            return (Low(form),)
    raise FieldError(f"{FIELD}.weight_block_size", block, "[128, 128], [1, 32] or left out")


def _mxfp8(shown: Raw) -> tuple[Low, ...]:
    return (Low(Form("mxfp8", (1, 32))),)


def _mxfp4(shown: Raw) -> tuple[Low, ...]:
    return (Low(Form("mxfp4", (1, 32)), roles=frozenset({Role.ROUTED_EXPERTS})),)


def _modelopt(shown: Raw) -> tuple[Low, ...]:
    algorithm = str(shown.get("quant_algo") or "").upper()
    if algorithm != "MIXED_PRECISION":
        return (Low(_algorithm(algorithm, f"{FIELD}.quant_algo")),)
    layers = shown.get("quantized_layers")
    if not isinstance(layers, dict) or not layers:
        raise FieldError(f"{FIELD}.quantized_layers", layers, "an object of modules")
    modules: dict[Form, list[str]] = {}
    for name, facts in layers.items():
        said = facts.get("quant_algo") if isinstance(facts, dict) else facts
        modules.setdefault(_algorithm(str(said).upper(), f"{FIELD}.quantized_layers.{name}"), []).append(name)
    return tuple(Low(form, Modules(names)) for form, names in modules.items())


def _algorithm(word: str, field: str) -> Form:
    if word not in _ALGORITHMS:
        raise FieldError(field, word, f"one of {', '.join(_ALGORITHMS)}")
    return _ALGORITHMS[word]


def _compressed(shown: Raw) -> tuple[Low, ...]:
    groups = shown.get("config_groups")
    if not isinstance(groups, dict) or not groups or not all(isinstance(group, dict) for group in groups.values()):
        raise FieldError(f"{FIELD}.config_groups", groups, "an object of groups")
    return tuple(Low(_group_form(name, group), _targets(group)) for name, group in groups.items())


def _targets(group: Raw) -> Modules | None:
    targets = group.get("targets")
    names = [name for name in targets if isinstance(name, str)] if isinstance(targets, list) else []
    return None if not names or "Linear" in names else Modules(names)


def _group_form(name: str, group: Raw) -> Form:
    weights = group.get("weights")
    facts = weights if isinstance(weights, dict) else {}
    key = facts.get("num_bits"), facts.get("type"), facts.get("strategy") or _strategy(facts)
    form = _COMPRESSED.get(key) if all(isinstance(part, str | int) for part in key) else None
    if form is None:
        raise FieldError(f"{FIELD}.config_groups.{name}.weights", weights, "of a format known here")
    if key == (4, "int", "group"):
        form = _integers(form, facts)
    inputs = group.get("input_activations")
    if isinstance(inputs, dict) and inputs.get("dynamic") is False:
        return form._replace(words=(*form.words, *_STATIC.get(form.dtype, ())))
    return form


def _strategy(facts: Raw) -> str:
    return "tensor_group" if facts.get("group_size") == 16 else "group" if facts.get("group_size") else "tensor"


_PACKED = ("weight_packed", "weight_scale")
_COMPRESSED: dict[tuple[Any, Any, Any], Form] = {
    (4, "int", "group"): Form("int4", (1, 32)),
    (4, "int", "channel"): Form("int4", ROW),
    (8, "int", "channel"): Form("int8", ROW),
    (8, "float", "tensor"): Form("fp8", None, _FP8_SCALED),
    (8, "float", "channel"): Form("fp8", ROW, _FP8_SCALED),
    (8, "float", "block"): Form("fp8", (128, 128), _FP8_SCALED),
    (8, "float", "group"): Form("mxfp8", (1, 32), _FP8_SCALED),
    (4, "float", "tensor_group"): Form("nvfp4", (1, 16), (*_PACKED, "weight_global_scale")),
    (4, "float", "group"): Form("mxfp4", (1, 32), _PACKED),
}
"""Bits, element type and strategy → how compressed-tensors packs them."""

_STATIC = {"fp8": ("input_scale",), "nvfp4": ("input_global_scale",)}


def _integers(form: Form, facts: Raw) -> Form:
    words = ("weight_packed", "weight_scale", "weight_shape")
    more = (("weight_zero_point",) if facts.get("symmetric") is False else ()) + (
        ("weight_g_idx",) if facts.get("actorder") else ()
    )
    return Form("int4", (1, _group_size(facts, "config_groups")), (*words, *more) if more else form.words)


def _gptq(shown: Raw) -> tuple[Low, ...]:
    return (Low(_integers_of(shown, ("qweight", "qzeros", "scales", "g_idx"))),)


def _awq(shown: Raw) -> tuple[Low, ...]:
    return (Low(_integers_of(shown, ("qweight", "qzeros", "scales"))),)


def _integers_of(shown: Raw, words: tuple[str, ...]) -> Form:
    if shown.get("bits") != 4:
        raise FieldError(f"{FIELD}.bits", shown.get("bits", MISSING), "4")
    size = _group_size(shown, "")
    return Form("int4", (1, size) if size > 0 else ROW, words)


def _group_size(facts: Raw, where: str) -> int:
    size = facts.get("group_size", 128)
    if size not in (-1, 32, 64, 128):
        raise FieldError(".".join(filter(None, (FIELD, where, "group_size"))), size, "32, 64, 128 or -1")
    return int(size)


_READERS: Mapping[str, Callable[[Raw], tuple[Low, ...]]] = {
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "awq": _awq,
}


def declared(form: Form, kept: Sequence[str]) -> dict[str, Any] | None:
    """The `quantization_config` of a checkpoint that stores its weights in a form, all but the modules `kept`.

    None for a form that no configuration here stands for.
    """
    for known, config, key in _DECLARED:
        if known == form:
            return {**config, key: [*kept]}
    weights = _packed(form)
    if weights is None:
        return None
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": [f"re:.*{re.escape(name)}.*" for name in kept],
    }


def _packed(form: Form) -> dict[str, Any] | None:
    """What compressed-tensors says of weights that it packs in four bits."""
    if form == _COMPRESSED[4, "float", "group"]:
        return {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32}
    if form.dtype == "int4" and not form.words and form.block:
        strategy = {"strategy": "channel"} if form.block == ROW else {"strategy": "group", "group_size": form.block[1]}
        return {"num_bits": 4, "type": "int", "symmetric": True, **strategy}
    return None


_FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_DECLARED: tuple[tuple[Form, Mapping[str, Any], str], ...] = (
    (Form("fp8", (128, 128)), _FP8_BLOCKS, "modules_to_not_convert"),
    (Form("fp8", (128, 128), _NATIVE), _FP8_BLOCKS, "modules_to_not_convert"),
    (Form("mxfp8", (1, 32)), {"quant_method": "mxfp8"}, "modules_to_not_convert"),
    (Form("mxfp4", (1, 32)), {"quant_method": "mxfp4"}, "modules_to_not_convert"),
    *((form, {"quant_method": "modelopt", "quant_algo": word}, "ignore") for word, form in _ALGORITHMS.items()),
)


# --- what all of them say ----------------------------------------------------------------------------


def _scale_fmt(shown: Raw) -> str | None:
    """`ue8m0` where the checkpoint declares its FP32 block scales to be powers of two."""
    declared = shown.get("scale_fmt")
    if declared not in (None, "ue8m0", "float"):
        raise FieldError(f"{FIELD}.scale_fmt", declared, "ue8m0 or float")
    return "ue8m0" if declared == "ue8m0" else None


_KEPT = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")


def _kept(shown: Raw) -> list[str]:
    for key in _KEPT:
        names = shown.get(key)
        if names is not None:
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise FieldError(f"{FIELD}.{key}", names, "a list of module names")
            return names
    return []
