"""The threads that carry an Accumulator's requests to the service.

Up to `max_in_flight` threads share one lock; everything slow (compression, the call, callbacks) happens outside it.
"""

import logging
import random
import threading
from collections.abc import Sequence
from typing import Any

from penstock.accumulator import Accumulator, Entry
from penstock.client import Client, monotonic_ms
from penstock.delivery import follow_up
from penstock.errors import ClosedError, UnavailableError, error_from_json
from penstock.producer_batch import ProducerBatch
from penstock.worker_threads import WorkerThreads, seconds_until
from penstock_core.errors import ErrorCode, PenstockError

_log = logging.getLogger("penstock.producer")


class Sender:
    """Drives an accumulator. `lock` guards it: hold it to append; `progress` tells of finished batches."""

    def __init__(self, accumulator: Accumulator, client: Client, *, acks: str, max_in_flight: int) -> None:
        self.lock = threading.Lock()
        self.progress = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._accumulator = accumulator
        self._client = client
        self._acks = acks
        self._sleeps_until_ms = -1
        self._in_flight: set[ProducerBatch] = set()
        self._threads = WorkerThreads("penstock-sender", max_in_flight, self._next_request, self._carry)
        self._is_stopping = False

    def wake(self) -> None:
        """Under the lock, after an append: let the sender look, if it would sleep past what there is to do."""
        if self._accumulator.wake_at_ms < self._sleeps_until_ms:
            self._sleeps_until_ms = -1
            self._work.notify()

    def start(self) -> None:
        """Start the threads, once."""
        self._threads.start()

    def flush(self, deadline_ms: int) -> bool:
        """Send without lingering, and wait for all that was appended before; False if the time ran out."""
        with self.lock:
            waiting = {*self._accumulator.unfinished(), *self._in_flight}
            self._accumulator.hurry += 1
            self._look_now()
            while any(batch.outcome is None for batch in waiting):
                now_ms = monotonic_ms()
                if now_ms >= deadline_ms:
                    break
                self.progress.wait(seconds_until(deadline_ms, now_ms))
            self._accumulator.hurry -= 1
            return all(batch.outcome is not None for batch in waiting)

    def wait_for_memory(self, deadline_ms: int) -> bool:
        """Under the lock: wait for a batch to finish; False if the time ran out."""
        timeout_ms = deadline_ms - monotonic_ms()
        if timeout_ms <= 0:
            return False
        self._accumulator.hurry += 1
        self._look_now()
        self.progress.wait(timeout_ms / 1_000)
        self._accumulator.hurry -= 1
        return True

    def stop(self) -> None:
        """Fail what is still queued, and wait for the threads to end: for the requests in flight, that is."""
        with self.lock:
            self._is_stopping = True
            finished = self._accumulator.abandon(ClosedError("the producer was closed before the record was delivered"))
            self._work.notify_all()
            self.progress.notify_all()
        follow_up(finished)
        self._threads.join()

    def _look_now(self) -> None:
        self._accumulator.wake_at_ms = 0
        self.wake()

    def _next_request(self) -> list[Entry] | None:
        """Wait for something to send; None when stopping."""
        while True:
            with self.lock:
                now_ms = monotonic_ms()
                expired = self._accumulator.expire(now_ms)
                if expired:
                    self.progress.notify_all()
                else:
                    entries = self._accumulator.drain(now_ms)
                    if entries:
                        self._in_flight.update(batch for entry in entries for batch in entry.batches)
                        return entries
                    if self._is_stopping:
                        return None
                    self._sleep(now_ms)
            follow_up(expired)

    def _sleep(self, now_ms: int) -> None:
        self._sleeps_until_ms = wake_at_ms = self._accumulator.wake_at_ms
        self._work.wait(seconds_until(wake_at_ms, now_ms))
        self._sleeps_until_ms = -1

    def _carry(self, entries: list[Entry]) -> None:
        try:
            results = [_result(answer) for answer in self._produce(entries)]
        except PenstockError as error:
            results = [error] * len(entries)
        except Exception as error:  # this thread's edge: a defect must not leave records waiting for ever
            _log.exception("produce failed in an unexpected way")
            defect = UnavailableError(ErrorCode.INTERNAL, f"produce failed: {error!r}", maybe_applied=True)
            results = [defect] * len(entries)
        self._complete(entries, results)

    def _produce(self, entries: list[Entry]) -> list[dict[str, Any]]:
        chunks = [[batch.build() for batch in entry.batches] for entry in entries]
        header = {
            "acks": self._acks,
            "batches": [
                {"topic": entry.queue.topic.name, "partition": entry.queue.partition, "length": sum(map(len, chunk))}
                for entry, chunk in zip(entries, chunks, strict=True)
            ],
        }
        return self._client.produce(header, [data for chunk in chunks for data in chunk])

    def _complete(self, entries: list[Entry], results: Sequence[int | PenstockError]) -> None:
        chance = random.random()  # noqa: S311 - jitter, not a secret
        with self.lock:
            finished = self._accumulator.complete(entries, results, monotonic_ms(), chance)
            self._in_flight.difference_update(batch for entry in entries for batch in entry.batches)
            self.progress.notify_all()
            self.wake()
        follow_up(finished)


def _result(answer: dict[str, Any]) -> int | PenstockError:
    if "error" in answer:
        return error_from_json(answer["error"])
    base_offset: int = answer["base_offset"]
    return base_offset
