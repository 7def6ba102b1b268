from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind, EventLoop, Threads, running_loop
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import KEYS, WakingTransport


@pytest.fixture
def events() -> Iterator[FakeAppSync]:
    with FakeAppSync(KEYS) as events:
        yield events


@pytest.fixture
def transport(service: MemoryPenstock, events: FakeAppSync) -> WakingTransport:
    return WakingTransport(service.transport, events)


@pytest.fixture(params=["threads", "asyncio"])
def clients(request: pytest.FixtureRequest, transport: WakingTransport) -> Iterator[ClientKind]:
    """As the fixture of tests.sdk, over a service with wake-ups."""
    if request.param == "threads":
        yield Threads(transport)
    else:
        with running_loop() as loop:
            yield EventLoop(transport, loop)
