"""Carries requests to the service, with retries: what Producer, Consumer, Admin and the CLI have in common.

Reads, and writes that are the same when done twice, are tried again on every retriable error; other writes only where
the failure certainly changed nothing (retry.py). async_client.py does the same for asyncio.
"""

import time

from penstock.http_message import Document, Request, Response, json_document
from penstock.retry import Attempts, RetryPolicy
from penstock.steps import Calls, Result, drive
from penstock.system import chance, monotonic_ms
from penstock.transport import Transport
from penstock_core.errors import PenstockError

CALL_TIMEOUT_MS = 30_000


class Client:
    """Raises the classes of penstock.errors. Safe for use by several threads."""

    def __init__(
        self, transport: Transport, *, retry: RetryPolicy | None = None, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> None:
        self._transport = transport
        self._retry = retry or RetryPolicy()
        self._timeout_ms = timeout_ms

    def call(self, calls: Calls[Result]) -> Result:
        """Carry out a procedure of calls.py."""
        return drive(calls, self.document)

    def document(self, request: Request) -> Document:
        """The JSON answer to a request, after as many tries as it takes."""
        attempts = Attempts(
            self._retry, is_repeatable=request.is_repeatable, deadline_ms=monotonic_ms() + self._timeout_ms
        )
        while True:
            try:
                return json_document(request, self.try_once(request))
            except PenstockError as error:
                wait_ms = attempts.wait_ms(error, now_ms=monotonic_ms(), chance=chance())
                if wait_ms is None:
                    raise
            time.sleep(wait_ms / 1_000)

    def try_once(self, request: Request) -> Response:
        """One try; its caller decides what the answer means."""
        return self._transport.call(request.method, request.path, request.query, request.headers, request.body)

    def close(self) -> None:
        """Give back connections."""
        self._transport.close()
