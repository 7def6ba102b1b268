import pytest

from tests.handlers.service import Service


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def orders(service: Service) -> Service:
    """A service with the topic orders, of three partitions."""
    service.create("orders", 3)
    return service
