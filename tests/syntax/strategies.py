"""Random policies, as trees that the parser could have made, and as text."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from precc.formats.table import FORMATS, SCOPES
from precc.source import SourceFile
from precc.syntax import ast
from precc.syntax.conditions import COMPARISONS
from precc.syntax.specs import BACKWARD_MODES, SPEC_WORDS
from precc.syntax.words import GPUS, RESERVED, ROLES

SPAN = SourceFile("made.prec", "").span(0, 0)


def node(kind: Any, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A node of a kind, from its fields in order."""
    return st.builds(lambda *values: kind(*values, span=SPAN), *parts)


# --- selectors ---

words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
plain_names = words.filter(lambda word: word not in RESERVED)
patterns = st.from_regex(r"(\*?[a-z0-9_]{1,5}\*?)|\*", fullmatch=True).filter(lambda word: word not in RESERVED)
alternatives = st.lists(patterns, min_size=1, max_size=3, unique=True).map(tuple)
percentages = st.integers(0, 10_000).map(lambda hundredths: Fraction(hundredths, 100))


@st.composite
def bounds(draw: st.DrawFn) -> ast.Bound:
    """One end of a slice; minus zero counts from the end as a share only."""
    is_share = draw(st.booleans())
    value = draw(percentages if is_share else st.integers(0, 99).map(Fraction))
    return ast.Bound(value, is_share, draw(st.booleans()) and (is_share or value > 0))


indices = st.lists(st.integers(-99, 99), min_size=1, max_size=4).map(lambda values: ast.Indices(tuple(values)))
slices = st.builds(ast.Slice, st.none() | bounds(), st.none() | bounds())
components = node(ast.Name, alternatives) | node(ast.AnyDepth) | node(ast.Layers, indices | slices)


def _stand_apart(path: list[ast.Component]) -> bool:
    """Whether no `**` stands next to another."""
    return not any(isinstance(a, ast.AnyDepth) and isinstance(b, ast.AnyDepth) for a, b in pairwise(path))


runs = st.lists(components, min_size=1, max_size=4).filter(_stand_apart).map(tuple)
paths = node(ast.PathSelector, runs, st.booleans())
atoms = paths | node(ast.RoleSelector, st.sampled_from(ROLES), st.booleans())


