"""What a quantization config declares, whichever tool wrote it: a format for each module, in the words of a contract.

The grammars of exclusion are those by which SGLang's `fp8`, `mxfp8`, `modelopt` and compressed-tensors configs match a
module; a config of another method is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from precc.graph.model import EXPERT, Tensor
from precc.syntax.words import Role

Config = Mapping[str, Any]

_FUSED = {"qkv": "qkv_proj", "gate_up": "gate_up_proj", "qkv_a": "fused_qkv_a_proj_with_mqa"}
"""What a server calls the module that members of a fused group become."""

ALGORITHMS = {
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "MXFP8": "mxfp8",
    "FP8": "fp8",
    "FP8_PB_WO": "fp8_block",
    "FP8_BLOCK_SCALES": "fp8_block",
}
"""ModelOpt's words → the contract's."""


@dataclass(frozen=True, slots=True)
class Module:
    """The names by which a config can mean the module of a weight: its own, that of the fused module, and that of the
    container for experts."""

    own: str
    fused: str
    container: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.own, self.fused, self.container) if name)


def module_of(tensor: Tensor) -> Module:
    """The names of a tensor's module; a range of experts goes by its first."""
    first = "" if tensor.experts is None else str(tensor.experts.start)
    path = [first if word == EXPERT else word for word in tensor.path]
    parent, last = path[:-1], dict(tensor.fused).get("sglang", "").rpartition(".")[2]
    experts = tensor.role is Role.ROUTED_EXPERTS and "experts" in path
    container = ".".join(path[: path.index("experts") + 1]) if experts else None
    return Module(".".join(path), ".".join([*parent, _FUSED.get(last, path[-1])]), container)


Matcher = Callable[[str, Module], bool]


@dataclass(frozen=True)
class Declared:
    """A config that was read. `format` is that of every module that no entry leaves out; of a mix, `layers` has the
    format of each. `facts` are what else decides numbers, by the config's own words."""

    method: str
    format: str | None
    entries: tuple[str, ...]
    matches: Matcher
    cache: str | None
    facts: Mapping[str, Any]
    layers: Mapping[str, str] | None = None
    named_heads: bool = False

    def format_of(self, module: Module) -> str | None:
        """The format that a module is served in; None for unquantized."""
        if self.layers is not None:
            return self._listed(module)
        return None if any(self.matches(entry, module) for entry in self.entries) else self.format

    def _listed(self, module: Module) -> str | None:
        assert self.layers is not None
        exact = (self.layers[name] for name in module.names if name in self.layers)
        return next(exact, None) or next((f for key, f in self.layers.items() if _below(key, module)), None)


def read_declared(config: Config) -> Declared:
    """This reads the content of `quantization_config`, or of `hf_quant_config.json`. Raises ValueError."""
    flat = {**config, **_object(config.get("quantization"))}
    method = str(flat.get("quant_method") or "modelopt").lower()
    reader = next((read for known, read in _READERS.items() if method.startswith(known)), None)
    if reader is None:
        raise ValueError(f"its method {method!r} is not one that stores a format of the contract")
    return reader(flat, method)


# --- one reader a method ----------------------------------------------------------------------------


def _fp8(config: Config, method: str) -> Declared:
    block = config.get("weight_block_size")
    form = "mxfp8" if method == "mxfp8" or block == [1, 32] else "fp8_block" if block else "fp8"
    return Declared(
        method=method,
        format=form,
        entries=_names(config, "modules_to_not_convert", "ignored_layers"),
        matches=_dotted,
        cache=_cache(config),
        facts={
            "weight_block_size": list(block) if block else [1, 32] if form == "mxfp8" else None,
            "activation_scheme": config.get("activation_scheme", "dynamic"),
            "scale_fmt": config.get("scale_fmt", "ue8m0" if form == "mxfp8" else None),
        },
    )


def _modelopt(config: Config, method: str) -> Declared:
    algorithm = str(config.get("quant_algo") or "").upper()
    layers = _object(config.get("quantized_layers")) if algorithm == "MIXED_PRECISION" else None
    if layers is None and algorithm not in ALGORITHMS:
        raise ValueError(f"its quant_algo {algorithm!r} is not one that stores a format of the contract")
    return Declared(
        method="modelopt",
        format=ALGORITHMS.get(algorithm),
        entries=_names(config, "ignore", "exclude_modules", "modules_to_not_convert"),
        matches=_modelopt_excludes,
        cache=_cache(config),
        facts={"quant_algo": algorithm, "group_size": config.get("group_size", 16)},
        layers=None if layers is None else {key: _algorithm(value) for key, value in layers.items()},
    )


