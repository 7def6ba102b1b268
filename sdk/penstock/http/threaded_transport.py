"""A transport of threads behind the port of the asynchronous clients."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context

from penstock.http.abilities import event_signer, reader_of, request_bytes_max_of, wall_clock_ns_of
from penstock.http.http_message import Response
from penstock.http.transport import Transport


class ThreadedTransport:
    """An AsyncTransport: calls a Transport in the threads that `executor` returns, by default in the event loop's."""

    def __init__(self, inner: Transport, executor: Callable[[], Executor | None] = lambda: None) -> None:
        self._inner = inner
        self._executor = executor

    @property
    def request_bytes_max(self) -> int:
        """The bytes of a request that the inner transport carries."""
        return request_bytes_max_of(self._inner)

    @property
    def wall_clock_ns(self) -> Callable[[], int]:
        """The clock of the inner transport's service."""
        return wall_clock_ns_of(self._inner)

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """As `Transport.call` of the inner transport, in a thread."""
        loop = asyncio.get_running_loop()
        run = copy_context().run
        return await loop.run_in_executor(
            self._executor(), lambda: run(self._inner.call, method, path, query, headers, body)
        )

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says, by the inner transport. Raises NotConfiguredError if it signs nothing."""
        return event_signer(self._inner).event_headers(host, body)

    def reader(self) -> Hashable:
        """The caller and the service of the inner transport."""
        return reader_of(self._inner)

    async def close(self) -> None:
        """Close the inner transport. The executor is its owner's."""
        self._inner.close()
