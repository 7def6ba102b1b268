"""A dev server in a thread of the test's process, on a free port."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.configuration import Configuration, StaticCredentials
from penstock.dev.functions import FunctionPlace
from penstock.dev.service import LOCAL, DevAccess, DevService, serve
from penstock.endpoint.listening import listen
from penstock.http.transport import HttpTransport
from tests.support.deadlines import DEADLINE_S


@dataclass(frozen=True)
class Server:
    service: DevService
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configuration(self, secret: str | None = None, caller: str = LOCAL) -> Configuration:
        keys = self.service.callers[caller].keys
        return Configuration(
            url=self.url,
            region="us-east-1",
            credentials=StaticCredentials(keys.access_key, secret or keys.secret_key),
        )

    def transport(self, caller: str = LOCAL) -> HttpTransport:
        return HttpTransport(self.configuration(caller=caller))


class RunningServer:
    """The server's loop, in a thread that `stop` ends."""

    def __init__(
        self, data: Path | None = None, access: DevAccess | None = None, functions: Sequence[FunctionPlace] = ()
    ) -> None:
        listening = listen(0)
        self.server = Server(DevService(data, access, functions=functions), listening.getsockname()[1])
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        work = serve(self.server.service, listening, self._stop, on_ready=ready.set)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(work,))
        self._thread.start()
        assert ready.wait(DEADLINE_S), "the server has not begun to listen"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the server has not ended"
        self._loop.close()
        self.server.service.close()


@pytest.fixture
def running() -> Iterator[Server]:
    running = RunningServer()
    yield running.server
    running.stop()
