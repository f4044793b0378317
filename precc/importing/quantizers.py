"""ModelOpt's quantizers: the entries of a `quant_cfg` in both of its forms, and the format that attributes are.

The old form is a mapping from wildcards to attributes (`default` for everything, `nn.Linear` above wildcards of one
class); the new one a list of entries with a `quantizer_name`, and a `cfg` or an `enable`. A `cfg` replaces all
attributes of the quantizers that it reaches, an `enable` alone turns them on or off, and the last entry wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cached_property
from typing import Any, NamedTuple

from precc.formats import Decision, FourOverSix, Quantization
from precc.importing import schemes
from precc.importing.schemes import operand, weight
from precc.records import replace

Attributes = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What a quantizer is set to; several mappings for one that rounds several times."""

_EXPERT = re.compile(r"(weight_quantizers?|input_quantizers?)\.\d+(?=$|\.)")


class Entry:
    """One entry: its wildcard, the class that it is for (empty for any), what it sets, and whether it turns on."""

    def __init__(self, name: str, parent: str, cfg: Attributes | None, enable: bool) -> None:
        self.name = name
        self.parent = parent
        self.cfg = cfg
        self.enable = enable

    @property
    def text(self) -> str:
        """The entry as findings show it."""
        return f"{self.name} in {self.parent}" if self.parent else self.name

    @cached_property
    def _match(self) -> re.Pattern[str]:
        return re.compile(translate(self.name))

    def matches(self, quantizer: str, parent: str = "nn.Linear") -> bool:
        """Whether the entry is for a quantizer of a module of some class: `fnmatch`, over the whole name."""
        if self.parent not in ("", parent):
            return False
        return self._match.match(quantizer) is not None or (
            self._match.match(_EXPERT.sub(lambda found: found[1].removesuffix("s"), quantizer)) is not None
        )


def entries(said: object) -> Iterator[Entry]:
    """The entries of a `quant_cfg`, in order. Raises ValueError for what ModelOpt would not take."""
    pairs = [{key: value} for key, value in said.items()] if isinstance(said, dict) else said
    if not isinstance(pairs, list):
        raise ValueError("`quant_cfg` is neither a list of entries nor a mapping from wildcards")
    for raw in pairs:
        if not isinstance(raw, dict):
            raise ValueError(f"`{raw}` is no entry")
        if "quantizer_name" in raw:
            yield _entry(str(raw["quantizer_name"]), str(raw.get("parent_class") or ""), raw.get("cfg"), raw)
        else:
            for key, value in raw.items():
                yield from _legacy(str(key), value)


def _legacy(key: str, value: object) -> Iterator[Entry]:
    """Entries of the old form."""
    if key.startswith("nn."):
        if not isinstance(value, dict):
            raise ValueError(f"`{key}` is no mapping from wildcards")
        for name, attributes in value.items():
            yield _entry(str(name), key, _without_enable(attributes), attributes)
    else:
        yield _entry("*" if key == "default" else key, "", _without_enable(value), value)


def _without_enable(value: object) -> object:
    return ({key: said for key, said in value.items() if key != "enable"} or None) if isinstance(value, dict) else value


def _entry(name: str, parent: str, cfg: object, said: object) -> Entry:
    stated = said.get("enable") if isinstance(said, dict) else None
    parts = cfg if isinstance(cfg, list) else [cfg] if cfg is not None else []
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"`{name}` has a `cfg` that is no mapping")
    if cfg is not None and not any(parts):
        if stated is not False:
            raise ValueError(f"`{name}` has an empty `cfg`")
        cfg = None
    if cfg is None and stated is None:
        raise ValueError(f"`{name}` has neither `cfg` nor `enable`")
    return Entry(name, parent, cfg, stated is not False)  # type: ignore[arg-type]


class Quantizer(NamedTuple):
    """The state of one quantizer: whether it is on, and its attributes (an empty mapping: ModelOpt's, INT8)."""

    enabled: bool
    cfg: Attributes

    def after(self, entry: Entry) -> Quantizer:
        """The state that an entry leaves."""
        return Quantizer(entry.enable, self.cfg if entry.cfg is None else entry.cfg)


# --- formats -----------------------------------------------------------------------------------------

# fmt: off
_IDLE = frozenset((
    "enable", "fake_quant", "calibrator", "trt_high_precision_dtype", "pass_through_bwd", "effective_bits",
    "learn_amax", "narrow_range", "use_constant_amax", "constant_amax", "backend_extra_args",
))
# fmt: on
"""Attributes that decide how a value is chosen or simulated, and not what is stored."""

_READ = frozenset(("num_bits", "axis", "type", "block_sizes"))
_DEFAULT: Mapping[Any, Any] = {"bias": None, "rotate": False, "unsigned": False, "backend": None}


class Unspelled(ValueError):
    """Why attributes have no spelling."""


def weight_format(cfg: Attributes) -> Quantization:
    """The weights that attributes are. Raises Unspelled."""
    return _found(cfg, _WEIGHTS, "weights")


def input_format(cfg: Attributes) -> Quantization:
    """The inputs that attributes are. Raises Unspelled."""
    return _found(cfg, _INPUTS, "inputs")


