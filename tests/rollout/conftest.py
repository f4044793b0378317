"""The live SGLang that judges whole compiles, started once for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from precc_sglang.upstream import Judge


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """The live SGLang."""
    with Judge() as live:
        yield live
