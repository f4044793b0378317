"""A case file that means nothing is an error with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from field.cases import Case, CaseError, read_cases

CASE = """\
# A file

How to add a case.

## D4 · what went wrong

In words.

- seen in: somewhere#1
- model: qwen3-30b-a3b

```prec
default: mxfp8
```

| tensor | decision |
| --- | --- |
| `lm_head` | bf16 |

- no findings
"""


def read(text: str, folder: Path) -> list[Case]:
    """The cases of a file with this text."""
    path = folder / "a.md"
    path.write_text(text, encoding="utf-8")
    return read_cases(path)


def test_a_whole_case_is_read(tmp_path: Path) -> None:
    """Heading, list, policy, table and sentences."""
    (case,) = read(CASE, tmp_path)
    assert (case.numbers, case.title, case.place) == (("D4",), "what went wrong", "a.md:5")
    assert (case.facts["model"], case.policy) == ("qwen3-30b-a3b", "default: mxfp8\n")
    assert (case.rows[0].tensor, dict(case.rows[0].cells)) == ("lm_head", {"decision": "bf16"})
    assert [expectation.text for expectation in case.expectations] == ["no findings"]


MISTAKES = {
    "a heading without a number": ("## D4 · what went wrong", "## what went wrong", ":5: a heading is"),
    "no words": ("In words.\n", "", "does not say in words"),
    "an unknown word": ("- model: qwen3-30b-a3b", "- modle: qwen3-30b-a3b", ":10: before the policy"),
    "a word twice": ("- seen in: somewhere#1", "- model: qwen3-8b", ":10: `model` stands twice"),
    "no source": ("- seen in: somewhere#1\n", "", "`- seen in: …`"),
    "no model": ("- model: qwen3-30b-a3b\n", "", "`- model: …`"),
    "a layout that is none": ("- seen in", "- train: pp\n- seen in", "words such as `tp=2`"),
    "an unknown engine": ("- seen in", "- engine: vllm\n- seen in", "no engine judges `vllm`"),
    "a block of another language": ("```prec", "```yaml", "not ```yaml"),
    "a block that does not end": ("default: mxfp8\n```", "default: mxfp8", "does not end"),
    "no policy": ("```prec\ndefault: mxfp8\n```\n", "", "has no policy"),
    "a config.json for a model with a name": (
        "default: mxfp8\n```",
        "default: mxfp8\n```\n\n```json\n{}\n```",
        "together",
    ),
    "a model with other words": ("- model: qwen3-30b-a3b", "- model: qwen3-30b-a3b small", "`NAME with 8 layers`"),
    "no config.json": ("- model: qwen3-30b-a3b", "- model: this config.json", "go together"),
    "an unknown column": ("| tensor | decision |", "| tensor | decison |", ":16: a table's columns"),
    "a table without its second line": ("| --- | --- |\n", "", "the second line of a table"),
    "a row that is too long": ("| `lm_head` | bf16 |", "| `lm_head` | bf16 | bf16 |", ":18: this line of the table"),
    "an unknown sentence": ("- no findings", "- nothing is found", ":20: `- nothing is found` is nothing"),
    "an engine that is not asked": ("- no findings", '- written all the same, te says "no"', "a line `- engine: te`"),
    "words behind the expectations": ("- no findings", "- no findings\n\nAnd more.", ":22: `And more.`"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str, tmp_path: Path) -> None:
    """Each with its file, and where it can be said, its line."""
    old, new, message = MISTAKES[mistake]
    assert CASE.count(old) == 1
    with pytest.raises(CaseError) as caught:
        read(CASE.replace(old, new), tmp_path)
    assert str(caught.value).startswith("a.md:")
    assert message in str(caught.value)


def test_a_case_that_expects_nothing_is_an_error(tmp_path: Path) -> None:
    """Neither a table nor a sentence."""
    with pytest.raises(CaseError, match="expects nothing"):
        read(CASE[: CASE.index("| tensor")], tmp_path)


def test_a_file_without_instructions_is_an_error(tmp_path: Path) -> None:
    """A file begins with the paragraph that says how to add a case."""
    with pytest.raises(CaseError, match="begins with a paragraph"):
        read(CASE.replace("How to add a case.\n", ""), tmp_path)
