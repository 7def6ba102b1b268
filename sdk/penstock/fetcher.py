"""The threads that prefetch for a consumer: they drive a FetchBuffer. Up to `max_in_flight` requests at once."""

import logging
import random
import threading
from collections.abc import Callable

from penstock.client import Client, monotonic_ms
from penstock.errors import ClosedError, UnavailableError
from penstock.fetch_buffer import FetchBuffer, FetchRequest
from penstock.model import ConsumerRecord
from penstock.worker_threads import WorkerThreads, seconds_until
from penstock_core.errors import ErrorCode, PenstockError

_log = logging.getLogger("penstock.consumer")


class Fetcher:
    """Drives a buffer. `lock` guards it; call `wake` under it after any change to the buffer."""

    def __init__(self, buffer: FetchBuffer, client: Client, *, max_in_flight: int) -> None:
        self.lock = threading.Lock()
        self._arrived = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._buffer = buffer
        self._client = client
        self._sleeps_until_ms = -1
        self._is_stopping = False
        self._threads = WorkerThreads("penstock-fetcher", max_in_flight, self._next_request, self._carry)

    def start(self) -> None:
        """Start the threads, once."""
        self._threads.start()

    def wake(self) -> None:
        """Under the lock: let the threads look, if they would sleep past what there is to do."""
        if self._buffer.wake_at_ms < self._sleeps_until_ms:
            self._sleeps_until_ms = -1
            self._work.notify()

    def take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int, deadline_ms: int
    ) -> list[ConsumerRecord]:
        """Call one of the buffer's take methods until it gives records; none if the time runs out."""
        with self.lock:
            while True:
                taken = take(max_records)
                self.wake()
                now_ms = monotonic_ms()
                if taken or now_ms >= deadline_ms:
                    return taken
                if self._is_stopping:
                    raise ClosedError("the consumer was closed while it waited for records")
                self._arrived.wait(seconds_until(deadline_ms, now_ms))

    def stop(self) -> None:
        """End the threads: waits for the requests in flight."""
        with self.lock:
            self._is_stopping = True
            self._work.notify_all()
            self._arrived.notify_all()
        self._threads.join()

    def _next_request(self) -> FetchRequest | None:
        with self.lock:
            while not self._is_stopping:
                now_ms = monotonic_ms()
                request = self._buffer.next_request(now_ms)
                if request is not None:
                    return request
                self._sleeps_until_ms = self._buffer.wake_at_ms
                self._work.wait(seconds_until(self._buffer.wake_at_ms, now_ms))
                self._sleeps_until_ms = -1
        return None

    def _carry(self, request: FetchRequest) -> None:
        try:
            answers, body = self._client.fetch(request.body)
        except PenstockError as error:
            self._fail(request, error)
        except Exception as defect:  # this thread's edge: a defect must not leave the consumer waiting for ever
            _log.exception("fetch failed in an unexpected way")
            self._fail(request, UnavailableError(ErrorCode.INTERNAL, f"fetch failed: {defect!r}"))
        else:
            with self.lock:
                self._buffer.accept(request, answers, body, monotonic_ms(), _chance())
                self._arrived.notify_all()
                self.wake()

    def _fail(self, request: FetchRequest, error: PenstockError) -> None:
        if error.code.is_retriable:
            _log.warning("fetch will be tried again: %s", error)
        with self.lock:
            self._buffer.fail(request, error, monotonic_ms(), _chance())
            self._arrived.notify_all()
            self.wake()


def _chance() -> float:
    return random.random()  # noqa: S311 - jitter, not a secret
