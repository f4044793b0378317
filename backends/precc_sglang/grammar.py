"""The three ways in which SGLang matches a module against a list, as its configs do; and `modelopt_mixed`'s map.

Each answers with the entry that matched, so that a reading can name it. `Disagreement` is the engine's `ValueError`
for members of one fused module that the list treats differently; an entry that is no regular expression raises
`re.error`, as it does there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from precc_sglang.model_class import Packed

FALLBACK: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""The fused modules that the dotted grammar knows without being told."""

ABSORBED_TAILS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""Latent-attention projections: a ModelOpt entry that ends in one excludes it in every layer."""


_Find: TypeAlias = Callable[[str], str | None]


class Disagreement(ValueError):
    """Members of one fused module that would get different methods."""


# --- FP8 and MXFP8 lists, and the first half of ModelOpt's: runs of dotted components ----------------


def dotted(entry: str, name: str) -> bool:
    """Whether an entry is a run of whole components of a name, or the name itself."""
    run, path = entry.rstrip("."), name.rstrip(".")
    return run == path or path.startswith(f"{run}.") or f".{run}." in f".{path}."


def skipped(prefix: str, entries: Sequence[str], packed: Packed) -> str | None:
    """The entry that takes a module out of quantization, by dotted runs on its unfused names. Raises Disagreement."""
    last = prefix.rpartition(".")[2]
    known = packed if last in packed else FALLBACK
    if last in known:
        return _all_or_none(prefix, last, known[last], lambda name: _first_dotted(name, entries))
    found = _first_dotted(prefix, entries)
    if "gate_up_proj" in prefix:
        halves = (prefix.replace("gate_up_proj", "gate_proj"), prefix.replace("gate_up_proj", "up_proj"))
        return found or (halves[0] if all(half in entries for half in halves) else None)
    if found is None and "experts" in prefix:
        return next((entry for entry in entries if "experts" in entry and prefix in entry), None)
    return found


def _first_dotted(name: str, entries: Iterable[str]) -> str | None:
    return next((entry for entry in entries if dotted(entry, name)), None)


def _all_or_none(prefix: str, last: str, parts: Sequence[str], find: _Find) -> str | None:
    found = [find(prefix.replace(last, part)) for part in parts]
    if any(entry is None for entry in found) and any(entry is not None for entry in found):
        apart = ", ".join(
            f"{part} {'listed' if entry else 'not listed'}" for part, entry in zip(parts, found, strict=True)
        )
        raise Disagreement(f"some but not all members of {prefix} are listed: {apart}")
    return found[0]


# --- ModelOpt lists: globs over the whole prefix or one component ------------------------------------


@lru_cache(maxsize=8192)
def _glob(entry: str) -> re.Pattern[str]:
    return re.compile(entry.replace(".", r"\.").replace("*", ".*"))


def excluded(prefix: str, entries: Iterable[str]) -> str | None:
    """The ModelOpt entry that excludes a module. A layer's latent-attention projection excludes every layer's."""
    names = [prefix]
    if prefix.startswith("language_model."):
        names.append(prefix.removeprefix("language_model."))
    candidates = [*names, *(part for name in names for part in name.split("."))]
    last = prefix.rpartition(".")[2]
    for entry in entries:
        pattern = _glob(entry)
        if any(pattern.fullmatch(name) for name in candidates):
            return entry
        tail = entry.rpartition(".")[2]
        if tail in ABSORBED_TAILS and tail in last:
            return entry
    return None


# --- compressed-tensors: exact, dotted suffix (in older versions any part), or a regular expression --


def ignored(prefix: str, entries: Sequence[str], packed: Packed, contained: bool = False) -> str | None:
    """The compressed-tensors entry that leaves a module unquantized. Raises Disagreement.

    `contained` is `Release.ignore_contained`.
    """
    matches = _part_or_regex if contained else _suffix_or_regex
    last = prefix.rpartition(".")[2]

    def first(name: str) -> str | None:
        return next((entry for entry in entries if matches(name, entry)), None)

    if last in packed and prefix not in entries:
        return _all_or_none(prefix, last, packed[last], first)
    return first(prefix)


def _suffix_or_regex(name: str, entry: str) -> bool:
    if entry.startswith("re:"):
        return re.match(entry[3:], name) is not None
    return entry == name or name.endswith(f".{entry}")


def _part_or_regex(name: str, entry: str) -> bool:
    if entry.startswith("re:"):
        return re.match(entry[3:], name) is not None
    return entry.lower() in name.lower()


def target_of(prefix: str, kind: str, targets: Sequence[str], packed: Packed) -> str | None:
    """The compressed-tensors target that covers a module: by name, then by its class, then by all its members."""
    by_name = next((target for target in targets if _exact_or_regex(prefix, target)), None)
    if by_name is not None:
        return by_name
    for target in targets:
        if _exact_or_regex(kind, target) if target.startswith("re:") else target.lower() in kind.lower():
            return target
    fused = next((name for name in packed if prefix.endswith(name)), None)
    if fused is None:
        return None
    found = [
        next((target for target in targets if _exact_or_regex(prefix.replace(fused, part), target)), None)
        for part in packed[fused]
    ]
    return found[0] if all(found) else None


def _exact_or_regex(name: str, target: str) -> bool:
    if target.startswith("re:"):
        return re.match(target[3:], name) is not None
    return target == name


# --- modelopt_mixed: a map of literal names ----------------------------------------------------------


def algorithm_key(
    prefix: str, layers: Mapping[str, Mapping[str, object]], packed: Packed, nested: bool = True
) -> str | None:
    """The key of a `quantized_layers` map that decides for a module.

    The exact key, else the members of the fused module, else the first key below it. A member without a key is no
    objection; members with different algorithms are. Raises Disagreement. `nested` is `Release.nested_names`.
    """
    names = _spellings(prefix, nested)
    exact = next((name for name in names if name in layers), None)
    if exact is not None:
        return exact
    base, _, last = prefix.rpartition(".")
    if last in packed:
        keys = [f"{name}.{part}" for name in _spellings(base, nested) for part in packed[last]]
        found = [key for key in keys if key in layers]
        if len({algorithm(layers[key]) for key in found}) > 1:
            raise Disagreement(
                f"members of {prefix} have different algorithms: "
                + ", ".join(f"{key} {algorithm(layers[key])}" for key in found)
            )
        if found:
            return found[0]
    roots = tuple(f"{name}." for name in names)
    below = [key for key in layers if key.startswith(roots)]
    return next((key for root in roots for key in below if key.startswith(root)), None)


def algorithm(facts: Mapping[str, object]) -> str:
    """The algorithm of one entry of the map, in capitals."""
    return str(facts.get("quant_algo", "")).upper()


def _spellings(prefix: str, nested: bool) -> list[str]:
    names = [prefix]
    if prefix.endswith(".lm_head"):
        names.append("lm_head")
    inner, outer = "language_model.model.", "model.language_model."
    if prefix.startswith(inner):
        names.append(outer + prefix.removeprefix(inner))
    elif prefix.startswith(outer):
        names.append(inner + prefix.removeprefix(outer))
        names += ["model." + prefix.removeprefix(outer)] if nested else []
    elif nested and prefix.startswith("model."):
        names.append(outer + prefix.removeprefix("model."))
    return list(dict.fromkeys(names))
