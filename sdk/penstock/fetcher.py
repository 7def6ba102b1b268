"""The threads of a consumer: some prefetch, up to `max_in_flight` requests at once; one heartbeats for its group."""

import threading

from penstock.client import Client
from penstock.consumer_core import ConsumerCore
from penstock.fetch_buffer import FetchRequest
from penstock.heartbeater import Heartbeater
from penstock.http_message import Document, Request
from penstock.listener import ConsumerSteps, Notice
from penstock.record_calls import fetch
from penstock.steps import Result, Wait, drive
from penstock.system import chance, monotonic_ms
from penstock.worker_threads import WorkerThreads, released, seconds_until


class Fetcher:
    """Drives a consumer's core and its buffer. `lock` guards them; call `wake` under it after a change."""

    def __init__(self, core: ConsumerCore, client: Client, *, max_in_flight: int) -> None:
        self.lock = threading.Lock()
        self._arrived = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._buffer = core.buffer
        self._client = client
        self._sleeps_until_ms = -1
        self._is_stopping = False
        self._threads = WorkerThreads("penstock-fetcher", max_in_flight, self._next_request, self._carry)
        self._heartbeater: Heartbeater | None = None
        if core.membership is not None:
            self._heartbeater = Heartbeater(
                core.membership, core.group_id, client, lock=self.lock, changed=self._arrived, follow=core.release_idle
            )

    def start(self) -> None:
        """Start the threads, once."""
        self._threads.start()
        if self._heartbeater is not None:
            self._heartbeater.start()

    def drive(self, steps: ConsumerSteps[Result]) -> Result:
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
        if self._heartbeater is not None:
            self._heartbeater.wake()

    def tell(self) -> None:
        """Under the lock: let everybody look, who waits for records too, as something else is to be read."""
        self._arrived.notify_all()
        self.wake()

    def stop(self) -> None:
        """End the threads: waits for the requests in flight, and until the group is left if it is to be."""
        with self.lock:
            self._is_stopping = True
            self._work.notify_all()
            self._arrived.notify_all()
        self._threads.join()
        if self._heartbeater is not None:
            self._heartbeater.join()

    def _do(self, effect: Request | Wait | Notice) -> Document:
        self.wake()
        if isinstance(effect, Wait):
            self._arrived.wait(seconds_until(effect.until_ms, monotonic_ms()))
            return {}
        with released(self.lock):
            if isinstance(effect, Notice):
                effect.callback(effect.partitions)
                return {}
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
