"""A record behaves as a frozen dataclass does."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from precc.records import replace, stated
from precc.source import SourceFile
from precc.syntax import ast

HERE = SourceFile("a.prec", "default: bf16").span(0, 7)
THERE = SourceFile("b.prec", "").span(0, 0)
RULE = ast.RoleSelector("mla", span=HERE)


def test_records_compare_by_their_fields_but_not_by_their_place() -> None:
    """Two spellings of one policy have equal trees."""
    assert ast.RoleSelector("mla", False, span=THERE) == RULE
    assert hash(ast.RoleSelector("mla", span=THERE)) == hash(RULE)
    assert ast.RoleSelector("mtp", span=HERE) != RULE
    assert ast.PolicyName("mla", span=HERE) != RULE


def test_a_record_cannot_be_changed() -> None:
    """Not even by accident."""
    with pytest.raises(AttributeError, match="frozen"):
        RULE.role = "mtp"
    with pytest.raises(AttributeError, match="frozen"):
        del RULE.role


@pytest.mark.parametrize("change", [replace, dataclasses.replace])
def test_a_changed_copy_keeps_the_rest(change: object) -> None:
    """With our own function and with that of `dataclasses`."""
    assert callable(change)
    changed = change(RULE, optional=True)
    assert (changed.role, changed.optional, changed.span) == ("mla", True, HERE)


def test_dataclasses_knows_the_fields() -> None:
    """Tools that look at dataclasses look at records too."""
    assert [entry.name for entry in dataclasses.fields(RULE)] == ["span", "role", "optional"]


def test_records_can_be_copied_and_pickled() -> None:
    """They are plain values."""
    assert copy.deepcopy(RULE) == RULE
    assert pickle.loads(pickle.dumps(RULE)) == RULE


def test_the_text_of_a_record_names_its_fields() -> None:
    """Without its place, which would drown the rest."""
    assert repr(RULE) == "RoleSelector(role='mla', optional=False)"


def test_what_is_stated_is_what_differs_from_the_default() -> None:
    """So that a spec can say which options its author wrote."""
    assert stated(ast.Options(group=32)) == {"group": 32}


@pytest.mark.parametrize(
    "values, named",
    [((), {}), (("a", True, 1), {}), (("a",), {"role": "b"}), (("a",), {"rule": "b"})],
    ids=["missing", "too many", "twice", "unknown"],
)
def test_wrong_fields_are_refused(values: tuple[object, ...], named: dict[str, object]) -> None:
    """As a constructor refuses them."""
    with pytest.raises(TypeError):
        ast.RoleSelector(*values, span=HERE, **named)  # type: ignore[arg-type]


def test_a_copy_in_another_process_has_its_own_hash() -> None:
    """Hashes of texts differ from process to process; a kept one must not travel."""
    hash(RULE)
    assert "_hash" in vars(RULE)
    assert "_hash" not in vars(pickle.loads(pickle.dumps(RULE)))
