# Generated from async_client.py by `python -m tools.unasync`: change that file.
"""Carries requests to the service, with retries, for the clients and the command line.

It tries reads, and writes that are the same when done twice, again on every retriable error. It tries other writes
again only if the failure certainly changed nothing (retry.py).
"""

import time
from collections.abc import Hashable, Mapping

from penstock.http.abilities import event_signer, reader_of
from penstock.http.http_message import (
    Document,
    HttpRequest,
    Job,
    Response,
    asking_for,
    final_document,
    final_error,
    json_document,
)
from penstock.http.steps import Calls, Result, drive
from penstock.http.transport import Transport
from penstock.retry import Attempts, RetryPolicy
from penstock.system import monotonic_ms, random_fraction
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_CALL_MS_MAX


class Client:
    """Raises the classes of penstock.errors. Several threads may use one."""

    def __init__(
        self,
        transport: Transport,
        *,
        retry: RetryPolicy | None = None,
        timeout_ms: int = SDK_CALL_MS_MAX,
        job: Job | None = None,
    ) -> None:
        self._job = job  # what the calls are for: a refusal asks for the right to it, which implies describe
        self._transport = transport
        self._retry = retry or RetryPolicy()
        self._timeout_ms = timeout_ms

    @property
    def service(self) -> str:
        """The service's URL, or the kind of a transport that tells none."""
        return getattr(self._transport, "url", "") or type(self._transport).__name__

    def call(self, calls: Calls[Result]) -> Result:
        """Carry out a procedure of calls.py. Its error has no frames of the procedure: they tell a user nothing."""
        try:
            return drive(calls, self.document)
        except PenstockError as error:
            raise error.with_traceback(None) from error.__cause__

    def document(self, request: HttpRequest) -> Document:
        """The JSON answer to a request, after as many tries as it takes within `timeout_ms`.

        Raises the last try's error. It says `maybe_applied` if any try may have been applied.
        """
        attempts = Attempts(
            self._retry, is_repeatable=request.is_repeatable, deadline_ms=monotonic_ms() + self._timeout_ms
        )
        while True:
            try:
                document = json_document(request, self.try_once(request))
                return final_document(request, document, maybe_applied=attempts.maybe_applied)
            except PenstockError as error:
                wait_ms = attempts.wait_ms(error, now_ms=monotonic_ms(), chance=random_fraction())
                if wait_ms is None:
                    final = final_error(request, error, maybe_applied=attempts.maybe_applied)
                    raise asking_for(final, self._job) from error.__cause__
            time.sleep(wait_ms / 1_000)

    def try_once(self, request: HttpRequest) -> Response:
        """One try. The caller decides about another."""
        return self._transport.call(request.method, request.path, request.query, request.headers, request.body)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the transport cannot sign them."""
        return event_signer(self._transport).event_headers(host, body)

    def reader(self) -> Hashable:
        """The caller and the service: clients with the same reader share what they fetch. Raises NotConfiguredError."""
        return reader_of(self._transport)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()
