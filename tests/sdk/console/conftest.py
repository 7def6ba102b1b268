"""A console in a thread of the test's process, on a free port, for a service in memory."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from penstock.console.account import AccountFacts
from penstock.console.page import Memory
from penstock.console.server import ConsoleServer
from penstock.endpoint.listening import listen
from penstock.http.transport import Transport
from penstock.jobs.model import JobPlace
from penstock.testing import MemoryPenstock
from tests.sdk.console.visitor import Visitor
from tests.support.deadlines import DEADLINE_S


@dataclass
class RunningConsole:
    """The console's loop, in a thread that `stop` ends. `links` are those that it has said."""

    transport: Transport
    links: list[str] = field(default_factory=list)
    read_account: Callable[[], AccountFacts] | None = None
    job_places: Mapping[str, Callable[[], JobPlace]] | None = None
    is_local: bool = True
    first_path: str = "/"

    def __post_init__(self) -> None:
        listening = listen(0)
        self.port = listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._server = ConsoleServer(
            self.transport,
            self.port,
            self.links.append,
            read_account=self.read_account,
            job_places=self.job_places,
            is_local=self.is_local,
            first_path=self.first_path,
        )
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(listening), self._loop).result(DEADLINE_S)

    @property
    def memory(self) -> Memory:
        return self._server.memory

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def visitor(self) -> Visitor:
        """A browser that came by the newest link."""
        visitor = Visitor(self.origin)
        assert visitor.open(self.links[-1]).status == 200
        return visitor


@contextmanager
def read_console(transport: Transport) -> Iterator[Visitor]:
    """A visitor of a new console that has read its figures once. It reads no others within the next 5 s."""
    running = RunningConsole(transport)
    try:
        visitor = running.visitor()
        assert running.memory.figures.look(int(DEADLINE_S * 1_000)).value is not None
        running.memory.lists.look(int(DEADLINE_S * 1_000))
        yield visitor
    finally:
        running.stop()


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        yield service


@pytest.fixture
def console(service: MemoryPenstock) -> Iterator[RunningConsole]:
    running = RunningConsole(service.transport)
    yield running
    running.stop()


@pytest.fixture
def visitor(console: RunningConsole) -> Visitor:
    return console.visitor()
