"""The drain of a queue. Each round is receive, commit, delete.

    begin an epoch -> read the notes of ids -> (receive -> commit records and ids -> delete)*

The records of a round and the ids of its messages commit in one transaction, before SQS forgets the messages. A message
that comes again is known by its id, and is only deleted: after a crash between commit and delete, too. One process
drains a queue: a new epoch fences each earlier one.

The memory of messages that were taken: SQS may hand each of them out again.

A note of their ids commits in one transaction with their records. The memory is bounded: a message that comes again
after so many others is taken for a new one, and its header `sqs-message-id` tells it apart.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.admin.admin import Admin
from penstock.errors import InvalidError, RecordTooLargeError
from penstock.http.transport import Transport
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET
from penstock.producer.producer import Producer
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    IMPORT_CHUNK_BYTES,
    IMPORT_CHUNK_MS,
    IMPORT_MESSAGE_IDS_KEPT,
    IMPORT_MESSAGES,
)
from penstock_core.records.codec import time_of
from penstock_import.progress.progress_topic import ProgressTopic
from penstock_import.progress.rounds import Rounds, WaitReport, fenced_by_others, transactional_id_of
from penstock_import.queue.sqs import MessageQueue, QueueMessage

_VERSION = 1


class DrainReport(WaitReport, Protocol):
    """The one to tell how the drain goes."""

    def drained_so_far(self, records: int, repeats: int, undeleted: int) -> None:
        """Records taken, messages that came again, and deletes that failed, of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSettings:
    """The topic to fill. An empty queue ends the drain unless it `follows`; a receive waits `wait_ms`."""

    topic: str
    wait_ms: int
    follows: bool = False


class Drain:
    """Drains one queue into one topic."""

    def __init__(self, queue: MessageQueue, transport: Transport, settings: DrainSettings, report: DrainReport) -> None:
        self.records = 0
        self.repeats = 0
        self.undeleted = 0
        self._queue = queue
        self._settings = settings
        self._report = report
        self._admin = Admin(transport=transport)
        self._producer = Producer(
            transport=transport,
            transactional_id=transactional_id_of(queue.identity, settings.topic),
            trace_records=False,
        )
        self.progress = ProgressTopic(transport, settings.topic, queue.identity)
        self._taken = TakenIds()
        self._in_hand: list[QueueMessage] = []  # received, and not committed yet
        self._next_note: int | None = None
        self.rounds = Rounds(report)

    def close(self) -> None:
        """End the producer."""
        self._producer.close()

    def run(self) -> None:
        """Drain until the queue is empty, or until `rounds.stop`. Raises the error that no further try heals."""
        self.rounds.run(self)

    def advance(self) -> bool:
        """Drain one round. False where the queue is empty."""
        return self.step() > 0 or self._settings.follows

    def may_pass(self, error: PenstockError) -> bool:
        """Tell if the error is retriable."""
        return error.code.is_retriable

    def prepare(self) -> None:
        """Begin an epoch, and read the ids that were taken: as many notes as ids are kept, at most."""
        self._fenced_by_others(self._producer.init_transactions)
        if self._next_note is None:
            end = self._admin.list_offsets(self.progress.name, "latest")[0] or 0
            self._next_note = max(0, end - IMPORT_MESSAGE_IDS_KEPT)
        before = [each for each in self._in_hand if each.message_id in self._taken]
        for offset, value in self.progress.notes(self._admin, self._next_note):
            self._taken.add(decode_ids(value))
            self._next_note = offset + 1
        # Messages in hand that a commit without an answer has taken are no repeats, although the next round finds them.
        learnt = sum(each.message_id in self._taken for each in self._in_hand) - len(before)
        self.records += learnt
        self.repeats -= learnt
        self.rounds.is_ready = True

    def step(self) -> int:
        """One round. Returns how many messages it had, repeats included."""
        if not self._in_hand:
            self._receive()
        messages = self._in_hand
        fresh = self._fresh(messages)
        if fresh:
            self._fenced_by_others(lambda: self._commit(fresh))
        self.records += len(fresh)
        self.repeats += len(messages) - len(fresh)
        self._in_hand = []
        if messages:
            self.undeleted += self._queue.delete(messages)
        self._report.drained_so_far(self.records, self.repeats, self.undeleted)
        return len(messages)

    def _receive(self) -> None:
        """Fill the hand: the first receive waits, the others take what is there."""
        deadline_ms = monotonic_ms() + IMPORT_CHUNK_MS
        size_bytes = 0
        wait_ms = self._settings.wait_ms
        while len(self._in_hand) < IMPORT_MESSAGES and size_bytes < IMPORT_CHUNK_BYTES and not self.rounds.is_stopped:
            found = self._queue.receive(wait_ms)
            self._in_hand += found
            size_bytes += sum(each.size_bytes for each in found)
            wait_ms = 0
            if not found or monotonic_ms() >= deadline_ms:
                return

    def _fresh(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """The messages that were not taken before, each once."""
        fresh: dict[str, QueueMessage] = {}
        for each in messages:
            if each.message_id not in self._taken:
                fresh.setdefault(each.message_id, each)
        return list(fresh.values())

    def _commit(self, messages: Sequence[QueueMessage]) -> None:
        ids, now_ms = [each.message_id for each in messages], wall_clock_ms()
        with self._producer.transaction() as transaction:
            for each in messages:
                try:
                    transaction.send(
                        self._settings.topic,
                        each.body,
                        key=each.key,
                        headers=each.headers,
                        timestamp_ms=time_of(each.sent_ms, now_ms),
                    )
                except RecordTooLargeError as error:
                    raise RecordTooLargeError(
                        ErrorCode.RECORD_TOO_LARGE,
                        f"message {each.message_id} of about {each.size_bytes:,} bytes: {error.message}. Raise "
                        f"max_batch_bytes of topic {self._settings.topic!r} by `penstock topics alter`",
                    ) from error
            noted = transaction.send(self.progress.name, encode_ids(ids), key=self.progress.key, partition=0)
        self._taken.add(ids)
        offset = noted.result().offset
        if offset != UNKNOWN_OFFSET:  # else a later look reads this note again
            self._next_note = offset + 1

    def _fenced_by_others(self, call: Callable[[], object]) -> None:
        message = (
            f"another `penstock import` of {self._queue.identity} to {self._settings.topic!r} has begun since: one "
            "process drains a queue"
        )
        fenced_by_others(call, message)


class TakenIds:
    """The latest ids, the oldest first."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Iterable[str]) -> None:
        """Remember them, and forget the oldest beyond the bound."""
        for each in ids:
            self._ids.pop(each, None)
            self._ids[each] = None
        while len(self._ids) > IMPORT_MESSAGE_IDS_KEPT:
            del self._ids[next(iter(self._ids))]


def encode_ids(ids: Iterable[str]) -> bytes:
    """The note of ids."""
    return json.dumps({"v": _VERSION, "ids": list(ids)}, separators=(",", ":")).encode()


def decode_ids(value: bytes) -> list[str]:
    """The ids of a note. Raises InvalidError for bytes that are none, or of a later release."""
    try:
        found = json.loads(value)
        if found["v"] == _VERSION:
            return [str(each) for each in found["ids"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(
            ErrorCode.UNSUPPORTED_FORMAT, f"the progress topic has a record that is no note: {value[:100]!r}"
        ) from error
    raise InvalidError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"a note of version {found['v']!r:.20}: a later release has written it; use that",
    )
