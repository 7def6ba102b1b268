"""The copy of one topic, chunk by chunk. Each chunk is one transaction: its records, and the note of them.

    begin an epoch -> read the notes -> seek the source -> (read a chunk -> commit it)*

A new epoch fences each earlier process that copies the same topics, so no chunk of it commits after the notes were
read. The notes tell how far the copy is. So a process may die at any point, and the next one goes on without a loss and
without a record twice. After a transaction whose outcome is not known, the copier does the same in its own process.

A chunk: the records of one transaction, and how far each partition is read with them.
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
    IMPORT_CHUNK_BYTES,
    IMPORT_CHUNK_MS,
    IMPORT_CHUNK_RECORDS,
    IMPORT_PARTITIONS_MAX,
    IMPORT_READ_MS,
    MIB,
)
from penstock_core.records.codec import record_bytes_max, time_of
from penstock_core.records.record_batch import BATCH_HEADER_BYTES
from penstock_import.copying.starts import KEEP, Placement, StartSettings, first_positions
from penstock_import.progress.chunk_note import ChunkNote, SourceRange, TargetRange, runs_of
from penstock_import.progress.progress_topic import ProgressTopic
from penstock_import.progress.rounds import Rounds, WaitReport, fenced_by_others, transactional_id_of
from penstock_import.source.records import ReachedEnd, SourceEvent, SourceRecord, SourceTopic, TopicSource

_log = logging.getLogger("penstock.import")
_OVERHEAD_BYTES = 100  # of a record in memory on top of its key, value and headers


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


class Chunk:
    """Records from `positions` on. It is full at a bound of records, of bytes, or of partitions that take them."""

    def __init__(self, positions: Mapping[int, int], placement: Placement) -> None:
        self.records: list[tuple[int, SourceRecord]] = []  # with the partition that each goes to
        self.positions = dict(positions)  # behind all events that were added
        self.skipped = 0
        self._starts = dict(positions)
        self._placement = placement
        self._counts: dict[int, int] = {}
        self._bytes = 0

    def add(self, event: SourceEvent, *, is_skipped: bool = False) -> bool:
        """Take the event; false if there is no room. A skipped record leaves a gap."""
        if isinstance(event, ReachedEnd):
            self._pass(event.partition, event.offset)
            return True
        if is_skipped:
            self.skipped += 1
            self._pass(event.partition, event.offset + 1)
            return True
        target = self._placement.target(event)
        if self.is_full or (target not in self._counts and len(self._counts) >= IMPORT_PARTITIONS_MAX):
            return False
        self.records.append((target, event))
        self._counts[target] = self._counts.get(target, 0) + 1
        self._bytes += _OVERHEAD_BYTES + len(event.key or b"") + len(event.value or b"")
        self._bytes += sum(len(name) + len(value or b"") for name, value in event.headers)
        self._pass(event.partition, event.offset + 1)
        return True

    @property
    def is_full(self) -> bool:
        """No further record has room."""
        return len(self.records) >= IMPORT_CHUNK_RECORDS or self._bytes >= IMPORT_CHUNK_BYTES

    @property
    def has_moved(self) -> bool:
        """A partition is read further, by a record or by a gap."""
        return self.positions != self._starts

    def note(self, topic_id: str, bounds: Mapping[int, int]) -> ChunkNote:
        """The note that commits with the records. `bounds` has an offset at or below the next one of each partition."""
        offsets: dict[int, list[int]] = {}
        for _, record in self.records:
            offsets.setdefault(record.partition, []).append(record.offset)
        sources = {
            each: SourceRange(
                start=self._starts[each],
                next_offset=self.positions[each],
                runs=runs_of(self._starts[each], offsets.get(each, ())),
            )
            for each in self.positions
            if self.positions[each] != self._starts[each]
        }
        targets = {each: TargetRange(bounds.get(each, 0), count) for each, count in self._counts.items()}
        if self._placement.mode == KEEP:
            targets |= {each: TargetRange(bounds.get(each, 0), 0) for each in sources.keys() - targets.keys()}
        return ChunkNote(topic_id=topic_id, mode=self._placement.mode, sources=sources, targets=targets)

    def ends(self, firsts: Mapping[int, int]) -> Mapping[int, int]:
        """The offset behind the chunk's records in each partition; `firsts` has that of the first record there."""
        return {each: first + self._counts[each] for each, first in firsts.items()}

    def _pass(self, partition: int, offset: int) -> None:
        self.positions[partition] = max(offset, self.positions.get(partition, offset))


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
