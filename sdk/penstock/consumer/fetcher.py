# Generated from async_fetcher.py by `python -m tools.unasync`: change that file.
"""The threads of a consumer.

Some prefetch, up to `max_in_flight` requests at once. One heartbeats for its group, and one hears wake-ups.
"""

from collections.abc import Hashable
from contextlib import suppress

from penstock.consumer.consumer_core import ConsumerCore
from penstock.consumer.fetch_buffer import FetchRequest
from penstock.consumer.fetch_call import fetch
from penstock.consumer.listener import ConsumerSteps, Notice
from penstock.consumer.shared_reads import SharedReader, shared_reads_of
from penstock.group.heartbeater import Heartbeater
from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Wait, drive
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.waker import Waker
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.workers import Lock, Signal, Sleep, Workers, released
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_SHARED_MS


class Fetcher:
    """Drives a consumer's core and its buffer. `lock` guards them; call `wake` under it after a change."""

    def __init__(self, core: ConsumerCore, client: Client, *, max_in_flight: int, fork: ForkGuard) -> None:
        self.lock = Lock()
        self._arrived = Signal(self.lock)
        self._sleep = Sleep(self.lock)
        self._core = core
        self._buffer = core.buffer
        self._fork = fork
        self._client = client
        self._is_stopping = False
        self._reader: Hashable = None
        self._reader_due_ms = 0
        self._workers = Workers("penstock-fetcher", max_in_flight, self._next_request, self._carry)
        self._wake_ups: Waker | None = None
        if core.buffer.waiting.watch is not None:
            self._wake_ups = Waker(
                core.buffer.waiting.watch, client, core.buffer.woken, lock=self.lock, changed=self._look_again
            )
        self._heartbeater: Heartbeater | None = None
        if core.membership is not None:
            self._heartbeater = Heartbeater(
                core.membership,
                core.group_id,
                client,
                lock=self.lock,
                changed=self._arrived,
                after_heartbeat=self._after_heartbeat,
            )

    def start(self) -> None:
        """Start the threads, once."""
        self._fork.check()
        if self._is_stopping:
            return
        self._workers.start()
        if self._heartbeater is not None:
            self._heartbeater.start()

    def drive(self, steps: ConsumerSteps[Result]) -> Result:
        """Take the lock and carry out a procedure of the core. The lock is released while the procedure waits."""
        self._fork.check()  # in a child, a thread of the parent may hold the lock for ever
        self._core.note_returned()
        self._core.report()
        try:
            with self.lock:
                try:
                    return drive(steps, self._do)
                finally:
                    self.wake()
        finally:
            self._core.report()

    def wake(self) -> None:
        """Under the lock: wake the threads, if they would sleep past the next request."""
        if self._buffer.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._heartbeater is not None:
            self._heartbeater.wake()
        if self._wake_ups is not None:
            self._wake_ups.wake()

    def wake_all(self) -> None:
        """Under the lock, after the assignment has changed: wake also the call that waits for records."""
        self._arrived.notify_all()
        self.wake()

    def interrupt(self) -> None:
        """Let the call that waits look again. Needs no lock: signal handlers and other threads call it."""
        self._arrived.interrupt()

    def stop(self) -> None:
        """End the threads.

        Waits for the requests in flight, and until the group has heard that the member leaves, if it does.
        """
        with self.lock:
            self._is_stopping = True
            self._buffer.close()
            self._sleep.end()
            self._arrived.notify_all()
            if self._buffer.waiting.watch is not None:
                self._buffer.waiting.watch.close()
            self.wake()
        self._workers.end()
        if self._wake_ups is not None:
            self._wake_ups.end()
        if self._heartbeater is not None:
            self._heartbeater.join()

    def _after_heartbeat(self) -> None:
        self._core.release_idle()
        self.wake()  # the heartbeat may have found records

    def _look_again(self) -> None:
        self._buffer.look_again()
        self.wake()

    def _do(self, effect: HttpRequest | Wait | Notice) -> Document:
        self.wake()
        if isinstance(effect, Wait):
            self._arrived.wait(effect.until_ms)
            return {}
        with released(self.lock):
            if isinstance(effect, Notice):
                effect.callback(effect.partitions)
                return {}
            return self._client.document(effect)

    def _share(self) -> None:
        """Share with the other consumers of this process that read as the same caller. Without credentials, alone.

        Other credentials make another caller. The fetcher looks as often as an answer may grow old.
        """
        self._reader_due_ms = monotonic_ms() + SDK_SHARED_MS
        reader: Hashable = None
        with suppress(PenstockError):  # a fetch tells it
            reader = self._client.reader()
        if reader == self._reader:
            return
        self._reader = reader
        sharing = None if reader is None else SharedReader(shared_reads_of(reader), self._sleep.interrupt)
        with self.lock:
            if not self._is_stopping:
                self._buffer.share(sharing)

    def _next_request(self) -> FetchRequest | None:
        if monotonic_ms() >= self._reader_due_ms:
            self._share()
        with self.lock:
            while not self._is_stopping:
                request = self._buffer.next_request(monotonic_ms())
                if self._wake_ups is not None:
                    self._wake_ups.wake()  # the buffer may want to watch other partitions now
                if request is not None:
                    return request
                self._sleep.until(self._buffer.wake_at_ms)
        return None

    def _carry(self, request: FetchRequest) -> None:
        answer = drive(fetch(request), self._client.try_once)
        with self.lock:
            self._buffer.complete(request, answer, monotonic_ms(), random_fraction())
            self._arrived.notify_all()
            self.wake()
