"""The engine versions that a compile can target, and what changes between them: from the backends' own tables."""

from __future__ import annotations

from collections.abc import Iterator

from generator.tables import table
from precc_sglang import versions as sglang
from precc_te import versions as te


def versions() -> str:
    """A row for each version, newest first, with what the next older one has not, or calls otherwise."""
    rows = [*_megatron(), *_transformer_engine(), *_served()]
    return table(("engine", "version", "what changes with it"), rows)


def _megatron() -> Iterator[tuple[str, str, str]]:
    for version, older in zip(te.MEGATRON_CORE, (*te.MEGATRON_CORE[1:], None), strict=True):
        made = te.MEGATRON[version]
        if older is None:
            fields = _words(made.recipe_fields)
            said = f"a module's recipe has {fields}; an MTP layer calls its inner layer `{made.mtp_inner}`"
        else:
            said = "; ".join(_megatron_changes(made, te.MEGATRON[older])) or f"nothing that a compile writes ({older})"
        yield "Megatron-Core", version, said


def _megatron_changes(made: te.Megatron, before: te.Megatron) -> Iterator[str]:
    if made.recipe_fields - before.recipe_fields:
        yield f"a module's recipe has {_words(made.recipe_fields - before.recipe_fields)} as well"
    if made.mtp_inner != before.mtp_inner:
        yield f"an MTP layer calls its inner layer `{made.mtp_inner}`"


def _transformer_engine() -> Iterator[tuple[str, str, str]]:
    for version in te.TE:
        new = [feature for feature, since in te.SINCE.items() if since == te.release(version)]
        yield "TransformerEngine", version, "; ".join(new) or "nothing that a compile uses"


def _served() -> Iterator[tuple[str, str, str]]:
    for version, older in zip(sglang.SGLANG, (*sglang.SGLANG[1:], None), strict=True):
        news = [] if older is None else _sglang_changes(sglang.RELEASES[version], sglang.RELEASES[older])
        yield "SGLang", version, "; ".join(news) or "the oldest that is modelled"
    for number, version in enumerate(sglang.FLASHINFER):
        oldest = number == len(sglang.FLASHINFER) - 1
        yield "FlashInfer", version, "the oldest that is modelled" if oldest else "nothing that a compile uses"


def _sglang_changes(made: sglang.Release, before: sglang.Release) -> Iterator[str]:
    if made.mixed - before.mixed:
        yield f"a mix of formats knows {_words(made.mixed - before.mixed)} as well"
    if made.modelopt_fp4 - before.modelopt_fp4:
        yield f"{_words(made.modelopt_fp4 - before.modelopt_fp4)} needs no mix"
    if made.scalar_shared_experts > before.scalar_shared_experts:
        yield "shared experts in static per-tensor FP8 start"
    if made.declared_scales > before.declared_scales:
        yield "on Hopper dense block-FP8 inputs have the scales that the config declares"
    if made.ignore_contained < before.ignore_contained:
        yield "a compressed-tensors entry ignores no module for a part of its name"
    if made.attention_dp != before.attention_dp:
        yield f"attention data parallelism is `{made.attention_dp}`, no longer `{before.attention_dp}`"
    if set(before.variables) - set(made.variables):
        yield f"{_words(frozenset(before.variables) - {*made.variables})} decide nothing any more"


def _words(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
