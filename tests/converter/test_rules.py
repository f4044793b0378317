"""What the converter refuses, with the rule, the tensor, the count and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from converter.contracts import TWO_LINES, compiled, decided

from precc import rules
from precc.backend import Unsupported
from precc.contract import Cause, Entry
from precc.diagnostics import Diagnostic
from precc.formats import Decision, Quantization
from precc.graph.forms import Form
from precc.source import SourceFile
from precc_converter import backend

SOURCE = SourceFile("p.prec", "@routed_experts: weight int8\n")
CAUSE = Cause("p.prec", 1, SOURCE.text.strip(), SOURCE.span(0, 28))
BF16 = Quantization("bf16")


def _experts(change: Callable[[Entry], Entry]) -> list[Diagnostic]:
    def routed(entry: Entry) -> Entry:
        return replace(change(entry), cause=CAUSE, clauses=()) if entry.tensor.experts else entry

    contract = decided(compiled(TWO_LINES, "qwen3-30b-a3b"), routed)
    return list(rules.check_backend(backend.rules, contract))


def _weights(weight: Quantization, operand: Quantization = BF16) -> Callable[[Entry], Entry]:
    return lambda entry: replace(entry, decision=Decision(weight, operand))


def _stored(dtype: str, block: tuple[int, int] | None, *words: str) -> Callable[[Entry], Entry]:
    return lambda entry: replace(entry, tensor=replace(entry.tensor, form=Form(dtype, block, words)))


REFUSED: dict[str, tuple[Callable[[Entry], Entry], str]] = {
    "int8": (_weights(Quantization("int8", (1, 128), "bf16")), "cannot write int8 weights"),
    "mxfp4": (_weights(Quantization("mxfp4", (1, 32), "e8m0")), "cannot write mxfp4 weights"),
    "static inputs": (
        _weights(Quantization("fp8", scope="per_tensor"), Quantization("fp8", scope="per_tensor", static=True)),
        "has no input scale to store",
    ),
    "stacked experts": (
        lambda entry: replace(entry, tensor=replace(entry.tensor, parameter="")),
        "parameter that is not named `weight`",
    ),
    "a source packed by GPTQ": (
        _stored("int4", (1, 128), "qweight", "qzeros", "scales", "g_idx"),
        "cannot read weights stored as int4 in 1×128 blocks, as `qweight`, `qzeros`, `scales` and `g_idx`",
    ),
    "a source in other blocks": (_stored("fp8", (1, 32)), "cannot read weights stored as fp8 in 1×32 blocks"),
    "a source that ends within a group": (_stored("int4", (1, 640)), "cannot read weights stored as int4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_or_read_is_one_p701(case: str) -> None:
    """At the rule that decided it, for all tensors at once."""
    change, said = REFUSED[case]
    (finding,) = _experts(change)
    assert (finding.code, finding.span) == ("P701", CAUSE.span)
    assert f"the converter {said}" in finding.message or said in finding.message
    assert "`model.layers.{0..47}.mlp.experts.{0..127}.{down,gate,up}_proj` (18,432 tensors)" in finding.message
    assert finding.help


def test_a_contract_that_can_be_written_has_no_findings() -> None:
    """The rules are silent about what the converter does."""
    for model in ("qwen3-30b-a3b", "deepseek-v3"):
        assert list(rules.check_backend(backend.rules, compiled(TWO_LINES, model))) == []


def test_emitting_a_refused_format_raises_instead_of_writing_it() -> None:
    """Even where nobody ran the rules first."""
    contract = decided(
        compiled(TWO_LINES, "qwen3-30b-a3b"),
        lambda e: _weights(Quantization("int8", (1, 128), "bf16"))(e) if e.tensor.experts else e,
    )
    with pytest.raises(Unsupported, match="int8"):
        backend.emit(contract)


def test_every_rule_has_a_page() -> None:
    """A title, the reason, and what to write or give instead."""
    for rule in rules.modules(backend.rules):
        title, *paragraphs = (rule.__doc__ or "").strip().split("\n\n")
        assert title.endswith(".")
        assert "\n" not in title
        assert len(paragraphs) >= 2
        assert rule.NAME.startswith("converter-")
