"""The readers match names as the tools themselves do: compared with SGLang's own functions and with the libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout import engine as real

from precc.graph.reading import read_model
from precc.importing.naming import dotted, ending, glob, regular
from precc.importing.patterns import Pattern, pieces

Ask = Callable[..., Any]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine() -> Iterator[Ask]:
    """SGLang's own code, in a process of its own."""
    with real.engine() as ask:
        yield ask


STEMS = ("model", "language_model.model", "model.language_model")
PARTS = ("self_attn.o_proj", "mlp.down_proj", "mlp.gate", "mlp.shared_expert_gate", "linear_attn.out_proj")
NAMES = st.one_of(
    st.builds(lambda stem, n, part: f"{stem}.layers.{n}.{part}", *map(st.sampled_from, (STEMS, "019", PARTS))),
    st.sampled_from(["lm_head", "language_model.lm_head", "mtp.fc", "model.layers.10.self_attn.o_proj"]),
)
"""Modules that no class fuses: what is fused, SGLang asks under another name."""


@st.composite
def entries(draw: st.DrawFn, dialect: str) -> str:
    """A name, a run of one, or one of a dialect's patterns of it."""
    name = draw(NAMES)
    words = name.split(".")
    start = draw(st.integers(0, len(words) - 1))
    run = ".".join(words[start : draw(st.integers(start + 1, len(words)))])
    shapes = {
        "dotted": [name, run, run[:-1] or run, words[-1]],
        "glob": [name, run, f"{run}*", f"*{run}", f"*.{run}.*", f"{name[:-2]}*", words[0] + "*"],
        "regex": [name, run, f"re:.*{run}.*", f"re:{run}", f"re:.*{run}$", f"re:^{name}$", f"re:.*{run[:-1]}"],
    }
    return draw(st.sampled_from(shapes[dialect]))


def reaches(patterns: list[Pattern], name: str) -> bool:
    """Whether any of some rules reaches a module, as `pieces` would ask it."""
    return any(
        name.startswith(p.prefix) and (not p.word or p.word in name.split(".")) and p.test(name) for p in patterns
    )


EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@EXAMPLES
@given(name=NAMES, listed=st.lists(entries("dotted"), max_size=4))
def test_fp8_lists_are_read_as_sglang_reads_them(engine: Ask, name: str, listed: list[str]) -> None:
    """A run of whole components anywhere in a name."""
    assert reaches([dotted(entry) for entry in listed], name) == engine(real.skipped, name, listed, {})


@EXAMPLES
@given(name=NAMES, listed=st.lists(entries("glob"), max_size=4))
def test_modelopt_lists_are_read_as_sglang_reads_them(engine: Ask, name: str, listed: list[str]) -> None:
    """Globs over the whole name, or over one component, and dotted runs."""
    wanted = engine(real.skipped, name, listed, {}) or engine(real.excluded, name, listed)
    assert reaches([glob(entry) for entry in listed], name) == wanted


@EXAMPLES
@given(name=NAMES, listed=st.lists(entries("regex"), max_size=4))
def test_compressed_tensors_lists_are_read_as_sglang_reads_them(engine: Ask, name: str, listed: list[str]) -> None:
    """Whole names, their ends at a dot, and patterns that a name begins with."""
    patterns = [regular(entry[3:]) if entry.startswith("re:") else ending(entry) for entry in listed]
    assert reaches(patterns, name) == engine(real.ignored, name, listed, {})


@pytest.mark.parametrize(
    "pattern",
    [
        glob("model.layers.3.mlp.experts.7.*"),
        glob("model.layers.1*"),
        glob("*.experts.12?.up_proj"),
        glob("*experts.1*"),
        dotted("experts.5"),
        dotted("model.layers.4.mlp.experts"),
        regular(r".*experts\.\d\..*"),
        regular(r"model\.layers\.(3|5)\.mlp\.experts\.[0-9]+\.gate_proj$"),
        regular(r".*gate"),
    ],
)
def test_few_names_are_asked_and_none_is_missed(pattern: Pattern) -> None:
    """What a pattern promises about names holds: it reaches the same where every name is asked."""
    graph = read_model("qwen3-30b-a3b")
    found = {name for piece in pieces(graph, [pattern]) if piece.hits for name in piece.tensor.modules()}
    assert found == {name for tensor in graph.tensors for name in tensor.modules() if pattern.test(name)}


def test_a_run_with_an_expert_reaches_that_one_alone() -> None:
    """It is told by its number, as the name itself is; 12 is not 1, nor 2."""
    graph = read_model("qwen3-30b-a3b")
    found = pieces(graph, [dotted("model.layers.3.mlp.experts.12.up_proj"), dotted("experts.128.up_proj")])
    hit = [piece.tensor for piece in found if piece.hits]
    assert [(tensor.layer, tensor.part, tensor.experts) for tensor in hit] == [(3, "up", range(12, 13))]
    assert sum(piece.tensor.count for piece in found) == sum(tensor.count for tensor in graph.tensors)
