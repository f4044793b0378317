"""The sentences and rows of a case can fail: what does not hold is an assertion."""

from __future__ import annotations

from pathlib import Path

import pytest
from field.cases import Case, Row, read_cases
from field.checking import check_compiled, check_row
from field.expectations import SENTENCES, read_expectation
from field.judging import check_agreement
from field.outcome import Outcome, outcome_of

from precc.backend import Judgement

COMPILES = "default: mxfp8\no_proj: bf16\n"
REFUSED = "default: mxfp8\n\nq_proj: bf16\nkv_bproj: bf16\n"

TEXT = """\
How to add a case.

## 1 · a title

In words.

- seen in: somewhere#1
- model: {model}

```prec
{policy}```

- no P104
"""


def case_of(policy: str, folder: Path, model: str = "qwen3-30b-a3b with 2 layers") -> Case:
    """The one case of a file."""
    path = folder / "a.md"
    path.write_text(TEXT.format(policy=policy, model=model), encoding="utf-8")
    (case,) = read_cases(path)
    return case


def outcome(policy: str, folder: Path) -> Outcome:
    """What comes of a policy on a small model."""
    return outcome_of(case_of(policy, folder))


FALSE = {
    "P302 at line 3": (REFUSED, "P201 at line 2", "P102 at line 3", 'P201 at line 3, which says "v_proj is best"'),
    "P701 at line 1 for sglang": (REFUSED, "P201 at line 3 for converter", "P102 at line 4 for sglang"),
    "no findings": (REFUSED, "no findings"),
    "no P104": (REFUSED, "no P201"),
    "te/megatron.args has `--bf16`": (COMPILES, "te/megatron.args has `--fp4-format`", "te/none.args has `--bf16`"),
    "te/megatron.args has no `--fp8-format`": (COMPILES, "te/megatron.args has no `--fp8-format e4m3`"),
    "te/env.sh is written": (COMPILES, "te/with_stage_recipe.sh is written"),
    "te/env.sh is not written": (COMPILES, "te/env.sh is not written"),
    "te/env.sh has at most 40 lines": (COMPILES, "te/env.sh has at most 3 lines"),
    "te/env.sh names the contract": (COMPILES, "te/megatron.args names the contract"),
    'written all the same, sglang says "would never read"': (COMPILES, 'written all the same, sglang says "no"'),
    'the model cannot be read: "no known model family"': (COMPILES, 'the model cannot be read: "no known"'),
}
"""For each sentence a policy, and what does not hold of it."""


def test_each_sentence_is_shown_to_fail() -> None:
    """None was left out."""
    assert set(FALSE) == set(SENTENCES)


@pytest.mark.parametrize("form", FALSE)
def test_a_sentence_that_does_not_hold_fails(form: str, tmp_path: Path) -> None:
    """Each for its own reason."""
    policy, *sentences = FALSE[form]
    made = outcome(policy, tmp_path)
    for sentence in sentences:
        expectation = read_expectation(sentence)
        assert expectation is not None
        assert expectation.form == form
        with pytest.raises(AssertionError):
            expectation.check(made, expectation.words)


@pytest.mark.parametrize(
    "column, cell", [("decision", "mxfp8"), ("te", "mxfp8"), ("sglang", "mxfp8"), ("converter", "m")]
)
def test_a_row_that_does_not_hold_fails(column: str, cell: str, tmp_path: Path) -> None:
    """A decision word for word, and the beginning of what a side says."""
    with pytest.raises(AssertionError):
        check_row(outcome(COMPILES, tmp_path), Row("model.layers.0.self_attn.o_proj", {column: cell}))


def test_a_finding_that_is_not_expected_fails(tmp_path: Path) -> None:
    """The case expects only that P104 is not found, which holds."""
    with pytest.raises(AssertionError, match="P201 at line 3"):
        check_compiled(case_of(REFUSED.replace("kv_bproj: bf16\n", ""), tmp_path))


def test_a_model_that_cannot_be_read_fails_unless_it_is_expected(tmp_path: Path) -> None:
    """A misspelt model is no model without findings."""
    with pytest.raises(AssertionError, match="neither a known model nor a file"):
        check_compiled(case_of(COMPILES, tmp_path, model="qwen3-30b-a3c"))


@pytest.mark.parametrize("tensors, agree", [(0, 0), (2, 1)])
def test_an_engine_that_was_asked_nothing_or_differs_fails(tensors: int, agree: int) -> None:
    """A judgement without tensors is none."""
    with pytest.raises(AssertionError):
        check_agreement(Judgement({"sglang": "0.5.23"}, tensors, agree, (), ("it was built",)))
