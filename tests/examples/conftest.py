"""The service that examples run against here: in memory."""

from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock


@pytest.fixture
def penstock() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service
