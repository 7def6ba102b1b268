from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway, running_gateway


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    """A service in memory with the topic `orders` of three partitions."""
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=3)
        yield service


@pytest.fixture
def gateway(service: MemoryPenstock) -> Iterator[RunningGateway]:
    """A gateway in front of the service."""
    with running_gateway(service) as running:
        yield running
