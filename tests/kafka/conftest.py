from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway, running_gateway


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    """A gateway in front of a service in memory with the topic `orders` of three partitions."""
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=3)
        with running_gateway(service) as running:
            yield running
