"""Sends the records of one archived partition through the produce path. Runs on executors.

A lane is an idempotent producer. Its producer id is derived from the replay's id and the source partition. A record's
sequence in a target partition is the number of the lane's records that went there before it. So the target's index
tells which records have arrived (docs/adr/0010), in the same update that makes them visible.

A lane may start again after a kill, or run twice because Spark took one for dead. Both send the same records with the
same numbers and skip the records that the target has, so no record appears twice. The lane needs no other notes.

A change of the target's partitions may close them meanwhile (docs/protocol/partitions). Then each of them has a prefix
of the lane's records for it, for ever, and the rest goes to the partitions behind. So a lane looks for a record in
`earlier` partitions first. It finds it there in each run, or in none.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import MIB, REQUEST_PARTITIONS_MAX
from penstock_core.log.topic import Topic
from penstock_core.records.codec import BatchBuilder, Headers, record_bytes_max, time_of
from penstock_core.records.expiry import has_expiry
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.producer_state import SEQUENCE_MAX
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import ProduceEntry, produce
from penstock_spark.replay.replay_source import RowSource, RowWindow, Selection

REQUEST_BYTES = 2 * MIB  # about; each request makes one segment

_ROWS = 8_192  # rows that are Python objects at once; bounds a task's memory
_BARE_BYTES = record_bytes_max(None, None)
_ATTEMPTS_MAX = 8  # tries to append; with full jitter, the waits between them sum to 13 s at most
_RETRY_BASE_MS, _RETRY_CAP_MS = 100, 10_000
_EPOCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """The target of a replay.

    `by_key` spreads records by their keys; else each partition goes to the same one in the target. `partitions` take
    new records there, from `first` on. `earlier` has the first one and the number of those that took them before, since
    the replay began. No partition is in two of them.
    """

    replay_id: str
    topic: str
    topic_id: str
    partitions: int
    by_key: bool
    compression: Compression
    records_per_second: float | None  # of each lane
    started_ms: int  # the time of records without one: the same in each run of a replay
    first: int = 0
    earlier: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A partition's next windows. `counts` holds how many of its earlier records went to each target partition."""

    partition: int
    windows: tuple[RowWindow, ...]
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """The result of a lane.

    `counts` holds the lane's counts behind its windows. Of the windows' records, `appended` were appended now, and
    `repeated` by an earlier run. `is_closed`: a partition takes no more records, and the lane has to send its windows
    again, to other ones. `counts` are those before its windows then.
    """

    partition: int
    counts: Mapping[int, int]
    appended: int
    repeated: int
    is_closed: bool = False


def replay_lane(
    instance: Instance, rows: RowSource, selection: Selection, target: ReplayTarget, lane: Lane
) -> LaneResult:
    """Append the windows' records to the target in order, except the records that it already has.

    Costs, for each target partition, of earlier placements too, one read of the head, and one of the producer's item if
    the head has evicted the producer. Then appends about 2 MiB at a time. Raises UNKNOWN_TOPIC if the target was
    deleted, and the errors of `produce`. The records
    appended until then stay, and count.

    Two runs of a replay may meet in a lane. Each turn of the loop needs progress by the other run, so the loop ends.
    """
    before: Mapping[int, int] | None = None
    while True:
        sender = _Sender(instance, target, lane)
        try:
            for window in lane.windows:
                sender.add(rows.read(window, selection))
            return sender.close()
        except PenstockError as error:
            if error.code is ErrorCode.PARTITION_CLOSED:
                return sender.refused(lane.counts)
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE:
                raise
            # Another run of this replay sends the same records. Read how far it is; it must have made progress.
            now = {partition: _arrived(instance, target, lane.partition, partition) for partition in sender.arrived}
            if now == before:
                raise
            before = now


def producer_id_of(replay_id: str, partition: int) -> int:
    """The lane's producer id: 63 bits of a hash.

    Another replay, partition or random draw hits the same id with chance 2^-63.
    """
    return int.from_bytes(sha256(f"{replay_id}/{partition}".encode()).digest()[:8], "big") >> 1


