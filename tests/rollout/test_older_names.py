"""The models of the older SGLang's matchers answer as its own functions do, on the newer's generated lists and names.

What the two versions share is asked again: it is the older code that says that it is shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout import engine as real
from rollout.older import FOLDER, VERSION, older_folder
from rollout.test_matchers import ALGORITHMS, ANY_NAME, ENOUGH, PACKED, Engine, any_lists, found, modelled

from precc.contract import RolloutLayout
from precc_sglang import grammar
from precc_sglang.reading.arguments import FORBIDDEN_ONCE, HARMLESS, check_arguments
from precc_sglang.server import layout
from precc_sglang.versions import RELEASES

pytestmark = pytest.mark.slow

RELEASE = RELEASES[VERSION]


@pytest.fixture(scope="module")
def older() -> Iterator[Engine]:
    """The worker that has the older SGLang."""
    with real.engine([older_folder()]) as call:
        yield call


@ENOUGH
@given(ANY_NAME, any_lists("glob"), st.sampled_from(PACKED))
def test_dotted_runs_match_as_in_the_older_fp8_configs(
    older: Engine, name: str, listed: list[str], packed: dict[str, list[str]]
) -> None:
    """`is_layer_skipped`, which did not change."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    mine = found(modelled(lambda: grammar.skipped(name, listed, told)))
    assert mine == older(real.skipped, name, listed, packed)


@ENOUGH
@given(ANY_NAME, any_lists("glob"))
def test_globs_match_as_in_the_older_modelopt_configs(older: Engine, name: str, listed: list[str]) -> None:
    """`is_layer_excluded`, which did not change."""
    assert (grammar.excluded(name, listed) is not None) == older(real.excluded, name, listed)


@ENOUGH
@given(ANY_NAME, any_lists("regex"), st.sampled_from(PACKED))
def test_ignore_lists_match_as_in_the_older_compressed_tensors(
    older: Engine, name: str, listed: list[str], packed: dict[str, list[str]]
) -> None:
    """`should_ignore_layer`: an entry takes every name that contains it, in any case of letters."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    mine = found(modelled(lambda: grammar.ignored(name, listed, told, RELEASE.ignore_contained)))
    assert mine == older(real.ignored, name, listed, packed)


@ENOUGH
@given(ANY_NAME, st.dictionaries(ANY_NAME, ALGORITHMS, min_size=1, max_size=6), st.sampled_from(PACKED))
def test_mixed_maps_resolve_as_in_the_older_modelopt_mixed(
    older: Engine, name: str, layers: dict[str, str], packed: dict[str, list[str]]
) -> None:
    """`_resolve_quant_algo`: the same keys, without those that stand below `model.language_model`."""
    told = {fused: tuple(parts) for fused, parts in packed.items()}
    facts = {key: {"quant_algo": algo} for key, algo in layers.items()}
    key = modelled(lambda: grammar.algorithm_key(name, facts, told, RELEASE.nested_names))
    mine = key if key in (None, real.REFUSED) else grammar.algorithm(facts[key])
    assert mine == older(real.mixed, name, layers, packed)


def test_the_older_declares_the_arguments_that_are_for_it(older: Engine) -> None:
    """Those of a layout, those that are free, and the one that only it has."""
    stated = dict(layout(RolloutLayout(tp=8, ep=4, dp=2, sglang=VERSION, stated=True)))
    check_arguments(stated, RolloutLayout(tp=8, ep=4, dp=2, sglang=VERSION, stated=True))
    assert {*stated, *HARMLESS, *FORBIDDEN_ONCE} - older(real.known_arguments) == set()


def test_the_variables_of_the_older_alone_stand_in_its_code_alone() -> None:
    """By their names, in the files of both packages."""
    newer = find_spec("sglang")
    assert newer is not None
    assert newer.submodule_search_locations
    own = set(RELEASE.variables)
    assert _named(FOLDER / "sglang", own) == own
    assert _named(Path(newer.submodule_search_locations[0]), own) == set()


def _named(folder: Path, names: set[str]) -> set[str]:
    word = re.compile(rb"\b(?:%s)\b" % b"|".join(name.encode() for name in sorted(names)))
    return {found.decode() for file in folder.rglob("*.py") for found in word.findall(file.read_bytes())}
