"""What the tests of this target share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from te.engines import Judges, started


@pytest.fixture(scope="session")
def judges() -> Iterator[Judges]:
    """Megatron's own code, by version, each loaded once."""
    with started() as found:
        yield found
