from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.faulty_transport import FaultyTransport


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)
