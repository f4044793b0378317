"""What the tests of this target share."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from te.engines import Judges, started
from te.small import CONFIGS


@pytest.fixture(scope="session")
def judges() -> Iterator[Judges]:
    """Judges by the engines' versions, each loaded once."""
    with started() as found:
        yield found


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small models of each structure, by name: the folder of a `config.json`."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return {name: str(folder / name) for name in CONFIGS}
