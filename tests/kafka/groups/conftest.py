from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    """A service with the topic `orders` of four partitions."""
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=4)
        yield service
