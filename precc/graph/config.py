"""From `config.json` to a model graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precc.graph.errors import MISSING, FieldError, ModelError, nearest, or_list, shorten
from precc.graph.families import families
from precc.graph.families.expand import Storage, expand
from precc.graph.families.table import Facts, Family
from precc.graph.model import ModelGraph

MAX_CONFIG_BYTES = 4 * 2**20

_HELP = "Name a model's `config.json`."

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True)
class Description:
    """What a configuration says: the family, its facts, and how weights are stored."""

    family: Family
    architecture: str
    facts: Facts
    storage: Storage

    def graph(self, name: str) -> ModelGraph:
        """The tensors that a regular checkpoint of this model has."""
        return ModelGraph(
            name=name,
            architecture=self.architecture,
            family=self.family.name,
            layers=self.facts["num_hidden_layers"],
            tensors=expand(self.family, self.facts, self.storage),
            config=self.facts,
        )


def read_config(path: Path) -> ModelGraph:
    """The graph of a `config.json`, named after its folder (or after the file, if that has another name)."""
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return describe(load_json(path), str(path)).graph(name)


def load_json(path: Path) -> Mapping[str, object]:
    """The object in a configuration file. Raises ModelError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
        if len(text) > MAX_CONFIG_BYTES:
            raise ModelError(f"{path} is larger than {MAX_CONFIG_BYTES:,} bytes", _HELP)
        raw = json.loads(text)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise ModelError(f"{path} is no JSON that a configuration could be: it is nested too deep") from None
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {shorten(str(error), 120)}") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path} holds no JSON object", _HELP)
    return raw


def describe(raw: Mapping[str, object], source: str, lm_head_stored: bool | None = None) -> Description:
    """What a configuration says, `source` being its file in messages. Raises ModelError.

    No configuration says whether a head that is tied to the embedding is stored beside it; unless told
    otherwise, it is not.
    """
    flat = _flatten(raw)
    try:
        family, architecture = _family(flat, source)
        facts = _facts(family, flat)
        facts["lm_head_stored"] = not facts["tie_word_embeddings"] if lm_head_stored is None else lm_head_stored
        storage = _storage(flat)
    except FieldError as error:
        raise error.at(source) from None
    facts["torch_dtype"] = storage.dtype
    facts["quantization"] = "fp8_block" if storage.fp8_block else None
    if storage.scale_fmt is not None:
        facts["scale_fmt"] = storage.scale_fmt
    return Description(family, architecture, facts, storage)


def _flatten(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The language model's fields on one level; a multimodal wrapper keeps them in `text_config`."""
    text = raw.get("text_config")
    return {**text, **raw} if isinstance(text, dict) else raw


def _family(raw: Mapping[str, object], source: str) -> tuple[Family, str]:
    architectures, model_type = raw.get("architectures"), raw.get("model_type", MISSING)
    if model_type is not MISSING and not isinstance(model_type, str):
        raise FieldError("model_type", model_type, "a text")
    if architectures is None:
        return _by_model_type(model_type, source)
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise FieldError("architectures", architectures, "a list of one name")
    name = architectures[0]
    for family in families():
        if name in family.architectures:
            _check_model_type(family, model_type)
            return family, name
    raise _unknown("architectures", name, _architectures(), source)


def _check_model_type(family: Family, model_type: object) -> None:
    """An unknown model type is a fine-tune's own word; that of another family is a mistake."""
    others = (other for other in families() if other is not family)
    if any(model_type in other.model_types for other in others):
        allowed = f"{or_list(family.model_types)}, as the architecture says"
        raise FieldError("model_type", model_type, allowed)


def _by_model_type(model_type: object, source: str) -> tuple[Family, str]:
    known = {name: family for family in families() for name in family.model_types}
    if model_type is MISSING:
        raise FieldError("architectures", MISSING, f"a list of one of {or_list(_architectures())}")
    if model_type not in known:
        raise _unknown("model_type", str(model_type), sorted(known), source)
    family = known[str(model_type)]
    return family, family.architectures[0]


def _architectures() -> list[str]:
    return sorted(name for family in families() for name in family.architectures)


def _unknown(field: str, name: str, known: list[str], source: str) -> ModelError:
    near = nearest(name, known)
    help = f"Did you mean {or_list(near)}? " if near else ""
    return ModelError(
        f"{source}: `{field}` names `{shorten(name)}`, which is no known model family",
        f"{help}Known are {or_list(known)}.",
    )


def _facts(family: Family, raw: Mapping[str, object]) -> dict[str, Any]:
    facts: dict[str, Any] = {"model_type": raw.get("model_type", family.model_types[0])}
    for field in family.fields:
        facts[field.fact] = field.read(raw, facts)
    facts.update(family.derive(facts))
    return facts


def _storage(raw: Mapping[str, object]) -> Storage:
    dtype = raw.get("torch_dtype") or raw.get("dtype") or "bfloat16"
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise FieldError("torch_dtype", dtype, " or ".join(_DTYPES))
    quantization = raw.get("quantization_config")
    if quantization is None:
        return Storage(_DTYPES[dtype])
    if not isinstance(quantization, dict):
        raise FieldError("quantization_config", quantization, "an object or null")
    return Storage(_DTYPES[dtype], _block(quantization), _kept(quantization), _scale_fmt(quantization))


def _block(quantization: Mapping[str, object]) -> tuple[int, int]:
    method = quantization.get("quant_method", MISSING)
    if method != "fp8":
        raise FieldError("quantization_config.quant_method", method, "fp8, or the model be given unquantized")
    block = quantization.get("weight_block_size", MISSING)
    if block != [128, 128]:
        raise FieldError("quantization_config.weight_block_size", block, "[128, 128]")
    return 128, 128


def _scale_fmt(quantization: Mapping[str, object]) -> str | None:
    """`ue8m0` where the checkpoint declares its FP32 block scales to be powers of two."""
    declared = quantization.get("scale_fmt")
    if declared not in (None, "ue8m0", "float"):
        raise FieldError("quantization_config.scale_fmt", declared, "ue8m0 or float")
    return "ue8m0" if declared == "ue8m0" else None


def _kept(quantization: Mapping[str, object]) -> frozenset[str]:
    kept = quantization.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise FieldError("quantization_config.modules_to_not_convert", kept, "a list of module names")
    return frozenset(kept)
