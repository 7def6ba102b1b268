"""The messages that a channel has in flight, and the threads that fetch them: one for each queue that it consumes.

    wait for room -> ShareConsumer.poll -> ready -> drain_events -> unacknowledged -> accept, release, reject

- Ready and unacknowledged messages together are `prefetch_count` at most. A record beyond that goes back at once,
  uncounted, so that another worker gets it. A share consumer that has quick tasks acquires ahead; what no task takes
  within two seconds goes back, too (penstock.share.keeper).
- A reader without room asks for nothing. A reader with room sleeps in its share consumer until a wake-up.
- The share consumer renews the lock of each message until the message is acknowledged. A message whose lock is lost is
  not delivered. Celery may have the message already; then the task may run in two workers.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from penstock import PenstockError, ShareConsumer
from penstock.errors import LockLostError
from penstock.model.share import ShareRecord

UNBOUNDED_RECORDS = 100  # ready at once, where the application sets no prefetch_count
_POLL_MS = 3_600_000  # `stop` ends a poll; this bounds nothing that matters


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A record that the channel holds the lock of."""

    tag: int
    reader: "QueueReader"
    record: ShareRecord


class Deliveries:
    """The messages of one channel. `changed` is the condition that all channels of a connection share."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.prefetch_count = 0
        self.ready: deque[InFlight] = deque()
        self.unacknowledged: dict[int, InFlight] = {}
        self.error: PenstockError | None = None
        self._tags = count(1)

    def room(self) -> int:
        """Under `changed`: how many more records the channel may hold."""
        if self.prefetch_count:
            return max(0, self.prefetch_count - len(self.ready) - len(self.unacknowledged))
        return max(0, UNBOUNDED_RECORDS - len(self.ready))

    def next(self) -> InFlight | None:
        """Under `changed`: the next message, which is unacknowledged from now on. Raises a reader's error."""
        while self.ready:
            found = self.ready.popleft()
            if found.reader.is_held(found.record):
                self.unacknowledged[found.tag] = found
                return found
            self.changed.notify_all()  # there is room for another one
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return None

    def wait_for_room(self, reader: "QueueReader") -> int:
        """Wait until there is room for a record. 0 when the reader is stopped."""
        with self.changed:
            while not reader.is_stopped and not self.room():
                self.changed.wait()
            return 0 if reader.is_stopped else self.room()

    def take(self, reader: "QueueReader", records: Sequence[ShareRecord]) -> Sequence[ShareRecord]:
        """Make as many records ready as there is room for. Returns the others."""
        with self.changed:
            most = 0 if reader.is_stopped else self.room()
            for record in records[:most]:
                self.ready.append(InFlight(tag=next(self._tags), reader=reader, record=record))
            self.changed.notify_all()
        return records[most:]

    def settle(self, tag: int, *, multiple: bool = False) -> list[InFlight]:
        """Forget an unacknowledged message, with `multiple` all that came before it, too. Empty if there is none."""
        with self.changed:
            tags = [each for each in self.unacknowledged if each == tag or (multiple and (not tag or each <= tag))]
            found = [self.unacknowledged.pop(each) for each in tags]
            self.changed.notify_all()
        return found

    def withdraw(self, reader: "QueueReader") -> list[InFlight]:
        """Forget what the reader has made ready."""
        with self.changed:
            found = [each for each in self.ready if each.reader is reader]
            self.ready = deque(each for each in self.ready if each.reader is not reader)
            self.changed.notify_all()
        return found

    def lose(self, records: Sequence[ShareRecord]) -> None:
        """The locks of these records have ended: give back what is ready. A lock without a taker is released so."""
        with self.changed:
            lost = [each for each in self.ready if each.record in records]
            self.ready = deque(each for each in self.ready if each.record not in records)
            self.changed.notify_all()
        for each in lost:
            each.reader.release(each.record, is_counted=False)

    def fail(self, error: PenstockError) -> None:
        """Let the next `drain_events` raise it."""
        with self.changed:
            self.error = error
            self.changed.notify_all()


class QueueReader:
    """Consumes one queue for a channel, in a thread of its own. It owns the share consumer."""

    def __init__(
        self,
        queue: str,
        consumer: ShareConsumer,
        deliveries: Deliveries,
        callback: Callable[[Any], object],
        *,
        is_acknowledged: bool,
    ) -> None:
        self.queue = queue
        self.callback = callback
        self.is_acknowledged = is_acknowledged
        self.is_stopped = False
        self._consumer = consumer
        self._deliveries = deliveries
        self._thread = threading.Thread(target=self._read, name=f"penstock-queue-{queue}", daemon=True)
        self._thread.start()

    def is_held(self, record: ShareRecord) -> bool:
        """False once the service has said that the lock is lost."""
        return self._consumer.is_held(record)

    def accept(self, record: ShareRecord) -> bool:
        """The message is done. False if its lock was lost: the service hands it out again."""
        try:
            self._consumer.accept(record)
        except LockLostError:
            return False
        return True

    def reject(self, record: ShareRecord, reason: str) -> None:
        """The message goes to the dead letters."""
        with suppress(LockLostError):
            self._consumer.reject(record, reason)

    def release(self, record: ShareRecord, *, is_counted: bool) -> None:
        """The message comes again: after the group's backoff, or at once if the delivery does not count."""
        with suppress(LockLostError):
            self._consumer.release(record, is_counted=is_counted)

    def stop(self) -> None:
        """Fetch no more, and give back what is not delivered. Delivered messages stay locked."""
        with self._deliveries.changed:
            self.is_stopped = True
            self._deliveries.changed.notify_all()
        self._consumer.stop()
        self._thread.join()
        for each in self._deliveries.withdraw(self):
            self.release(each.record, is_counted=False)

    def close(self) -> None:
        """After `stop`: send what is acknowledged, and wait for the answers, 5 seconds at most."""
        self._consumer.close()

    def _read(self) -> None:
        try:
            while room := self._deliveries.wait_for_room(self):
                records = self._consumer.poll(room, timeout_ms=_POLL_MS)
                for record in self._deliveries.take(self, records):
                    self.release(record, is_counted=False)
        except PenstockError as error:
            self._deliveries.fail(error)