class _Sender:
    """Appends a lane's records. `arrived` counts the lane's records in each target partition."""

    def __init__(self, instance: Instance, target: ReplayTarget, lane: Lane) -> None:
        self._instance = instance
        self._target = target
        self._lane = lane
        self._topic = _find_topic(instance, target)
        self._producer_id = producer_id_of(target.replay_id, lane.partition)
        self._counts = Counter(lane.counts)
        self._waiting: dict[int, _PendingRecords] = {}
        self._waiting_bytes = 0
        self._started_ms = instance.clock.monotonic_ms()
        self._appended = self._repeated = 0
        self.arrived: dict[int, int] = {}

    def add(self, table: pa.Table) -> None:
        for key, value, timestamp_ms, headers in _records(table, self._target.started_ms):
            partition, number = self._place(key)
            self._counts[partition] = number + 1
            if number < self.arrived[partition]:
                self._repeated += 1
                continue
            if number > SEQUENCE_MAX:
                raise PenstockError(
                    ErrorCode.INVALID_REQUEST,
                    f"partition {self._lane.partition} has more than {SEQUENCE_MAX} records to replay: replay it in "
                    "several ranges, each under its own --replay-id",
                )
            waiting = self._waiting.get(partition)
            if waiting is None:
                waiting = self._waiting[partition] = _PendingRecords(self._builder, self._producer_id, number)
            waiting.append(timestamp_ms, key, value, headers)
            self._waiting_bytes += _BARE_BYTES + len(key or b"") + len(value or b"")
            if headers:
                self._waiting_bytes += record_bytes_max(None, None, headers)
            if self._waiting_bytes >= REQUEST_BYTES:
                self._flush()

    def _place(self, key: bytes | None) -> tuple[int, int]:
        """The partition of the next record, and its number there: where it is already, or where new records go."""
        partition = 0
        for first, count in (*self._target.earlier, (self._target.first, self._target.partitions)):
            is_keyed = self._target.by_key and key is not None
            partition = first + (partition_for_key(key or b"", count) if is_keyed else self._lane.partition % count)
            if partition not in self.arrived:
                self.arrived[partition] = _arrived(self._instance, self._target, self._lane.partition, partition)
            if self._counts[partition] < self.arrived[partition]:
                break
        return partition, self._counts[partition]

    def refused(self, counts: Mapping[int, int]) -> LaneResult:
        return LaneResult(
            partition=self._lane.partition,
            counts=counts,
            appended=self._appended,
            repeated=self._repeated,
            is_closed=True,
        )

    def close(self) -> LaneResult:
        self._flush()
        return LaneResult(
            partition=self._lane.partition,
            counts=dict(self._counts),
            appended=self._appended,
            repeated=self._repeated,
        )

    def _builder(self) -> BatchBuilder:
        return BatchBuilder(self._target.compression, batch_bytes=self._topic.config.max_batch_bytes)

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = sorted(self._waiting.items()), {}, 0
        for start in range(0, len(waiting), REQUEST_PARTITIONS_MAX):
            entries = {
                partition: ProduceEntry(
                    topic=self._target.topic,
                    partition=partition,
                    data=each.build(),
                    is_own_encoding=True,
                    may_expire=each.may_expire,
                )
                for partition, each in waiting[start : start + REQUEST_PARTITIONS_MAX]
            }
            _produce(self._instance, entries)
        for partition, each in waiting:
            self.arrived[partition] = each.end
            self._appended += each.records
        self._keep_pace()

    def _keep_pace(self) -> None:
        if self._target.records_per_second is not None:
            due_ms = self._appended / self._target.records_per_second * 1_000
            ahead_ms = due_ms - (self._instance.clock.monotonic_ms() - self._started_ms)
            if ahead_ms > 0:
                self._instance.clock.sleep_ms(ahead_ms)


