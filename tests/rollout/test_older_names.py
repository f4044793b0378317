"""What the older SGLang alone has, its arguments and variables, stands in its own code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rollout import engine as real
from rollout.older import FOLDER, VERSION, older_folder

from precc.contract import RolloutLayout
from precc_sglang.reading.arguments import FORBIDDEN_ONCE, HARMLESS, check_arguments
from precc_sglang.server import layout
from precc_sglang.versions import RELEASES

pytestmark = pytest.mark.slow

RELEASE = RELEASES[VERSION]


@pytest.fixture(scope="module")
def older() -> Iterator[Callable[..., Any]]:
    """The worker that has the older SGLang."""
    with real.engine([older_folder()]) as call:
        yield call


def test_the_older_declares_the_arguments_that_are_for_it(older: Callable[..., Any]) -> None:
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
