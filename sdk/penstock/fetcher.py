"""The threads that prefetch for a consumer: they drive a FetchBuffer. Up to `max_in_flight` requests at once."""

import threading

from penstock.client import Client
from penstock.fetch_buffer import FetchBuffer, FetchRequest
from penstock.http_message import Document, Request
from penstock.record_calls import fetch
from penstock.steps import Result, Steps, Wait, drive
from penstock.system import chance, monotonic_ms
from penstock.worker_threads import WorkerThreads, released, seconds_until


class Fetcher:
    """Drives a consumer's core and its buffer. `lock` guards them; call `wake` under it after a change."""

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

    def drive(self, steps: Steps[Result]) -> Result:
        """Take the lock, which is released while a procedure of the core waits."""
        with self.lock:
            try:
                return drive(steps, self._do)
            finally:
                self.wake()

    def wake(self) -> None:
        """Under the lock: let the threads look, if they would sleep past what there is to do."""
        if self._buffer.wake_at_ms < self._sleeps_until_ms:
            self._sleeps_until_ms = -1
            self._work.notify()

    def stop(self) -> None:
        """End the threads: waits for the requests in flight."""
        with self.lock:
            self._is_stopping = True
            self._work.notify_all()
            self._arrived.notify_all()
        self._threads.join()

    def _do(self, effect: Request | Wait) -> Document:
        self.wake()
        if isinstance(effect, Wait):
            self._arrived.wait(seconds_until(effect.until_ms, monotonic_ms()))
            return {}
        with released(self.lock):
            return self._client.document(effect)

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
        answer = drive(fetch(request), self._client.try_once)
        with self.lock:
            self._buffer.complete(request, answer, monotonic_ms(), chance())
            self._arrived.notify_all()
            self.wake()