def is_fp8(cfg: Attributes) -> bool:
    """Whether attributes are per-tensor E4M3, as a KV cache may be. Raises Unspelled."""
    return _kind(cfg, "a KV cache") == _FP8


def _found(cfg: Attributes, table: Mapping[Any, Quantization], side: str) -> Quantization:
    kind = _kind(cfg, side)
    if kind not in table:
        raise Unspelled(f"{side} as `{dict(cfg) if isinstance(cfg, Mapping) else cfg}` have no spelling")
    return table[kind]


def _kind(cfg: Attributes, side: str) -> tuple[Any, ...]:
    """What tells formats apart: bits, axis, blocks, the bits of their scales, whether they come as they are needed."""
    if not isinstance(cfg, Mapping):
        raise Unspelled(f"{side} that are rounded {len(cfg)} times, one format after the other, have no spelling")
    for key in sorted(set(cfg) - _IDLE - _READ):
        if cfg[key] != _DEFAULT.get(key, ...) and not _is_off(cfg[key]):
            why = "zero points" if key == "bias" else f"`{key}`"
            raise Unspelled(f"{why} of {side} (`{key}: {cfg[key]}`) have no spelling")
    blocks = {_axis(key): size for key, size in (cfg.get("block_sizes") or {}).items()}
    is_dynamic = "dynamic" in (cfg.get("type"), blocks.get("type"))
    sizes = tuple(sorted((axis, size) for axis, size in blocks.items() if isinstance(axis, int)))
    scale = _pair(blocks.get("scale_bits"))
    return _pair(cfg.get("num_bits", 8)), cfg.get("axis"), sizes, scale, is_dynamic, bool(blocks.get("four_over_six"))


def _is_off(said: object) -> bool:
    return not said or (isinstance(said, dict) and said.get("enable") is False)


def _axis(key: object) -> object:
    """JSON has no whole numbers for keys."""
    return int(key) if isinstance(key, str) and key.lstrip("-").isdecimal() else key


def _pair(said: object) -> object:
    return tuple(said) if isinstance(said, (list, tuple)) else said


_E4M3, _E2M1, _E8M0 = (4, 3), (2, 1), (8, 0)
_FP8 = (_E4M3, None, (), None, False, False)
_FP8_CHANNEL = (_E4M3, 0, (), None, False, False)
_FP8_BLOCK = (_E4M3, None, ((-2, 128), (-1, 128)), None, False, False)
_TOKEN = (_E4M3, None, ((-1, None),), None, True, False)
_INPUT_BLOCK = (_E4M3, None, ((-1, 128),), None, True, False)


def _blocks(bits: object, size: int, scale: object, is_dynamic: bool, adaptive: bool = False) -> tuple[Any, ...]:
    return bits, None, ((-1, size),), scale, is_dynamic, adaptive


_WEIGHTS: Mapping[Any, Quantization] = {
    _FP8: weight("fp8"),
    _FP8_CHANNEL: weight("fp8", "per_channel"),
    _FP8_BLOCK: weight("fp8_block", scale="fp32"),
    **{_blocks(_E2M1, 16, _E4M3, dynamic): weight("nvfp4") for dynamic in (False, True)},
    _blocks(_E2M1, 16, _E4M3, False, True): replace(weight("nvfp4"), four_over_six=FourOverSix("mse", 256)),
    **{_blocks(_E4M3, 32, _E8M0, dynamic): weight("mxfp8") for dynamic in (False, True)},
    **{_blocks(_E2M1, 32, _E8M0, dynamic): weight("mxfp4") for dynamic in (False, True)},
    **{_blocks(bits, size, None, False): weight(f"int{bits}", group=size) for bits in (4, 8) for size in (32, 64, 128)},
}
"""Four over six is ModelOpt's choice by squared error, with E4M3 scales up to 256."""

_INPUTS: Mapping[Any, Quantization] = {
    _FP8: operand("fp8", "per_tensor", static=True),
    (_E4M3, None, (), None, True, False): operand("fp8", "per_tensor"),
    _TOKEN: operand("fp8", "per_token"),
    _INPUT_BLOCK: operand("fp8_block", scale="fp32"),
    **{_blocks(_E2M1, 16, _E4M3, dynamic): operand("nvfp4", "per_tensor", static=True) for dynamic in (False, True)},
    _blocks(_E4M3, 32, _E8M0, True): operand("mxfp8"),
    _blocks(_E2M1, 32, _E8M0, True): operand("mxfp4"),
}
"""An export stores the outer scale of NVFP4 inputs, whatever comes with each block."""

_TRAINED = (schemes.MXFP8, schemes.FP8_DYNAMIC, schemes.fp8_block("fp32"))


def decision(weights: Quantization, inputs: Quantization | None) -> Decision:
    """The decision of two operands; what no trainer multiplies is served alone."""
    if inputs is None:
        return schemes.served(weights)
    return next((each for each in _TRAINED if (each.weight, each.input) == (weights, inputs)), None) or schemes.served(
        weights, inputs
    )
