"""The records of one archived partition, sent on through the produce path. Runs on executors.

A lane is an idempotent producer: its id is drawn from the replay's id and the source partition, and a record's sequence
in a target partition is how many of the lane's records went there before it. So the target's index says what has
arrived (docs/adr/0010), in the very update that makes it visible. A lane that starts again, after a kill or beside
another that was thought dead, sends the same records with the same numbers, passes over what is there, and nothing is
there twice. Nothing else has to be written down.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.keys import PartitionKey
from penstock_core.limits import MIB, REQUEST_PARTITIONS_MAX, UNLIMITED
from penstock_core.partitioner import partition_for_key
from penstock_core.producer_state import SEQUENCE_MAX
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import BatchBuilder, Headers, record_bytes_max
from penstock_core.topic import Topic
from penstock_spark.replay_source import RowSource, Selection, Window

REQUEST_BYTES = 2 * MIB  # sent at once, about: in one segment

_ROWS = 8_192  # that are Python objects at once
_BARE_BYTES = record_bytes_max(None, None)
_ATTEMPTS_MAX = 8
_RETRY_BASE_MS, _RETRY_CAP_MS = 100, 10_000
_EPOCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a replay goes, and how. `by_key` spreads records by their keys, else each partition goes to its own."""

    replay_id: str
    topic: str
    topic_id: str
    partitions: int
    by_key: bool
    compression: Compression
    records_per_second: float | None  # of each lane
    allows_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A partition's next windows, and how many of its records went to each target partition before them."""

    partition: int
    windows: tuple[Window, ...]
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDone:
    """`counts` as they are behind the windows; of their records, `appended` now and `repeated` by a run before."""

    partition: int
    counts: Mapping[int, int]
    appended: int
    repeated: int


def replay_lane(broker: Broker, rows: RowSource, selection: Selection, target: Target, lane: Lane) -> LaneDone:
    """Appends the windows' records to the target in their order, except those that are there.

    A read of the head, and of the producer's item where the head knows it no more, for each target partition; then an
    append of about 2 MiB after the other. Raises UNKNOWN_TOPIC if the target was deleted, INVALID_REQUEST for records
    that retention would remove at once, and what `produce` refuses; what is appended by then stays, and counts.
    """
    before: Mapping[int, int] | None = None
    while True:
        sender = _Sender(broker, target, lane)
        try:
            for window in lane.windows:
                sender.add(rows.read(window, selection))
            return sender.close()
        except PenstockError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE:
                raise
            # Another run of this replay is at the same records. Look where it is; it must have come further.
            now = {partition: _arrived(broker, target, lane.partition, partition) for partition in sender.arrived}
            if now == before:
                raise
            before = now


def producer_id_of(replay_id: str, partition: int) -> int:
    """The lane's producer: 63 bits that no other replay or partition gives, nor any random draw is likely to."""
    return int.from_bytes(sha256(f"{replay_id}/{partition}".encode()).digest()[:8], "big") >> 1


class _Sender:
    """Batches on their way. `arrived` is how many of the lane's records each target partition has."""

    def __init__(self, broker: Broker, target: Target, lane: Lane) -> None:
        self._broker = broker
        self._target = target
        self._lane = lane
        self._topic = _find_topic(broker, target)
        self._producer_id = producer_id_of(target.replay_id, lane.partition)
        self._counts = Counter(lane.counts)
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_bytes = 0
        self._started_ms = broker.clock.monotonic_ms()
        self._appended = self._repeated = 0
        self.arrived: dict[int, int] = {}

    def add(self, table: pa.Table) -> None:
        if not self._target.allows_expired:
            _refuse_expired(self._topic, table, self._broker.clock.now_ms())
        own, by_key = self._lane.partition % self._target.partitions, self._target.by_key
        for key, value, timestamp_ms, headers in _records(table):
            partition = partition_for_key(key, self._target.partitions) if by_key and key is not None else own
            number = self._counts[partition]
            self._counts[partition] = number + 1
            if partition not in self.arrived:
                self.arrived[partition] = _arrived(self._broker, self._target, self._lane.partition, partition)
            if number < self.arrived[partition]:
                self._repeated += 1
                continue
            if number > SEQUENCE_MAX:
                raise PenstockError(
                    ErrorCode.INVALID_REQUEST,
                    f"partition {self._lane.partition} has more than {SEQUENCE_MAX} records to replay: replay ranges",
                )
            waiting = self._waiting.get(partition)
            if waiting is None:
                waiting = self._waiting[partition] = _Waiting(self._builder, self._producer_id, number)
            waiting.append(timestamp_ms, key, value, headers)
            self._waiting_bytes += _BARE_BYTES + len(key or b"") + len(value or b"")
            if headers:
                self._waiting_bytes += record_bytes_max(None, None, headers)
            if self._waiting_bytes >= REQUEST_BYTES:
                self._flush()

    def close(self) -> LaneDone:
        self._flush()
        return LaneDone(
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
                partition: ProduceEntry(topic=self._target.topic, partition=partition, data=each.build())
                for partition, each in waiting[start : start + REQUEST_PARTITIONS_MAX]
            }
            _produce(self._broker, entries)
        for partition, each in waiting:
            self.arrived[partition] = each.end
            self._appended += each.records
        self._keep_pace()

    def _keep_pace(self) -> None:
        if self._target.records_per_second is not None:
            due_ms = self._appended / self._target.records_per_second * 1_000
            ahead_ms = due_ms - (self._broker.clock.monotonic_ms() - self._started_ms)
            if ahead_ms > 0:
                self._broker.clock.sleep_ms(ahead_ms)