def _algorithm(facts: Any) -> str:
    word = str(_object(facts).get("quant_algo") or "").upper()
    return ALGORITHMS.get(word, word)


def _compressed(config: Config, method: str) -> Declared:
    groups = list(_object(config.get("config_groups")).values())
    if len(groups) != 1 or not isinstance(groups[0], Mapping):
        raise ValueError(f"it has {len(groups)} config_groups: one is read")
    weights, inputs = _object(groups[0].get("weights")), groups[0].get("input_activations")
    return Declared(
        method=method,
        format=_compressed_format(weights),
        entries=_names(config, "ignore"),
        matches=_ignored,
        cache=_cache(config),
        facts={
            "weights": {key: weights.get(key) for key in ("num_bits", "type", "strategy", "group_size", "symmetric")},
            "input_activations": _operand(inputs),
        },
        named_heads=True,
    )


def _compressed_format(weights: Config) -> str:
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    form = _COMPRESSED.get((bits, kind), {}).get(strategy)
    if form is None:
        raise ValueError(f"its weights ({bits} bits, {kind}, {strategy}) are of no format of the contract")
    return form


_COMPRESSED: dict[tuple[Any, Any], dict[Any, str]] = {
    (4, "int"): {"group": "int4"},
    (8, "int"): {"group": "int8", "channel": "int8"},
    (8, "float"): {"channel": "fp8", "tensor": "fp8", "block": "fp8_block", "group": "mxfp8"},
    (4, "float"): {"tensor_group": "nvfp4", "group": "mxfp4"},
}
"""Bits and element type → strategy → format."""


def _operand(facts: Any) -> dict[str, Any] | None:
    if not isinstance(facts, Mapping):
        return None
    return {key: facts.get(key) for key in ("num_bits", "type", "strategy", "dynamic")}


_READERS: dict[str, Callable[[Config, str], Declared]] = {
    "modelopt": _modelopt,
    "nvfp4": _modelopt,
    "fp8": _fp8,
    "mxfp8": _fp8,
    "compressed-tensors": _compressed,
}


def _cache(config: Config) -> str | None:
    scheme = config.get("kv_cache_scheme")
    said = str(config.get("kv_cache_quant_algo") or "").upper()
    return "fp8" if said == "FP8" or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8) else None


def _names(config: Config, *keys: str) -> tuple[str, ...]:
    found = next((config[key] for key in keys if config.get(key)), ())
    if (
        not isinstance(found, Iterable)
        or isinstance(found, str | Mapping)
        or not all(isinstance(n, str) for n in found)
    ):
        raise ValueError(f"its list of what is left out is no list of names: {found!r:.80}")
    return tuple(found)


def _object(value: Any) -> Config:
    return value if isinstance(value, Mapping) else {}


# --- whether an entry means a module ---------------------------------------------------------------


def _run(entry: str, name: str) -> bool:
    """Whether an entry is a run of whole components of a name."""
    return f".{entry.rstrip('.')}." in f".{name}."


def _dotted(entry: str, module: Module) -> bool:
    if module.container is not None:
        return _run(entry, module.container) or ("experts" in entry and module.container in entry)
    return _run(entry, module.own)


_ABSORBED = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""Latent-attention projections: a ModelOpt entry that ends in one means it in every layer."""


def _modelopt_excludes(entry: str, module: Module) -> bool:
    if module.container is not None:
        return _glob(entry, module.container)
    tail = entry.rpartition(".")[2]
    absorbed = tail in _ABSORBED and tail in module.fused.rpartition(".")[2]
    return absorbed or _run(entry, module.own) or _glob(entry, module.own) or _glob(entry, module.fused)


def _glob(entry: str, name: str) -> bool:
    pattern = re.escape(entry).replace(r"\*", ".*")
    return any(re.fullmatch(pattern, part) for part in (name, name.removeprefix("language_model."), *name.split(".")))


def _ignored(entry: str, module: Module) -> bool:
    if entry.startswith("re:"):
        try:
            return re.match(entry[3:], module.own) is not None
        except re.error as problem:
            raise ValueError(f"its entry {entry!r} is no regular expression: {problem}") from None
    return entry in (module.own, module.fused) or module.own.endswith(f".{entry}")


def _below(key: str, module: Module) -> bool:
    return any(key.startswith(f"{name}.") for name in module.names)
