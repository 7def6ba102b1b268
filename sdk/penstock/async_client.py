"""Carries requests to the service, with retries, for asyncio: client.py has the rules."""

import asyncio

from penstock.async_transport import AsyncTransport
from penstock.client import CALL_TIMEOUT_MS
from penstock.http_message import Document, Request, Response, json_document
from penstock.retry import Attempts, RetryPolicy
from penstock.steps import Calls, Result, drive_async
from penstock.system import chance, monotonic_ms
from penstock_core.errors import PenstockError


class AsyncClient:
    """Raises the classes of penstock.errors. For one event loop."""

    def __init__(
        self, transport: AsyncTransport, *, retry: RetryPolicy | None = None, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> None:
        self._transport = transport
        self._retry = retry or RetryPolicy()
        self._timeout_ms = timeout_ms

    async def call(self, calls: Calls[Result]) -> Result:
        """Carry out a procedure of calls.py."""
        return await drive_async(calls, self.document)

    async def document(self, request: Request) -> Document:
        """The JSON answer to a request, after as many tries as it takes."""
        attempts = Attempts(
            self._retry, is_repeatable=request.is_repeatable, deadline_ms=monotonic_ms() + self._timeout_ms
        )
        while True:
            try:
                return json_document(request, await self.try_once(request))
            except PenstockError as error:
                wait_ms = attempts.wait_ms(error, now_ms=monotonic_ms(), chance=chance())
                if wait_ms is None:
                    raise
            await asyncio.sleep(wait_ms / 1_000)

    async def try_once(self, request: Request) -> Response:
        """One try; its caller decides what the answer means."""
        return await self._transport.call(request.method, request.path, request.query, request.headers, request.body)

    async def close(self) -> None:
        """Give back connections."""
        await self._transport.close()
