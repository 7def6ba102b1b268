"""The transport of a command: it opens at the first call, fails at once if nothing answers, and tells of waits."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from penstock.errors import ConnectionFailedError
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.system import monotonic_ms

TELL_EVERY_MS = 1_000


class ServiceDownError(Exception):
    """The service did not answer the command's first call. It is no PenstockError: no client tries again."""

    def __init__(self, error: ConnectionFailedError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def without_logs_of_failed_calls() -> Iterator[None]:
    """Keep the SDK's warnings of calls that nothing answered off stderr: the transport tells of them."""
    handler = logging.lastResort  # it prints what a program without a logging configuration logs
    if handler is None:
        yield
        return
    handler.addFilter(_is_other_than_a_failed_call)
    try:
        yield
    finally:
        handler.removeFilter(_is_other_than_a_failed_call)


def _is_other_than_a_failed_call(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, ConnectionFailedError) for each in arguments)


class CommandTransport:
    """A Transport that opens another when it is first needed: wrong arguments are told before a missing service.

    `tell` gets a line for the user while calls fail that the SDK tries again.
    """

    def __init__(self, open_transport: Callable[[], Transport], tell: Callable[[str], None]) -> None:
        self._open = open_transport
        self._tell = tell
        self._transport: Transport | None = None
        self._has_answered = False
        self._failures = 0
        self._told_at_ms = 0

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request. Raises ServiceDownError if no request was ever answered, and this one was not sent."""
        try:
            answer = self._opened().call(method, path, query, headers, body)
        except ConnectionFailedError as error:
            if not self._has_answered and not error.maybe_applied:
                raise ServiceDownError(error) from error
            self._note(error)
            raise
        self._has_answered = True
        self._failures = 0
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the transport behind it cannot sign them."""
        return event_signer(self._opened()).event_headers(host, body)

    def close(self) -> None:
        """Close the transport, if it was opened."""
        if self._transport is not None:
            self._transport.close()

    def _opened(self) -> Transport:
        if self._transport is None:
            self._transport = self._open()
        return self._transport

    def _note(self, error: ConnectionFailedError) -> None:
        self._failures += 1
        now_ms = monotonic_ms()
        if self._failures == 1 or now_ms >= self._told_at_ms + TELL_EVERY_MS:
            self._told_at_ms = now_ms
            self._tell(f"trying again ({self._failures}): {error.message}")
