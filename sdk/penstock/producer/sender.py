# Generated from async_sender.py by `python -m tools.unasync`: change that file.
"""The threads that carry a producer's requests to the service.

Up to `max_in_flight` threads share one lock. Everything slow (compression, calls, callbacks) happens outside it.
"""

from typing import Any

from penstock.arguments import checked_topic
from penstock.encryption.values import Encryption
from penstock.errors import LookUpFirst
from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive
from penstock.producer.batching.accumulator import Entry
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.delivery import resolve
from penstock.producer.produce_call import ProduceResults, produce
from penstock.producer.producer_core import ProducerCore
from penstock.producer.tracing import ProducerTracing
from penstock.schemas.serialization import Serializers
from penstock.system import monotonic_ms, random_fraction, wall_clock_ns
from penstock.workers.workers import Lock, Signal, Sleep, Workers, released
from penstock_core.errors import PenstockError
from penstock_core.records.codec import Headers


class Sender:
    """Drives a producer's core. `lock` guards it."""

    def __init__(
        self,
        core: ProducerCore,
        client: Client,
        *,
        acks: str,
        max_in_flight: int,
        tracing: ProducerTracing,
        encryption: Encryption | None,
        serializers: Serializers,
    ) -> None:
        self.lock = Lock()
        self._progress = Signal(self.lock)
        self._sleep = Sleep(self.lock)
        self._core = core
        self._accumulator = core.accumulator
        self._client = client
        self._acks = acks
        self._tracing = tracing
        self._encryption = encryption
        self._serializers = serializers
        self.is_serializing = bool(serializers)
        self._workers = Workers("penstock-sender", max_in_flight, self._next_request, self._carry)
        self._is_stopping = False

    def formed(self, topic: str, value: Any, key: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        """Value, key and headers as they are sent: serialized, then encrypted. May ask for schema or data key first."""
        if self.is_serializing:
            checked_topic(topic)
            value, key = self._serialized(topic, value, key)
        if self._encryption is not None:
            value, headers = self._encrypted(self._encryption, topic, value, key, headers)
        return value, key, headers

    def _serialized(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        while True:
            try:
                return self._serializers.serialize(topic, value, key)
            except LookUpFirst as missing:
                look_up = missing.look_up
            look_up()

    def _encrypted(
        self, encryption: Encryption, topic: str, value: bytes | str | None, key: bytes | str | None, headers: Headers
    ) -> tuple[bytes | str | None, Headers]:
        checked_topic(topic)
        return encryption.encrypt(topic, value, key=key, headers=headers)

    def wake(self) -> None:
        """Under the lock, after an append: wake the sender, if it would sleep past the next request."""
        if self._accumulator.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()

    @property
    def is_calling_back(self) -> bool:
        """True if the caller is an `on_delivery`: its thread cannot carry what it waits for."""
        return self._workers.has_this_thread

    def drive(self, steps: Steps[Result]) -> Result:
        """Under the lock: carry out a procedure of the core. The lock is released while the procedure waits.

        As of a client's call, an error has no frames of the procedure.
        """
        try:
            return drive(steps, self._do)
        except PenstockError as error:
            raise error.with_traceback(None) from error.__cause__

    def stop(self) -> None:
        """Fail the batches that are still queued, and wait until the threads have finished the requests in flight."""
        self._abandon()
        self._workers.join()

    def _abandon(self) -> None:
        with self.lock:
            self._is_stopping = True
            finished = self._core.abandon()
            self._sleep.end()
            self._progress.notify_all()
        self._tell(finished)

    def _do(self, effect: HttpRequest | Wait) -> Document:
        if isinstance(effect, Wait):
            self.wake()
            self._progress.wait(effect.until_ms)
            return {}
        try:
            with released(self.lock):
                document = self._client.document(effect)
        finally:
            self._progress.notify_all()  # a procedure may wait for this one
        self._workers.start()  # a topic is known now: there may be something to send
        return document

    def _next_request(self) -> list[Entry] | None:
        """Wait for a request to send; None when stopping."""
        while True:
            with self.lock:
                now_ms = monotonic_ms()
                expired = self._accumulator.expire(now_ms)
                if expired:
                    self._progress.notify_all()
                else:
                    entries = self._accumulator.drain(now_ms)
                    if entries:
                        return entries
                    if self._is_stopping:
                        return None
                    self._sleep.until(self._accumulator.wake_at_ms)
            self._tell(expired)

    def _carry(self, entries: list[Entry]) -> None:
        started_ns = wall_clock_ns()
        results: ProduceResults = drive(produce(entries, self._acks), self._client.try_once)
        self._complete(entries, results, started_ns)

    def _complete(self, entries: list[Entry], results: ProduceResults, started_ns: int) -> None:
        with self.lock:
            finished = self._accumulator.complete(entries, results, monotonic_ms(), random_fraction())
            self._progress.notify_all()
            self.wake()
        self._tracing.carried(entries, results, started_ns)
        self._tell(finished)

    def _tell(self, finished: list[ProducerBatch]) -> None:
        """Resolve futures and callbacks, for which a flush waits, too."""
        resolve(finished)
        if finished:
            with self.lock:
                self._progress.notify_all()
