"""The future of one record, cheap enough to make for every record.

A `concurrent.futures.Future` costs about 3 µs to make and resolve, most of it for a lock that no thread waits on. Here
the batch carries the outcome. A record's future becomes a real one (lock, state, callbacks) at its first use.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from penstock.model import RecordMetadata
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock_core.errors import PenstockError
from penstock_core.text import counted

# Called with (error, metadata): error None for a delivered record; for a failed one metadata has offset -1.
DeliveryCallback = Callable[[PenstockError | None, RecordMetadata], None]

_log = logging.getLogger("penstock.producer")
_first_use = Lock()


class Delivery(Future[RecordMetadata]):
    """The future of one record: a `concurrent.futures.Future` in every respect, except that you cannot cancel it.

    `result(timeout)` returns the RecordMetadata or raises the PenstockError that the record failed with. Works with
    `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`.
    """

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        # Not Future.__init__: __getattr__ calls it at the first read of an attribute that it sets.
        self.batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __getattr__(self, name: str) -> Any:
        with _first_use:
            if "_followed" not in self.__dict__:
                Future.__init__(self)
                self.set_running_or_notify_cancel()
                self._followed = True
                # Registered before the outcome is looked at: the batch's driver sets the outcome, then takes the
                # followers, so that one of the two sees the other.
                self.batch.followers.append(self)
                is_finished = self.batch.outcome is not None
            else:
                is_finished = False
        if is_finished:
            self.resolve()
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def cancel(self) -> bool:
        """False: a record that was sent cannot be called back."""
        return False

    def resolve(self) -> None:
        """Take the outcome of the batch. The driver or the first reader calls it, whichever sees the outcome first."""
        with _first_use:
            if "_resolved" in self.__dict__:
                return
            self._resolved = True
        outcome = outcome_of(self.batch, self._index)
        if isinstance(outcome, PenstockError):
            self.set_exception(outcome)
        else:
            self.set_result(metadata_of(self.batch, self._index, self._timestamp_ms))


class CallbackFollower:
    """Calls a user's `on_delivery` when the batch of its record has its outcome."""

    __slots__ = ("_batch", "_callback", "_index", "_timestamp_ms")

    def __init__(self, callback: DeliveryCallback, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._callback = callback
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def resolve(self) -> None:
        """Call it, and log what it raises: an exception there must not fail other records."""
        outcome = outcome_of(self._batch, self._index)
        error = outcome if isinstance(outcome, PenstockError) else None
        try:
            self._callback(error, metadata_of(self._batch, self._index, self._timestamp_ms))
        except Exception:
            _log.exception("on_delivery raised")


class FutureFollowers:
    """Resolves futures of an event loop, in that loop: those of records of one batch that came one after another."""

    __slots__ = ("_batch", "_futures")

    def __init__(self, batch: ProducerBatch) -> None:
        self._batch = batch
        self._futures: list[tuple[asyncio.Future[RecordMetadata], int, int]] = []

    def add(self, future: asyncio.Future[RecordMetadata], index: int, timestamp_ms: int) -> None:
        """Resolve this one, too: that of the record at `index`."""
        self._futures.append((future, index, timestamp_ms))

    def resolve(self) -> None:
        """Take the outcome of the batch, for each future that was not cancelled."""
        for future, index, timestamp_ms in self._futures:
            if future.done():
                continue
            batch, place = self._batch.place_of(index)
            outcome = batch.outcome
            if isinstance(outcome, PenstockError):
                future.set_exception(outcome)
                future.exception()  # `resolve` logs it: asyncio need not, if the program never awaits it
            else:
                future.set_result(_metadata_in(batch, place, timestamp_ms))


def follow(batch: ProducerBatch, future: asyncio.Future[RecordMetadata], index: int, timestamp_ms: int) -> None:
    """The future of the batch's record at `index` waits for the outcome, behind what waits already."""
    followers = batch.followers
    if not followers or followers[-1].__class__ is not FutureFollowers:
        followers.append(FutureFollowers(batch))
    followers[-1].add(future, index, timestamp_ms)


def outcome_of(batch: ProducerBatch, index: int) -> int | PenstockError | None:
    """The outcome of the batch that a record of this one is in now."""
    return batch.place_of(index)[0].outcome


def metadata_of(batch: ProducerBatch, index: int, timestamp_ms: int) -> RecordMetadata:
    """The place of a batch's record. A record that was not delivered has offset -1."""
    return _metadata_in(*batch.place_of(index), timestamp_ms)


def _metadata_in(batch: ProducerBatch, index: int, timestamp_ms: int) -> RecordMetadata:
    base_offset = batch.outcome
    offset = base_offset + index if isinstance(base_offset, int) and base_offset >= 0 else -1
    if batch.timer is None:
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp_ms)
    due_ms, name = batch.timer.deliver_at_ms, batch.timer.scheduled_id(batch.partition)
    return RecordMetadata(batch.topic, batch.partition, offset, timestamp_ms, due_ms, name)


def resolve(batches: list[ProducerBatch]) -> None:
    """Log the batches that failed, and resolve the futures and callbacks of all."""
    for batch in batches:
        outcome = batch.outcome
        if isinstance(outcome, PenstockError):
            records = counted(batch.record_count, "record")
            _log.warning("%s[%d]: %s failed: %s", batch.topic, batch.partition, records, outcome)
    resolve_quietly(batches)


def resolve_quietly(batches: list[ProducerBatch]) -> None:
    """Resolve the futures and callbacks of these batches. Not under the driver's lock: a callback may send."""
    for batch in batches:
        try:
            for follower in batch.followers:
                follower.resolve()
        finally:
            batch.followers = []  # a flush waits for this
