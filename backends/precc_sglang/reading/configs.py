"""SGLang's config classes, as far as they choose a method for a module: one class each, from the same JSON.

Every answer is the method's name and the entry of the file that said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from precc.records import record
from precc_sglang.config import EXPERTS_KEY, IN_MXFP4, NVFP4_KEY
from precc_sglang.families import (
    FP8_BLOCK,
    FP8_TENSOR,
    MXFP4_WEIGHTS,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_WEIGHTS,
    UNQUANTIZED,
    Family,
)
from precc_sglang.grammar import algorithm, algorithm_key, excluded, ignored, skipped, target_of
from precc_sglang.methods import HYBRID, MIXED
from precc_sglang.model_class import ModelClass, Packed
from precc_sglang.names import Kind, Module
from precc_sglang.paths import CONFIG_PATH
from precc_sglang.reading.routing import Route
from precc_sglang.reading.schemes import scheme_of
from precc_sglang.reading.words import check_words, declared_cache
from precc_sglang.refusal import unreadable
from precc_sglang.versions import Release


class Answer(NamedTuple):
    """The method that a config gives a module, and why."""

    method: str
    because: str


class Config(Protocol):
    """One config class: it answers for modules that ask."""

    @property
    def cache(self) -> str | None:
        """The KV cache that the file declares; None where it cannot."""

    def method_of(self, module: Module) -> Answer:
        """The method of a module, with the entry that decides. Raises Disagreement, `re.error`."""


@record
class Unquantized:
    """No quantization config at all."""

    path: str
    cache: str | None = None

    def method_of(self, module: Module) -> Answer:
        return Answer(UNQUANTIZED.name, f"{self.path} holds no config")


@record
class Fp8:
    """`fp8` and `mxfp8`: everything that is not listed; an LM head never."""

    method: str
    key: str
    entries: tuple[str, ...]
    packed: Packed
    path: str
    cache: str | None
    pow2: bool
    four_bits: tuple[str, ...] | None = None
    """The list of expert layers that are not in NVFP4 after all; None where none is in NVFP4."""
    unsaid: bool = False
    """Whether what the experts are stored in is left to the headers of the checkpoint."""
    mxfp4: bool = False
    """Whether the experts are stored in MXFP4, those in NVFP4 left aside."""

    def method_of(self, module: Module) -> Answer:
        if module.kind is Kind.HEAD:
            return Answer(UNQUANTIZED.name, "this method never quantizes an LM head")
        if module.kind is Kind.EXPERTS and self.four_bits is not None and not module.draft:
            entry = excluded(module.prefix, self.four_bits)
            if entry is None:
                return Answer(NVFP4_STATIC.name, f"{self.path}, {NVFP4_KEY}")
        entry = skipped(module.prefix, self.entries, self.packed)
        if entry is None and module.kind is Kind.EXPERTS and self.mxfp4:
            return Answer(MXFP4_WEIGHTS.name, f"{self.path}, {EXPERTS_KEY}")
        if entry is None and module.kind is Kind.EXPERTS and self.unsaid:
            return Answer(f"{self.method} or mxfp4", f"{self.path}, which has no {EXPERTS_KEY}: the headers decide")
        if entry is None:
            return Answer(self.method, f"{self.path}, whose {self.key} does not list {module.prefix}")
        return Answer(UNQUANTIZED.name, f"{self.path}, {self.key} {entry!r}")


@record
class ModelOpt:
    """`modelopt_fp8` and `modelopt_fp4`: everything that is not excluded, an LM head too."""

    method: str
    entries: tuple[str, ...]
    packed: Packed
    path: str
    cache: str | None

    def method_of(self, module: Module) -> Answer:
        entry = None
        if module.kind is not Kind.EXPERTS:
            entry = skipped(module.prefix, self.entries, self.packed)
        entry = entry if entry is not None else excluded(module.prefix, self.entries)
        if entry is None:
            return Answer(self.method, f"{self.path}, whose ignore does not list {module.prefix}")
        return Answer(UNQUANTIZED.name, f"{self.path}, ignore {entry!r}")


_ALGORITHMS = {
    "MXFP8": MXFP8.name,
    "FP8": FP8_TENSOR.name,
    "FP8_PB_WO": FP8_BLOCK.name,
    "FP8_BLOCK_SCALES": FP8_BLOCK.name,
    "NVFP4": NVFP4_STATIC.name,
    "W4A16_NVFP4": NVFP4_WEIGHTS.name,
}


@record
class Mixed:
    """`modelopt_mixed`: a literal map of modules; what it does not know, or knows under an unknown word, is BF16."""

    layers: Mapping[str, Mapping[str, Any]]
    entries: tuple[str, ...]
    packed: Packed
    path: str
    cache: str | None
    release: Release

    def method_of(self, module: Module) -> Answer:
        key = algorithm_key(module.prefix, self.layers, self.packed, self.release.nested_names)
        entry = None
        if module.kind is not Kind.EXPERTS:
            entry = skipped(module.prefix, self.entries, self.packed)
        entry = entry if entry is not None else excluded(module.prefix, self.entries)
        if entry is not None:
            return Answer(UNQUANTIZED.name, f"{self.path}, ignore {entry!r}")
        if key is None:
            return Answer(UNQUANTIZED.name, f"{self.path}, whose quantized_layers has no {module.prefix}")
        algo = algorithm(self.layers[key])
        method = _ALGORITHMS[algo] if algo in self.release.mixed else UNQUANTIZED.name
        return Answer(method, f"{self.path}, quantized_layers {key!r} {algo}")


@record
class Compressed:
    """`compressed-tensors`: targets by name or class, minus what is ignored; an LM head only if a target names it."""

    targets: Mapping[str, str]
    entries: tuple[str, ...]
    packed: Packed
    path: str
    cache: str | None
    contained: bool = False

    def method_of(self, module: Module) -> Answer:
        if module.kind is Kind.HEAD:
            return Answer(UNQUANTIZED.name, "no target names the LM head")
        packed = MXFP4_WEIGHTS.name in self.targets.values()
        if module.kind is Kind.EXPERTS and packed:
            return Answer(MXFP4_WEIGHTS.name, f"{self.path}, whose format takes every expert layer")
        if module.kind is Kind.EXPERTS:
            names = [f"{module.prefix}.0.{part}_proj" for part in ("gate", "up", "down")]
            answers = [self._one(name, "FusedMoE") for name in names]
            if len({answer.method for answer in answers}) > 1:
                raise unreadable(f"the projections of {module.prefix} have different schemes in {self.path}")
            return answers[0]
        return self._one(module.prefix, "Linear")

    def _one(self, name: str, kind: str) -> Answer:
        entry = ignored(name, self.entries, self.packed, self.contained)
        if entry is not None:
            return Answer(UNQUANTIZED.name, f"{self.path}, ignore {entry!r}")
        targets = self._targets(kind)
        target = target_of(name, kind, list(targets), self.packed)
        if target is None:
            raise unreadable(f"no target of {self.path} covers {name}, and nothing ignores it")
        if targets[target] == MXFP4_WEIGHTS.name:
            raise unreadable(f"{self.path} declares MXFP4, which SGLang has for expert layers only: {name}")
        return Answer(targets[target], f"{self.path}, target {target!r}")

    def _targets(self, kind: str) -> Mapping[str, str]:
        if kind == "FusedMoE" and "Linear" in self.targets and "FusedMoE" not in self.targets:
            return {**self.targets, "FusedMoE": self.targets["Linear"]}
        return self.targets


@record
class Int4Fp8:
    """`w4afp8`: INT4 experts and block-FP8 layers; it reads no list at all."""

    path: str
    cache: str | None = None

    def method_of(self, module: Module) -> Answer:
        methods = {Kind.EXPERTS: "int4 with fp8 inputs", Kind.LINEAR: FP8_BLOCK.name}
        return Answer(methods.get(module.kind, UNQUANTIZED.name), f"{self.path}, which SGLang takes for w4afp8")


@record
class Mxfp4:
    """`mxfp4`: every expert layer, whatever the list says; a linear layer that asks ends the start."""

    path: str
    cache: str | None = None

    def method_of(self, module: Module) -> Answer:
        if module.kind is not Kind.EXPERTS:
            raise unreadable(f"{self.path} declares mxfp4, which SGLang has for expert layers only: {module.prefix}")
        return Answer(MXFP4_WEIGHTS.name, f"{self.path}, whose method takes every expert layer")


@record
class Online:
    """A method without a config of its own: it quantizes a checkpoint while loading it."""

    method: str
    path: str
    cache: str | None = None

    def method_of(self, module: Module) -> Answer:
        return Answer(self.method, f"{self.path}: the checkpoint is quantized while it is loaded")


# --- reading them from JSON --------------------------------------------------------------------------


@record
class Reader:
    """What a version and a model class add to a config: what the class fuses, what it does to names,
    `SGLANG_FP8_IGNORED_LAYERS`, and the one substring that a draft class replaces in the names."""

    release: Release
    built: ModelClass
    fp8_ignored: Sequence[str] = ()
    rename: tuple[str, str] | None = None

    @property
    def packed(self) -> Packed:
        return self.built.packed

    def name(self, word: str) -> str:
        """A name of the config as the class has it."""
        return self.built.renamed(word.replace(*self.rename, 1) if self.rename else word)

    def names(self, words: Iterable[str]) -> tuple[str, ...]:
        """The names of a list."""
        return tuple(map(self.name, words))

    def excluded(self, words: Iterable[str]) -> tuple[str, ...]:
        """The names of a ModelOpt list, of which a class that renames them keeps the inner ones, too."""
        inner = [word.removeprefix("language_model.") for word in self.names(words)] if any(self.built.mapper) else []
        return tuple(dict.fromkeys((*self.names(words), *inner)))


def config_of(found: Route, reader: Reader) -> Config:
    """This builds the config class that a route leads to. Raises Unsupported for one that is not modelled."""
    if found.method == "":
        return Unquantized(found.path)
    if found.method.endswith(" online"):
        return Online(found.method, found.path)
    build = _BUILDERS.get(found.method)
    if build is None:
        raise unreadable(f"{found.path} declares the method {found.method}, which precc does not read")
    check_words(found, reader.built.fp8_beside_fp4 and found.method in ("fp8", "mxfp8"))
    return build(found, reader)


def _fp8(found: Route, reader: Reader) -> Config:
    config, mx = found.config, found.method == "mxfp8"
    if "activation_scheme" not in config:
        raise unreadable(f"{found.path} lacks `activation_scheme`, without which SGLang does not start")
    key = "ignored_layers" if "ignored_layers" in config else "modules_to_not_convert"
    bare = [entry.removeprefix("model.") for entry in _strings(config.get(key), found, key)]
    entries = [name for entry in bare for name in (entry, f"model.{entry}")]
    family, own = (MXFP8, [1, 32]) if mx else (FP8_BLOCK, [128, 128])
    block = config.get("weight_block_size", own if mx else None)
    method = family.name if block == own else f"{found.method} in blocks of {block}"
    names = reader.names((*entries, *reader.fp8_ignored))
    pow2 = "scale_fmt" in config
    hybrid = (
        config.get("quant_algo") == HYBRID.quant_algo and config.get(NVFP4_KEY) == "NVFP4" and "group_size" in config
    )
    four_bits = reader.names(_strings(config.get("ignore"), found, "ignore")) if hybrid else None
    said = config.get(EXPERTS_KEY) if reader.built.fp8_beside_fp4 else "fp8"
    unsaid, mxfp4 = said not in ("fp8", IN_MXFP4), said == IN_MXFP4
    cache = declared_cache(config)
    return Fp8(method, key, names, reader.packed, found.path, cache, pow2, four_bits, unsaid, mxfp4)


def _modelopt(found: Route, reader: Reader) -> Config:
    config = found.config
    algo = str(config.get("quant_algo"))
    family = _modelopt_family(found.method, algo, reader.release)
    if family is None:
        raise unreadable(f"{found.path} has quant_algo {algo}, which {found.method} does not know")
    listed: object = next((config[key] for key in _list_keys(found, reader.release) if key in config), [])
    if listed is None and family is not FP8_TENSOR:
        raise unreadable(f"`ignore` of {found.path} is null, with which SGLang does not start")
    entries = reader.excluded(_strings(listed, found, "ignore"))
    return ModelOpt(family.name, entries, reader.packed, found.path, declared_cache(config))


def _modelopt_family(method: str, algo: str, release: Release) -> Family | None:
    """What an algorithm means to a ModelOpt method: some versions take any word with `FP8` in it for static FP8."""
    if algo == "FP8" or (method == "modelopt_fp8" and release.algorithm_parts and "FP8" in algo):
        return FP8_TENSOR
    return _FP4_ALGORITHMS[algo] if algo in release.modelopt_fp4 else None


_FP4_ALGORITHMS = {"NVFP4": NVFP4_STATIC, "W4A16_NVFP4": NVFP4_WEIGHTS}


def _list_keys(found: Route, release: Release) -> tuple[str, ...]:
    """The keys of a ModelOpt list, by the file that it stands in."""
    return release.ignore_keys if found.path == CONFIG_PATH else release.legacy_ignore_keys


def _mixed(found: Route, reader: Reader) -> Config:
    config = found.config
    if config.get("quant_algo") != MIXED.quant_algo:
        raise unreadable(f"{found.path} has quant_algo {config.get('quant_algo')}, with which SGLang does not start")
    layers = config.get("quantized_layers")
    if not isinstance(layers, dict) or not layers or not all(isinstance(facts, dict) for facts in layers.values()):
        raise unreadable(f"{found.path} needs a non-empty `quantized_layers` map")
    listed = next((config[key] for key in _mixed_keys(found, reader.release) if key in config), None)
    entries = reader.excluded(_strings(listed, found, "ignore"))
    named = {reader.name(key): facts for key, facts in layers.items()}
    return Mixed(named, entries, reader.packed, found.path, declared_cache(config), reader.release)


def _mixed_keys(found: Route, release: Release) -> Iterator[str]:
    return (key for key in _list_keys(found, release) if key != "modules_to_not_convert")


def _compressed(found: Route, reader: Reader) -> Config:
    config, targets = found.config, {}
    for group in dict(config.get("config_groups") or {}).values():
        scheme = scheme_of(group, str(group.get("format") or config.get("format")))
        targets.update(dict.fromkeys(reader.names(_strings(group.get("targets"), found, "targets")), scheme))
    entries = reader.names(_strings(config.get("ignore"), found, "ignore"))
    contained = reader.release.ignore_contained
    return Compressed(targets, entries, reader.packed, found.path, declared_cache(config), contained)


def _mxfp4(found: Route, reader: Reader) -> Config:
    _strings(found.config.get("modules_to_not_convert"), found, "modules_to_not_convert")
    return Mxfp4(found.path)


def _int4_fp8(found: Route, reader: Reader) -> Config:
    return Int4Fp8(found.path)


_BUILDERS = {
    "fp8": _fp8,
    "mxfp8": _fp8,
    "modelopt_fp8": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _mixed,
    "compressed-tensors": _compressed,
    "w4afp8": _int4_fp8,
    "mxfp4": _mxfp4,
}


def _strings(listed: object, found: Route, key: str) -> tuple[str, ...]:
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise unreadable(f"`{key}` of {found.path} is no list of names")
    return tuple(listed)
