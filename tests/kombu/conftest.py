"""A service in memory for one process, and one on a port for workers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection

import penstock_kombu
from penstock.testing import MemoryPenstock
from tests.kombu.worker import Workers
from tests.sdk.dev.conftest import RunningServer

assert penstock_kombu.Transport.can_parse_url

Connect = Callable[..., Any]


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service


@pytest.fixture
def connect(service: MemoryPenstock) -> Iterator[Connect]:
    """Opens connections with these options to the service in memory."""
    opened: list[Any] = []

    def connect(**options: Any) -> Any:
        opened.append(Connection("penstock://", transport_options={"transport": service.transport, **options}))
        return opened[-1]

    yield connect
    for each in opened:
        each.release()


@pytest.fixture
def workers(tmp_path: Any) -> Iterator[Workers]:
    """Celery workers, on a dev server of their own."""
    running = RunningServer()
    try:
        with Workers(running.server, tmp_path) as workers:
            yield workers
    finally:
        running.stop()
