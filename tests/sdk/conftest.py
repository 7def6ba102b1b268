from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind, EventLoop, Threads, running_loop
from tests.sdk.http.faulty_transport import FaultyTransport


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)


@pytest.fixture(params=["threads", "asyncio"])
def clients(request: pytest.FixtureRequest, service: MemoryPenstock) -> Iterator[ClientKind]:
    """The clients of the service, with threads and for asyncio: each test runs with both."""
    if request.param == "threads":
        yield Threads(service.transport)
    else:
        with running_loop() as loop:
            yield EventLoop(service.transport, loop)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The template of a stage of production, made once."""
    from tests.support.deployed_stage import production_template  # which loads the CDK

    return production_template(tmp_path_factory.mktemp("prod"))
