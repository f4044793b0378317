"""What the tests of this target share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from te.upstream_client import Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """Megatron's code, loaded once."""
    with Upstream() as loaded:
        yield loaded
