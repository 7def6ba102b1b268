"""The copy of one topic, chunk by chunk. Each chunk is one transaction: its records, and the note of them.

    begin an epoch -> read the notes -> seek the source -> (read a chunk -> commit it)*

A new epoch fences each earlier process that copies the same topics, so no chunk of it commits after the notes were
read. The notes tell how far the copy is. So a process may die at any point, and the next one goes on without a loss and
without a record twice. After a transaction whose outcome is not known, the copier does the same in its own process.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.admin.admin import Admin
from penstock.errors import ConflictError, InvalidError, OffsetOutOfRangeError, RecordTooLargeError
from penstock.http.transport import Transport
from penstock.model import Topic
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET
from penstock.producer.delivery import Delivery
from penstock.producer.producer import Producer
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    BATCH_BYTES_DEFAULT_MAX,
    IMPORT_CHUNK_MS,
    IMPORT_READ_MS,
    MIB,
)
from penstock_core.records.codec import record_bytes_max, time_of
from penstock_core.records.record_batch import BATCH_HEADER_BYTES
from penstock_import.copying.chunk import Chunk
from penstock_import.copying.placement import Placement
from penstock_import.copying.starts import StartSettings, first_positions
from penstock_import.progress.chunk_note import ChunkNote, SourceRange, TargetRange
from penstock_import.progress.progress_topic import ProgressTopic
from penstock_import.progress.rounds import Rounds, WaitReport, fenced_by_others, transactional_id_of
from penstock_import.source.records import SourceEvent, SourceRecord, SourceTopic, TopicSource

_log = logging.getLogger("penstock.import")


class CopyReport(WaitReport, Protocol):
    """The one to tell how the copy goes."""

    def resumed(self, positions: Mapping[int, int], *, is_first: bool) -> None:
        """The copy goes on from these offsets of the source, or begins there."""

    def copied(self, records: int, skipped: int, lag: int) -> None:
        """So many records in all are copied and were skipped by this process; the source is so far ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """The source, the topic, and the way of the copy. With `skips_too_large`, large records are left out."""

    source: SourceTopic
    topic: Topic
    placement: Placement
    start: StartSettings
    skips_too_large: bool = False

    @property
    def transactional_id(self) -> str:
        """One for each pair of source and topic: two processes that copy the same fence each other."""
        return transactional_id_of(self.source.identity, self.topic.name)