class _Waiting:
    """Records for one target partition, in batches whose sequences follow each other."""

    def __init__(self, new_builder: Callable[[], BatchBuilder], producer_id: int, first: int) -> None:
        self._new_builder = new_builder
        self._producer_id = producer_id
        self._first = self._batch_first = self.end = first
        self._builder = new_builder()
        self._batches: list[bytes] = []

    @property
    def records(self) -> int:
        return self.end - self._first

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        if not self._builder.append(timestamp_ms, key, value, headers):
            self._finish()
            self._builder.append(timestamp_ms, key, value, headers)
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


def _produce(broker: Broker, entries: Mapping[int, ProduceEntry]) -> None:
    """Until all are appended: what may not have been is sent again as it was, and so never twice."""
    left = dict(entries)
    for attempt in range(_ATTEMPTS_MAX):
        results: Sequence[Appended | PenstockError]
        try:
            results = produce(broker, list(left.values()), Acks.QUORUM)
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
        chance = int.from_bytes(broker.chance.random_bytes(4), "big") / 2**32
        broker.clock.sleep_ms(full_jitter_ms(attempt, _RETRY_BASE_MS, _RETRY_CAP_MS, chance))


def _arrived(broker: Broker, target: Target, source: int, partition: int) -> int:
    """How many of the lane's records the target partition has taken. A read, and one more if the head forgot it."""
    topic = _find_topic(broker, target)
    key = PartitionKey(topic.topic_id, Partition(partition))
    head = broker.log.heads([key]).get(key)
    if head is None:
        raise _deleted(target)
    producer_id = producer_id_of(target.replay_id, source)
    state = head.producers.get(producer_id) or broker.log.evicted_producer(key, producer_id)
    return 0 if state is None else state.last_sequence + 1


def _find_topic(broker: Broker, target: Target) -> Topic:
    topic = broker.directory.look_up(target.topic)
    if topic.topic_id != target.topic_id:
        raise _deleted(target)
    return topic


def _deleted(target: Target) -> PenstockError:
    return PenstockError(
        ErrorCode.UNKNOWN_TOPIC,
        f"topic {target.topic!r} was deleted since the replay into it began: give another --replay-id to begin again",
    )


def _refuse_expired(topic: Topic, table: pa.Table, now_ms: int) -> None:
    retention_ms = topic.config.retention_ms
    if retention_ms == UNLIMITED or not table.num_rows:
        return
    oldest_ms = pc.min(table["timestamp"].cast(pa.int64())).as_py() // 1_000
    if oldest_ms < now_ms - retention_ms:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a record of partition {table['partition'][0].as_py()} has the timestamp {oldest_ms}, and topic "
            f"{topic.name!r} keeps {retention_ms} ms: retention would remove it soon. Raise the topic's retention_ms, "
            "replay later records (--from-time), or give --allow-expired",
        )


def _records(table: pa.Table) -> Iterator[tuple[bytes | None, bytes | None, int, Headers]]:
    for start in range(0, table.num_rows, _ROWS):
        rows = table.slice(start, _ROWS)
        times: list[int] = rows["timestamp"].cast(pa.int64()).to_pylist()
        headers: list[list[dict[str, Any]] | None] = rows["headers"].to_pylist()
        for key, value, time_us, found in zip(
            rows["key"].to_pylist(), rows["value"].to_pylist(), times, headers, strict=True
        ):
            yield key, value, time_us // 1_000, [(each["key"], each["value"]) for each in found] if found else ()
