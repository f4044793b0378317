"""The models of SGLang's matchers answer as SGLang's own functions do, on generated lists and names.

Both versions are asked everything: it is the older code that says that what did not change is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout import engine as real
from rollout import older
from rollout.support import CHANNELS, INTEGERS, SMALL, bound, config_of, small_graph

from precc.graph.reading import read_model
from precc_sglang import grammar
from precc_sglang.classes import CLASSES
from precc_sglang.methods import choice_of
from precc_sglang.versions import RELEASES, SGLANG, Release

pytestmark = pytest.mark.slow


class Engine(NamedTuple):
    """A worker that has one version of SGLang, and what is modelled of that version."""

    ask: Callable[..., Any]
    release: Release

    def __call__(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What its own code answers."""
        return self.ask(function, *arguments)


PACKED = [{fused: list(parts) for fused, parts in built.packed.items()} for built in CLASSES.values()]

LAYERS = st.sampled_from(["0", "1", "5", "10", "11", "61"])
ATTENTION = st.sampled_from(
    [
        *("qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj"),
        *("fused_qkv_a_proj_with_mqa", "q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"),
    ]
)
MLP = st.sampled_from(
    [
        *("gate_up_proj", "gate_proj", "up_proj", "down_proj", "gate", "experts", "experts.0.up_proj"),
        *("experts.1.gate_proj", "shared_experts.gate_up_proj", "shared_experts.gate_proj"),
        *("shared_experts.up_proj", "shared_experts.down_proj"),
    ]
)
STEMS = st.sampled_from(["model.layers.{}", "layers.{}", "model.decoder", "language_model.model.layers.{}"])

NAMES = st.one_of(
    st.sampled_from(["lm_head", "model.shared_head.head", "model.embed_tokens", "language_model.lm_head"]),
    st.builds(lambda stem, n, last: f"{stem.format(n)}.self_attn.{last}", STEMS, LAYERS, ATTENTION),
    st.builds(lambda stem, n, last: f"{stem.format(n)}.mlp.{last}", STEMS, LAYERS, MLP),
)


@st.composite
def entries(draw: st.DrawFn, dialect: str) -> str:
    """A name, a run of one, or one of a dialect's patterns, possibly with a dot too many or a part too few."""
    name = draw(NAMES)
    parts = name.split(".")
    start = draw(st.integers(0, len(parts) - 1))
    stop = draw(st.integers(start + 1, len(parts)))
    run = ".".join(parts[start:stop])
    shapes = [name, run, f"{run}.", f"{run}*", f"*{run}", f"{run}.*", run.replace("0", "*"), run[:-1], parts[-1]]
    if dialect == "regex":
        shapes += [f"re:.*{run}.*", f"re:^{run}$", f"re:{run}", rf"re:(?:.*\.)?{run}(?:\..*)?$", "Linear", "FusedMoE"]
    return draw(st.sampled_from([shape for shape in shapes if shape]))


def lists(dialect: str) -> st.SearchStrategy[list[str]]:
    """Lists of a dialect's entries, often with all members of one fused module."""
    members = st.builds(
        lambda stem, n, parts: [f"{stem.format(n)}.{part}" for part in parts],
        STEMS,
        LAYERS,
        st.sampled_from(
            [
                ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                ["self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"],
                ["mlp.gate_proj", "mlp.up_proj"],
                ["self_attn.q_proj", "self_attn.k_proj"],
            ]
        ),
    )
    return st.builds(
        lambda one, more: one + more, st.one_of(st.just([]), members), st.lists(entries(dialect), max_size=4)
    )


WORDS = st.sampled_from(["model", "layers", "0", "1", "11", "a", "ab", "b_proj", "q_proj", "mlp", "experts", "lm_head"])
DOTTED = st.lists(WORDS, min_size=1, max_size=5).map(".".join)
"""Names of no model: every place where one word is a part of another, or a run starts in the middle."""

ANY_NAME = st.one_of(NAMES, DOTTED)


@st.composite
def wild(draw: st.DrawFn, dialect: str) -> str:
    """A run of a random name with stars, dots or a pattern's prefix anywhere."""
    name = draw(DOTTED)
    at = draw(st.integers(0, len(name)))
    put = draw(st.sampled_from(["", "*", ".", ".*", "*."] if dialect == "glob" else ["", ".", "$", ".*", "(a|b)?"]))
    entry = name[:at] + put + name[at:]
    return f"re:{entry}" if dialect == "regex" and draw(st.booleans()) else entry


def any_lists(dialect: str) -> st.SearchStrategy[list[str]]:
    """Lists of a model's names, and lists of anything."""
    return st.one_of(lists(dialect), st.lists(wild(dialect), max_size=5))