class Copier:
    """Copies until it is stopped, or until `is_over` says so."""

    def __init__(self, reader: TopicSource, transport: Transport, settings: CopySettings, report: CopyReport) -> None:
        self.positions: dict[int, int] = {}
        self.records = 0
        self.skipped = 0
        self._reader = reader
        self._settings = settings
        self._report = report
        self._admin = Admin(transport=transport)
        self._producer = Producer(
            transport=transport,
            transactional_id=settings.transactional_id,
            trace_records=False,
            batch_bytes=min(MIB, int(settings.topic.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))),
        )
        self.progress = ProgressTopic(transport, settings.topic.name, settings.source.identity)
        self._bounds: dict[int, int] = {}
        self._backlog: deque[SourceEvent] = deque()
        self._next_note = 0
        self.has_read = False  # since it last sought the source
        self._has_begun = False  # a round of this process has sought it
        self._is_over: Callable[[Mapping[int, int]], bool] = lambda _: False
        self.rounds = Rounds(report)

    @property
    def lag(self) -> int:
        """About how many records the source is ahead. No request."""
        return self._reader.lag(self.positions) + len(self._backlog)

    def close(self) -> None:
        """End the producer. The reader is the caller's."""
        self._producer.close()

    def is_at_end(self) -> bool:
        """Ask the source: no partition holds more than is copied. Partitions that are new there make it false.

        The copy takes them in before its next chunk: it begins a round anew.
        """
        held = self._reader.bounds()
        if held.keys() != self.positions.keys():
            self.rounds.is_ready = False
        return all(self.positions.get(each, -1) >= bounds.end for each, bounds in held.items())

    def run(self, is_over: Callable[[Mapping[int, int]], bool]) -> None:
        """Copy until `is_over(positions)` or `rounds.stop`. Raises the error that no further try heals."""
        self._is_over = is_over
        self.rounds.run(self)

    def advance(self) -> bool:
        """Copy one chunk. False where the copy is over."""
        if self._is_over(self.positions):
            return False
        self.step()
        return True

    def may_pass(self, error: PenstockError) -> bool:
        """Tell if the error is retriable, or says that the source has forgotten what comes next."""
        return error.code.is_retriable or (self.rounds.is_ready and isinstance(error, OffsetOutOfRangeError))

    def prepare(self) -> None:
        """Begin an epoch, read the notes, and seek the source. The first time, note where each partition begins."""
        self._fenced_by_others(self._producer.init_transactions)
        self._backlog.clear()
        for offset, value in self.progress.notes(self._admin, self._next_note):
            note = ChunkNote.decode(value)
            self._take(note)
            self._next_note = offset + 1
            if self._has_begun:  # a commit of this process, whose answer was lost
                self.records += sum(each.records for each in note.sources.values())
        self._bounds = self._ends_of(self._settings.topic.name)
        known = dict(self.positions)
        held = self._reader.bounds()
        settings = self._settings
        settings.placement.check(len(held), settings.source.topic, settings.topic.name)
        start = settings.start.again() if self._has_begun else settings.start
        positions = first_positions(start, settings.topic.name, held, known, self._bounds)
        moved = {each: at for each, at in positions.items() if known.get(each) != at}
        if moved:
            self._commit_starts(moved)
        self._reader.start(positions)
        self.positions = dict(positions)
        self.has_read, self._has_begun = False, True
        self.rounds.is_ready = True
        self._report.resumed(positions, is_first=not known)

    def step(self) -> None:
        """Copy one chunk; or wait a little where there is nothing to copy."""
        chunk = self._gather()
        self.has_read = True
        if chunk.records:
            self._fenced_by_others(lambda: self._commit(chunk))
        if chunk.has_moved:
            self.positions = chunk.positions
            self.records += len(chunk.records)
            self.skipped += chunk.skipped
        self._report.copied(self.records, self.skipped, self.lag)

    def _gather(self) -> Chunk:
        chunk = Chunk(self.positions, self._settings.placement)
        deadline_ms = monotonic_ms() + IMPORT_CHUNK_MS
        while not chunk.is_full and monotonic_ms() < deadline_ms:
            if not self._backlog:
                self._backlog.extend(self._reader.read(IMPORT_READ_MS))
                if not self._backlog:
                    break
            if not chunk.add(self._backlog[0], is_skipped=self._is_skipped(self._backlog[0])):
                break
            self._backlog.popleft()
        return chunk

    def _is_skipped(self, event: SourceEvent) -> bool:
        if not isinstance(event, SourceRecord):
            return False
        place = f"{self._settings.source.topic}[{event.partition}] offset {event.offset}"
        if event.key is None and self._settings.topic.is_compacted:
            raise InvalidError(
                ErrorCode.INVALID_RECORD,
                f"{place} has no key, and topic {self._settings.topic.name!r} is compacted: set its cleanup_policy to "
                "delete by `penstock topics alter` to copy such records",
            )
        limit = int(self._settings.topic.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))
        size = record_bytes_max(event.key, event.value, event.headers)
        if size <= limit - BATCH_HEADER_BYTES:
            return False
        if not self._settings.skips_too_large:
            raise RecordTooLargeError(
                ErrorCode.RECORD_TOO_LARGE,
                f"{place} has about {size:,} bytes, and max_batch_bytes of topic {self._settings.topic.name!r} is "
                f"{limit:,}: raise it by `penstock topics alter`, or leave such records out by --skip-too-large",
                limit=limit,
            )
        _log.warning("%s was left out: %d bytes", place, size)
        return True

    def _commit(self, chunk: Chunk) -> None:
        topic = self._settings.topic
        note, now_ms = chunk.note(topic.topic_id, self._bounds), wall_clock_ms()
        firsts: dict[int, Delivery] = {}
        with self._producer.transaction() as transaction:
            for target, record in chunk.records:
                sent = transaction.send(
                    topic.name,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=target,
                    timestamp_ms=time_of(record.timestamp_ms, now_ms),
                )
                firsts.setdefault(target, sent)
            noted = transaction.send(self.progress.name, note.encode(), key=self.progress.key, partition=0)
        if self._follow_note(noted):
            self._bounds |= chunk.ends({each: sent.result().offset for each, sent in firsts.items()})
        else:
            self._bounds = self._ends_of(topic.name)

    def _commit_starts(self, positions: Mapping[int, int]) -> None:
        """Note where partitions begin that no note names. Options of the first run need not be given again then."""
        placement = self._settings.placement
        note = ChunkNote(
            topic_id=self._settings.topic.topic_id,
            mode=placement.mode,
            sources={each: SourceRange(start=at, next_offset=at) for each, at in positions.items()},
            targets={each: TargetRange(bound, 0) for each, bound in self._bounds.items()},
        )
        with self._producer.transaction() as transaction:
            noted = transaction.send(self.progress.name, note.encode(), key=self.progress.key, partition=0)
        self._follow_note(noted)

    def _follow_note(self, noted: Delivery) -> bool:
        """Begin the next look at the notes behind this one. False if the commit is known, and its offsets are not."""
        offset = noted.result().offset
        is_known = offset != UNKNOWN_OFFSET
        self._next_note = offset + 1 if is_known else self._ends_of(self.progress.name)[0]
        return is_known

    def _ends_of(self, topic: str) -> dict[int, int]:
        return {each: end or 0 for each, end in self._admin.list_offsets(topic).items()}

    def _take(self, note: ChunkNote) -> None:
        settings = self._settings
        if note.topic_id != settings.topic.topic_id:
            raise ConflictError(
                ErrorCode.CONCURRENT_UPDATE,
                f"topic {self.progress.name!r} notes a copy to an earlier topic {settings.topic.name!r}: delete "
                f"{self.progress.name!r} to copy from the beginning",
            )
        if note.mode != settings.placement.mode:
            raise ConflictError(
                ErrorCode.CONCURRENT_UPDATE,
                f"the copy began with --partitions {note.mode}: go on with it, or delete the topics "
                f"{settings.topic.name!r} and {self.progress.name!r} and begin anew",
            )
        self.positions |= {each: found.next_offset for each, found in note.sources.items()}

    def _fenced_by_others(self, call: Callable[[], object]) -> None:
        message = (
            f"another `penstock import` of {self._settings.source.identity} to {self._settings.topic.name!r} has begun "
            "since: one process copies a topic"
        )
        fenced_by_others(call, message)