def _larger(smaller: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    group = node(ast.GroupSelector, st.lists(smaller, min_size=1, max_size=3).map(tuple), st.booleans())
    operand = atoms | group
    return group | node(ast.CombinedSelector, st.sampled_from(["in", "except"]), smaller, operand)


selectors = st.recursive(atoms, _larger, max_leaves=5)

# --- specs ---

formats = st.sampled_from(sorted(FORMATS))
scaling = st.builds(ast.FourOverSix, st.sampled_from([None, "mae", "mse"]), st.sampled_from([None, 256, 448]))


def options(scopes: bool, static: bool) -> st.SearchStrategy[ast.Options]:
    """Options behind an operand, or (without scopes) in a clause of their own."""
    return st.builds(
        ast.Options,
        st.sampled_from([None, *SCOPES]) if scopes else st.none(),
        st.none() | st.sampled_from([32, 64, 128]) | st.integers(1, 512),
        st.sampled_from([None, "fp32", "pow2"]),
        st.sampled_from([None, (16, 16)]),
        st.none() | scaling,
        st.booleans() if static else st.just(False),
    )


lone_options = options(False, False).filter(lambda chosen: chosen != ast.Options())
operands = st.one_of(
    st.tuples(node(ast.OperandClause, st.none(), formats, options(True, False))),
    st.tuples(node(ast.OperandClause, st.just("weight"), formats, options(True, False))),
    st.tuples(node(ast.OperandClause, st.just("input"), formats, options(True, True))),
    st.tuples(
        node(ast.OperandClause, st.just("weight"), formats, options(True, False)),
        node(ast.OperandClause, st.just("input"), formats, options(True, True)),
    ),
    st.tuples(node(ast.OptionClause, lone_options)),
    st.tuples(
        node(ast.OperandClause, st.sampled_from([None, "weight"]), formats, st.just(ast.Options())),
        node(ast.OptionClause, lone_options),
    ),
    st.just(()),
)
names = plain_names.filter(lambda word: word not in SPEC_WORDS)
other_clauses = st.lists(
    st.one_of(
        node(ast.BackwardClause, st.sampled_from(BACKWARD_MODES)),
        node(ast.SwitchClause, st.sampled_from(["hadamard", "stochastic_rounding"])),
        node(ast.TrainClause, st.sampled_from(["bf16", "fake_quant"])),
        node(ast.ReferenceClause, names),
    ),
    max_size=3,
    unique_by=lambda clause: getattr(clause, "switch", None) or getattr(clause, "name", None) or type(clause),
)
specs = node(
    ast.Spec,
    st.tuples(operands, other_clauses)
    .map(lambda parts: [*parts[0], *parts[1]])
    .filter(bool)
    .flatmap(st.permutations)
    .map(tuple),
)

# --- statements ---

titles = st.from_regex(r"[A-Za-z0-9_./ -]{0,10}[a-z]", fullmatch=True)
comparisons = st.sampled_from(COMPARISONS)
conditions = st.one_of(
    node(ast.FractionCondition, formats, comparisons, percentages.map(lambda value: value / 100)),
    node(ast.BitsCondition, comparisons, st.integers(0, 3200).map(lambda value: Fraction(value, 100))),
    node(ast.SizeCondition, comparisons, st.integers(0, 10**12)),
    node(ast.IsCondition, selectors, st.none() | formats),
)
sizes = st.integers(1, 64).map(str)
versions = st.from_regex(r"[0-9]\.[0-9]{1,2}(\.[0-9](rc1|\.post2)?)?", fullmatch=True)


def layouts(side: str, **keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """A layout line with some of its keys, in any order."""
    settings = [node(ast.Setting, st.just(key), values) for key, values in keys.items()]
    chosen = st.lists(st.one_of(settings), min_size=1, max_size=5, unique_by=lambda setting: setting.key)
    return node(ast.Layout, st.just(side), chosen.map(tuple))


gpus = st.sampled_from(GPUS)
training = layouts("train", gpu=gpus, tp=sizes, pp=sizes, vpp=sizes, ep=sizes, megatron_core=versions, te=versions)
serving = layouts("rollout", gpu=gpus, tp=sizes, dp=sizes, sglang=versions, flashinfer=versions)
rules = node(ast.Rule, st.lists(selectors, min_size=1, max_size=3).map(tuple), specs)
target_lists = st.lists(plain_names, min_size=1, max_size=3, unique=True).map(tuple)
repeatable = rules | node(ast.Expect, conditions)


@st.composite
def policies(draw: st.DrawFn) -> ast.File:
    """A policy: what stands once at most once, `extends` first, and any number of rules."""
    head = [node(ast.PolicyName, titles), node(ast.Extends, titles)]
    once = [
        node(ast.Default, specs),
        node(ast.KvCache, st.sampled_from(["bf16", "fp8"])),
        training,
        serving,
        node(ast.Targets, target_lists),
    ]
    statements = [draw(strategy) for strategy in head if draw(st.booleans())]
    lets = draw(st.lists(names, max_size=2, unique=True))
    rest = [draw(strategy) for strategy in once if draw(st.booleans())]
    rest += [draw(node(ast.Let, st.just(name), specs)) for name in lets]
    rest += draw(st.lists(repeatable, max_size=4))
    statements += draw(st.permutations(rest))
    return ast.File(SourceFile("made.prec", ""), tuple(statements))


# --- text ---

PIECES = (
    *("default", "kv_cache", "policy", "extends", "let", "train", "rollout", "targets", "expect", "in", "except"),
    *("is", "a", "layers", "{q,k}", "{", "}", "*", "**", "@mla", "@x", "nvfp4", "bf16", "per_token", "weight"),
    *("input", "backward", "native", "group", "32", "0.5", "12.5", "75%", '"x"', '"', "[0]", "[-15%:]", "[", "]"),
    *("(", ")", ",", ":", ":", ".", ".", "?", "=", ">=", "<", "==", "%", "GiB", "fraction", "size", "# c\n"),
    *("\n", "\n", "\r\n", "\r", " ", " ", "\t", "é", "-", "gpu=b200", "tp=4", "matchembed", "\0", "\ufeff"),
)
scraps = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.lists(
    st.sampled_from(PIECES), max_size=25
).map(" ".join)
