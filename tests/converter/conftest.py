"""A case to convert, and a copy of it for each test that damages one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from converter.conversions import Case, case
from rollout.support import SMALL


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("original"), SMALL["qwen3_moe"], "nvfp4_rl")


@pytest.fixture
def copied(original: Case, tmp_path: Path) -> Case:
    """A copy of it, to be damaged."""
    return Case(
        shutil.copytree(original.source, tmp_path / "source"), shutil.copytree(original.compiled, tmp_path / "compiled")
    )
