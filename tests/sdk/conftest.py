from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.faulty_transport import FaultyTransport
from tests.sdk.shells import EventLoop, Shell, Threads, running_loop


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)


@pytest.fixture(params=["threads", "asyncio"])
def shell(request: pytest.FixtureRequest, service: MemoryPenstock) -> Iterator[Shell]:
    """The clients of the service, with threads and for asyncio: what uses this must hold for both."""
    if request.param == "threads":
        yield Threads(service.transport)
    else:
        with running_loop() as loop:
            yield EventLoop(service.transport, loop)
