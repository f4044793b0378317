"""Whatever is decided for each tensor, the policy that is written decides the same, in few natural rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counting import calls
from hypothesis import given, settings
from hypothesis import strategies as st

from precc.formats import Decision
from precc.front import read_policy
from precc.graph.model import ModelGraph, Tensor
from precc.graph.reading import read_model
from precc.importing import schemes
from precc.importing.importing import MOST_SELECTORS, check, long_policy
from precc.importing.reading import Reading, Unimportable
from precc.importing.synthesis import Outline, outline
from precc.importing.wanted import wanted
from precc.importing.writing import policy_text
from precc.resolve.bind import bind, is_closed
from precc.source import SourceFile
from precc.syntax.words import Role

Choose = Callable[[Tensor], "Decision | None"]

SCHEMES = (None, schemes.MXFP8, schemes.NVFP4_STATIC, schemes.fp8_block("pow2"))


def outlined(model: str, choose: Choose) -> Outline:
    """The rules for a choice, after the text was compiled and compared."""
    graph = read_model(model)
    reading = Reading(tuple((tensor, choose(tensor)) for tensor in graph.tensors))
    return written(graph, reading)


def written(graph: ModelGraph, reading: Reading) -> Outline:
    """The rules for a reading; raises where the text decides otherwise."""
    decided = wanted(reading, graph)
    found = outline(decided, graph)
    check(policy_text(found, reading, "p", ()), decided, graph)
    return found


def selectors(found: Outline) -> list[tuple[str, ...]]:
    """What the rules select, in order."""
    return [rule.selectors for rule in found.rules]


def is_linear(tensor: Tensor) -> bool:
    """What a tool would quantize anywhere."""
    return tensor.is_gemm and not tensor.protected


def has(*roles: Role) -> Callable[[Tensor], bool]:
    """Whether a tensor has one of some roles."""
    return lambda tensor: any(tensor.has_role(role) for role in roles)


@pytest.mark.parametrize(
    "chosen, wanted_selectors",
    [
        (is_linear, [("@mtp",)]),
        (lambda t: is_linear(t) and t.outer is None, []),
        (lambda t: is_linear(t) and t.role is Role.ROUTED_EXPERTS and t.outer is None, [("@routed_experts",)]),
        (lambda t: is_linear(t) and t.outer is None and t.role is not Role.MLA, [("@mla",)]),
        (lambda t: is_linear(t) and t.layer is not None and t.layer >= 3, [("layers[:3]",)]),
        (lambda t: is_linear(t) and t.layer is not None and t.layer < 53, [("layers[-8:]",)]),
        (lambda t: is_linear(t) and t.layer is not None and 5 <= t.layer < 50, [("layers[5:50]",)]),
        (lambda t: t.path[-1] == "o_proj" and t.outer is None, [("o_proj",)]),
        (lambda t: t.role is Role.ROUTED_EXPERTS and t.outer is Role.MTP, [("@routed_experts in @mtp",)]),
    ],
)
def test_what_has_a_name_is_called_by_it(
    chosen: Callable[[Tensor], bool], wanted_selectors: list[tuple[str, ...]]
) -> None:
    """Roles, slices and projections of DeepSeek-V3."""
    found = outlined("deepseek-v3", lambda tensor: schemes.MXFP8 if chosen(tensor) else None)
    assert selectors(found) == wanted_selectors


def test_an_lm_head_that_is_quantized_is_named() -> None:
    """It is protected, so that no default reaches it."""
    found = outlined(
        "qwen3-8b", lambda tensor: schemes.NVFP4_WEIGHTS if is_linear(tensor) or tensor.part == "head" else None
    )
    assert selectors(found) == [("@lm_head",)]


def test_rules_of_one_spec_are_one_rule() -> None:
    """Exceptions that could stand apart are written together."""

    def choose(tensor: Tensor) -> Decision | None:
        if not is_linear(tensor) or tensor.outer is not None or tensor.part == "o":
            return None
        return schemes.NVFP4_WEIGHTS if tensor.role is Role.ROUTED_EXPERTS else schemes.MXFP8

    found = outlined("deepseek-v3", lambda t: None if t.layer in (0, 60) else choose(t))
    assert len(found.rules) == 2


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_choice_by_role_and_layer_is_kept(data: st.DataObject) -> None:
    """Formats drawn for each kind of projection, and for some layers again."""
    graph = read_model("deepseek-v2-lite")
    kinds = sorted({(t.role.value if t.role else "", t.part) for t in graph.tensors if is_linear(t)})
    drawn = {kind: data.draw(st.sampled_from(SCHEMES)) for kind in kinds}
    layers = data.draw(st.dictionaries(st.integers(0, graph.layers - 1), st.sampled_from(SCHEMES), max_size=4))

    def choose(tensor: Tensor) -> Decision | None:
        if not is_linear(tensor):
            return None
        kind = (tensor.role.value if tensor.role else "", tensor.part)
        return layers[tensor.layer] if tensor.layer in layers else drawn[kind]

    outlined("deepseek-v2-lite", choose)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_choice_for_single_tensors_and_experts_is_kept(data: st.DataObject) -> None:
    """Single tensors, and single experts, decided apart from all others."""
    graph = read_model("mixtral-8x7b")
    odd = data.draw(
        st.sets(st.sampled_from([t.name for t in graph.tensors if t.is_gemm and not t.protected]), max_size=6)
    )
    cut = data.draw(st.integers(1, 7))

    def choices(tensor: Tensor) -> list[tuple[Tensor, Decision | None]]:
        usual = schemes.MXFP8 if is_linear(tensor) else None
        if tensor.name not in odd:
            return [(tensor, usual)]
        if tensor.experts is None:
            return [(tensor, None)]
        return [(tensor.narrowed(range(cut)), None), (tensor.narrowed(range(cut, 8)), usual)]

    written(graph, Reading(tuple(choice for tensor in graph.tensors for choice in choices(tensor))))


def apart(experts: int) -> tuple[ModelGraph, Reading]:
    """So many first experts of DeepSeek-V2-Lite, each in BF16 in two layers of its own choice."""
    graph = read_model("deepseek-v2-lite")

    def choices(tensor: Tensor) -> list[tuple[Tensor, Decision | None]]:
        usual = schemes.MXFP8 if is_linear(tensor) else None
        if tensor.experts is None or tensor.layer is None:
            return [(tensor, usual)]
        ranges = [range(at, at + 1) for at in range(experts)] + [range(experts, graph.expert_count)]
        bf16 = [1 + at % 26 == tensor.layer or 1 + (at * 7 + 3) % 26 == tensor.layer for at in range(experts)]
        kinds = [None if odd else usual for odd in (*bf16, False)]
        return [(tensor.narrowed(one), kind) for one, kind in zip(ranges, kinds, strict=True)]

    return graph, Reading(tuple(choice for tensor in graph.tensors for choice in choices(tensor)))


def test_experts_with_layers_of_their_own_have_a_selector_each() -> None:
    """The order of a hundred of them is found in the work of a hundred, not of its square."""
    work = {}
    for experts in (6, 12):
        graph, reading = apart(experts)
        decided = wanted(reading, graph)
        found = written(graph, reading)
        assert len(found.rules) == 1
        assert len(found.selectors) == experts
        work[experts] = calls(lambda decided=decided, graph=graph: outline(decided, graph))  # type: ignore[misc]
    assert work[12] < 2 * work[6]


def test_a_long_policy_says_which_tensors_force_it() -> None:
    """Formats as an automatic search would choose them, layer by layer and projection by projection."""

    def choose(tensor: Tensor) -> Decision | None:
        layer = tensor.layer or 0
        turn = layer**3 // 5 + layer * len(tensor.path[-1]) // 3
        return SCHEMES[turn % len(SCHEMES)] if is_linear(tensor) else None

    found = outlined("qwen3-0.6b", choose)
    assert len(found.selectors) > MOST_SELECTORS
    (finding,) = long_policy(found)
    assert finding.code == "P906"
    assert finding.message.startswith(f"{len(found.selectors)} selectors instead of {MOST_SELECTORS}:")
    assert found.selectors[MOST_SELECTORS] in finding.message


def test_a_text_that_decides_otherwise_is_never_written() -> None:
    """The comparison is of every tensor: one wrong one is an error of its own."""
    graph = read_model("qwen3-0.6b")
    reading = Reading(tuple((tensor, schemes.MXFP8 if is_linear(tensor) else None) for tensor in graph.tensors))
    decided = wanted(reading, graph)
    check("default: mxfp8\n", decided, graph)
    with pytest.raises(Unimportable, match=r"layers\.7\.self_attn\.o_proj"):
        check("default: mxfp8\no_proj in layers[7]: bf16\n", decided, graph)


def test_what_a_tool_leaves_alone_is_left_as_it_is_without_a_policy() -> None:
    """Routers, norms and heads keep their stored dtype."""
    graph = read_model("minimax-m2.7")
    empty, _ = read_policy(SourceFile("p.prec", "default: bf16\n"))
    left = [entry.decision for entry in bind(empty, graph).contract.entries]
    decided = wanted(Reading(tuple((tensor, None) for tensor in graph.tensors)), graph)
    assert [item.decision for item in decided] == left
    assert any(is_closed(item.tensor) and item.decision.weight.format == "fp32" for item in decided)