class _PendingRecords:
    """Records for one target partition, in batches with consecutive sequences."""

    def __init__(self, new_builder: Callable[[], BatchBuilder], producer_id: int, first: int) -> None:
        self._new_builder = new_builder
        self._producer_id = producer_id
        self._first = self._batch_first = self.end = first
        self._builder = new_builder()
        self._batches: list[bytes] = []
        self.may_expire = False

    @property
    def records(self) -> int:
        return self.end - self._first

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        if not self._builder.append(timestamp_ms, key, value, headers):
            self._finish()
            self._builder.append(timestamp_ms, key, value, headers)
        self.may_expire = self.may_expire or has_expiry(headers)
        self.end += 1

    def build(self) -> bytes:
        self._finish()
        return b"".join(self._batches)

    def _finish(self) -> None:
        batch = self._builder.build(
            producer_id=self._producer_id, producer_epoch=_EPOCH, base_sequence=self._batch_first
        )
        self._batches.append(batch)
        self._batch_first += self._builder.record_count
        self._builder = self._new_builder()


def _produce(instance: Instance, entries: Mapping[int, ProduceEntry]) -> None:
    """Append all entries.

    An entry that may have been appended is sent again with the same bytes, so it is never there twice.
    """
    left = dict(entries)
    for attempt in range(_ATTEMPTS_MAX):
        results: Sequence[AppendedRange | PenstockError]
        try:
            results = produce(instance, list(left.values()), Acks.QUORUM)
        except PenstockError as error:
            results = [error] * len(left)
        failed = {
            partition: result
            for partition, result in zip(left, results, strict=True)
            if isinstance(result, PenstockError) and result.code is not ErrorCode.DUPLICATE_SEQUENCE
        }
        if not failed:
            return
        for failure in failed.values():
            if not (failure.code.is_retriable or failure.maybe_applied) or attempt + 1 == _ATTEMPTS_MAX:
                raise failure
        left = {partition: left[partition] for partition in failed}
        chance = int.from_bytes(instance.entropy.random_bytes(4), "big") / 2**32
        instance.clock.sleep_ms(full_jitter_ms(attempt, _RETRY_BASE_MS, _RETRY_CAP_MS, chance))


def _arrived(instance: Instance, target: ReplayTarget, source: int, partition: int) -> int:
    """The number of the lane's records in the target partition.

    One read, and one more if the head evicted the producer.
    """
    topic = _find_topic(instance, target)
    key = PartitionKey(topic.topic_id, Partition(partition))
    head = instance.stores.log.heads([key]).get(key)
    if head is None:
        raise deleted(target)
    producer_id = producer_id_of(target.replay_id, source)
    state = head.producers.get(producer_id) or instance.stores.log.evicted_producer(key, producer_id)
    return 0 if state is None else state.last_sequence + 1


def _find_topic(instance: Instance, target: ReplayTarget) -> Topic:
    topic = instance.topic_cache.read_through(target.topic)
    if topic.topic_id != target.topic_id:
        raise deleted(target)
    return topic


def deleted(target: ReplayTarget) -> PenstockError:
    """The error for a target that was deleted since the replay began."""
    return PenstockError(
        ErrorCode.UNKNOWN_TOPIC,
        f"topic {target.topic!r} was deleted since the replay into it began: give another --replay-id to begin again",
    )


def _records(table: pa.Table, started_ms: int) -> Iterator[tuple[bytes | None, bytes | None, int, Headers]]:
    for start in range(0, table.num_rows, _ROWS):
        rows = table.slice(start, _ROWS)
        times: list[int] = rows["timestamp"].cast(pa.int64()).to_pylist()
        headers: list[list[dict[str, Any]] | None] = rows["headers"].to_pylist()
        for key, value, time_us, found in zip(
            rows["key"].to_pylist(), rows["value"].to_pylist(), times, headers, strict=True
        ):
            time_ms = time_of(time_us // 1_000, started_ms)
            yield key, value, time_ms, [(each["key"], each["value"]) for each in found] if found else ()
