"""From `config.json` to a model graph."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precc.graph.errors import MISSING, FieldError, ModelError, nearest, or_list, shorten
from precc.graph.families import families
from precc.graph.families.expand import expand
from precc.graph.families.table import Facts, Family
from precc.graph.model import ModelGraph
from precc.graph.shards import check_file
from precc.graph.storage import FIELD, Storage, storage_of
from precc.records import record

MAX_CONFIG_BYTES = 4 * 2**20

_HELP = "Name a model's `config.json`."

LEGACY = "hf_quant_config.json"
"""Where ModelOpt says how weights are stored, beside a `config.json` that may not."""

TEXT = "text_config"
"""The section of a multimodal wrapper that holds the language model's fields."""

TOWERS = ("vision_config",)
"""Its other sections that fields are read from."""

INNER = (
    *("sparse_attention_config", "linear_attn_config", "attention_other_setting"),
    "vision_config.img_token_compression_config",
)
"""Sections of the language model, and of a tower, that fields are read from."""


@record
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
    if path.name == "config.json":
        check_file(path, path.parent)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return describe(_with_quantization(load_json(path), path), str(path)).graph(name)


def _with_quantization(raw: Mapping[str, object], path: Path) -> Mapping[str, object]:
    """The configuration with what `hf_quant_config.json` beside it says, where it does not say that itself."""
    beside = path.with_name(LEGACY)
    if path.name != "config.json" or FIELD in _flatten(raw) or not os.path.lexists(beside):
        return raw
    check_file(beside, path.parent)
    shown = load_json(beside).get("quantization")
    return {**raw, FIELD: {"quant_method": "modelopt", **shown}} if isinstance(shown, dict) else raw


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


def describe(
    raw: Mapping[str, object], source: str, lm_head_stored: bool | None = None, by_headers: bool = False
) -> Description:
    """What a configuration says, `source` being its file in messages. Raises ModelError.

    No configuration says whether a head that is tied to the embedding is stored beside it; unless told
    otherwise, it is not. Where `by_headers` is set, how weights are stored is not taken from the configuration.
    """
    flat = _flatten(raw)
    try:
        family, architecture = _family(flat, source)
        facts = _facts(family, flat)
        facts["lm_head_stored"] = not facts["tie_word_embeddings"] if lm_head_stored is None else lm_head_stored
        storage = storage_of(flat, by_headers)
    except FieldError as error:
        raise error.at(source) from None
    facts["torch_dtype"] = storage.dtype
    facts["quantization"] = storage.format
    if storage.scale_fmt is not None:
        facts["scale_fmt"] = storage.scale_fmt
    return Description(family, architecture, facts, storage)


def _flatten(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The language model's fields on one level; a multimodal wrapper keeps them in `text_config`.

    Those of a tower stay under its section: `vision_config.depth`; so do those of other sections.
    """
    text = raw.get(TEXT)
    found: dict[str, object] = {**text, **raw} if isinstance(text, dict) else dict(raw)
    for section in (*TOWERS, *INNER):
        inner = found.get(section)
        found |= {f"{section}.{key}": value for key, value in inner.items()} if isinstance(inner, dict) else {}
    return found


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
    near = _near(name, known)
    help = f"Did you mean {or_list(near)}? " if near else ""
    return ModelError(
        f"{source}: `{field}` names `{shorten(name)}`, which is no known model family",
        f"{help}Known are {or_list(known)}.",
    )


_ENDINGS = re.compile(r"(?:For[A-Z]\w*|LMHeadModel|_text|_moe)$")
"""What many names end in, and what says nothing about the family."""


def _near(name: str, known: list[str]) -> list[str]:
    """The known names most like one, as far as they differ from all others."""
    stems = {other: _ENDINGS.sub("", other) for other in known}
    near = nearest(_ENDINGS.sub("", name), dict.fromkeys(stems.values()))
    return [other for stem in near for other in known if stems[other] == stem]


def _facts(family: Family, raw: Mapping[str, object]) -> dict[str, Any]:
    facts: dict[str, Any] = {"model_type": raw.get("model_type", family.model_types[0])}
    for field in family.fields:
        facts[field.fact] = field.read(raw, facts)
    facts.update(family.derive(facts))
    return facts