@pytest.fixture(scope="module", params=[SGLANG[0], older.VERSION])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The worker that has the newest SGLang that is modelled, then the one that has the older."""
    folders = [older.older_folder()] if request.param == older.VERSION else []
    with real.engine(folders) as call:
        yield Engine(call, RELEASES[request.param])


ENOUGH = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])


def modelled(answer: Callable[[], Any]) -> Any:
    """An answer of the model, or that it refuses."""
    try:
        return answer()
    except grammar.Disagreement:
        return real.REFUSED


def found(answer: Any) -> Any:
    """Whether an entry was found, or that the model refuses."""
    return answer if answer == real.REFUSED else answer is not None


@ENOUGH
@given(ANY_NAME, any_lists("glob"), st.sampled_from(PACKED))
def test_dotted_runs_match_as_in_the_fp8_configs(
    engine: Engine, name: str, listed: list[str], packed: dict[str, list[str]]
) -> None:
    """`is_layer_skipped`, with each class's mapping: fused names, the fallback, the expert rule, the refusal."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    mine = found(modelled(lambda: grammar.skipped(name, listed, told)))
    assert mine == engine(real.skipped, name, listed, packed)


@ENOUGH
@given(ANY_NAME, any_lists("glob"))
def test_globs_match_as_in_the_modelopt_configs(engine: Engine, name: str, listed: list[str]) -> None:
    """`is_layer_excluded`: whole names, single components, and the projections that leak to every layer."""
    assert (grammar.excluded(name, listed) is not None) == engine(real.excluded, name, listed)


@ENOUGH
@given(ANY_NAME, any_lists("regex"), st.sampled_from(PACKED))
def test_ignore_lists_match_as_in_compressed_tensors(
    engine: Engine, name: str, listed: list[str], packed: dict[str, list[str]]
) -> None:
    """`should_ignore_layer`: exact names, suffixes (in the older, any part), regular expressions, fused names."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    mine = found(modelled(lambda: grammar.ignored(name, listed, told, engine.release.ignore_contained)))
    assert mine == engine(real.ignored, name, listed, packed)


@ENOUGH
@given(ANY_NAME, st.sampled_from(["ColumnParallelLinear", "FusedMoE"]), any_lists("regex"), st.sampled_from(PACKED))
def test_targets_match_as_in_compressed_tensors(
    engine: Engine, name: str, kind: str, listed: list[str], packed: dict[str, list[str]]
) -> None:
    """`find_matched_target`: by name, by class, by all members."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    assert grammar.target_of(name, kind, listed, told) == engine(real.target, name, kind, listed, packed)


ALGORITHMS = st.sampled_from(["NVFP4", "MXFP8", "mxfp8", "FP8", "FP8_PB_WO", "W4A16_NVFP4", "INT4_AWQ"])


@ENOUGH
@given(ANY_NAME, st.dictionaries(ANY_NAME, ALGORITHMS, min_size=1, max_size=6), st.sampled_from(PACKED))
def test_mixed_maps_resolve_as_in_modelopt_mixed(
    engine: Engine, name: str, layers: dict[str, str], packed: dict[str, list[str]]
) -> None:
    """`resolve_quant_algo`: exact keys, members of a fused module, the first key below, other spellings."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    facts = {key: {"quant_algo": algo} for key, algo in layers.items()}
    key = modelled(lambda: grammar.algorithm_key(name, facts, told, engine.release.nested_names))
    mine = key if key in (None, real.REFUSED) else grammar.algorithm(facts[key])
    assert mine == engine(real.mixed, name, layers, packed)


@pytest.mark.parametrize("model", [*SMALL, "deepseek-v3.2", "qwen3-30b-a3b"])
@pytest.mark.parametrize("policy", [CHANNELS, INTEGERS])
def test_the_librarys_own_matcher_reads_emitted_lists_alike(engine: Engine, policy: str, model: str) -> None:
    """Other readers of the checkpoint know Hugging Face names only: nothing is fused for them.

    The draft model is left aside: the list has the names that SGLang's draft class asks with.
    """
    contract = bound(policy, small_graph(model) if model in SMALL else read_model(model))
    config = config_of(contract)
    choice = choice_of(contract)
    assert choice is not None
    wanted = {
        name: entry.decision.is_quantized
        for module, entries in choice.modules.items()
        for entry in entries
        for name in entry.tensor.modules()
        if not module.draft
    }
    found = engine(real.matched, list(wanted), config["config_groups"]["group_0"]["targets"], config["ignore"])
    assert {name for name, one in zip(wanted, found, strict=True) if one != wanted[name]} == set()
    assert any(found)
