"""A producer of the SDK: its own accumulator decides what to send, and tasks of the simulation carry the requests."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.producer.batching.accumulator import UNKNOWN_OFFSET, Accumulator, Entry
from penstock.producer.batching.pacing import AccumulatorSettings
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues, tag_filter_of
from penstock.retry import RetryPolicy
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.outcomes import Outcomes
from penstock_core.records.codec import Headers
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.describe_topic import describe_topic
from tests.history import format as history
from tests.history.recorder import OpenOperation
from tests.simulation.engine.claims import SentValue
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_METADATA_MS = 5_000
_LOOK_MS = 25  # a sender looks for a request so often
_IDLE_LOOKS = 400  # it may pass over so many while there is no record
_IDEMPOTENT_SHARE = 0.7
_REPEATED_SHARE = 0.1
T = TypeVar("T")


@dataclass(slots=True)
class _SentBatch:
    """A batch that has been sent at least once."""

    operation: OpenOperation
    attempts: int = 0
    results: list[int | PenstockError] = field(default_factory=list)


class SimulatedProducer:
    """Sends `records` records to one topic, then waits for the outcome of each."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        topic: str,
        *,
        records: int,
        acks: Acks,
        pace_ms: float,
        max_in_flight: int = 2,
        is_batching: bool = True,
        is_idempotent: bool | None = None,
        is_tagging: bool = False,
        key_of: Callable[[str], str | None] | None = None,
        is_partitioning_by_key: bool = False,
        expires_in_ms: Sequence[int | None] = (),
    ) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._name = name
        self._key_of = key_of
        self._is_partitioning_by_key = is_partitioning_by_key
        self._acks = acks
        self._records = records
        self._pace_ms = pace_ms
        self._is_tagging = is_tagging
        self._expires_in_ms = expires_in_ms
        self._max_in_flight = max_in_flight
        random = simulation.scheduler.random
        settings = AccumulatorSettings(
            linger_ms=random.choice([0, 5, 50]) if is_batching else 0,
            batch_bytes=random.choice([120, 200, 400]) if is_batching else 80,  # 80: a batch, an append per record
            request_bytes=random.choice([600, 2_000]) if is_batching else 200,
            buffer_bytes=2_000,
            delivery_timeout_ms=random.choice([3_000, 20_000]),
            compression=Compression.NONE,
            retry=None if acks is Acks.NONE else RetryPolicy(backoff_ms=20, backoff_max_ms=1_000),
            is_idempotent=random.random() < _IDEMPOTENT_SHARE if is_idempotent is None else is_idempotent,
        )
        self._accumulator = Accumulator(settings, random.randrange)
        self._queues = TopicQueues(topic)
        self._sent_batches: dict[ProducerBatch, _SentBatch] = {}
        self._batches: dict[ProducerBatch, None] = {}  # without an outcome, in the order of their records
        self._in_flight = 0
        self._resting: dict[Task, float] = {}  # senders without a request, and since when
        self._has_sent_all = False
        self._is_idempotent = settings.is_idempotent

    def start(self, delay_ms: float = 0.0) -> None:
        self._simulation.work(self._name, self._run, delay_ms=delay_ms)
        for number in range(self._max_in_flight):
            self._simulation.work(f"{self._name}.{number}", self._send, delay_ms=delay_ms)

    def _run(self) -> None:
        for number in range(self._records):
            self._scheduler.pause(self._scheduler.random.random() * self._pace_ms)
            value = f"{self._name}-{number}"
            while (batch := self._append(value)) is None:
                self._scheduler.pause(20.0)
            self._end_rests()
            batch.followers.append(value)
            self._batches[batch] = None
            self._simulation.claims.sent[value] = SentValue(
                batch.topic, batch.partition, self._acks, self._is_idempotent
            )
        self._accumulator.flush_waiters = 1
        self._accumulator.wake_at_ms = 0
        self._has_sent_all = True
        self._end_rests()

    def _append(self, value: str) -> ProducerBatch | None:
        now_ms = int(self._scheduler.now_ms)
        if self._queues.fresh_until_ms <= now_ms and not self._describe():
            return None
        headers = headers_of(value) if self._is_tagging else ()
        if self._expires_in_ms:
            headers = self._simulation.oracle.expiries.headers(value, self._expires_in_ms, headers)
        key = self._key(value)
        record_key = None if key is None else key.encode()
        time_ms = EPOCH_MS + now_ms
        partition = None
        if self._is_partitioning_by_key and record_key is not None:
            partition = self._queues.first + partition_for_key(record_key, self._queues.partitions)
        return self._accumulator.append(self._queues, partition, record_key, value.encode(), headers, time_ms, now_ms)

    def _describe(self) -> bool:
        name = self._queues.name
        try:
            topic, _ = self._simulation.call(
                lambda instance: describe_topic(instance.topic_cache, instance.stores.log, name), is_read=True
            )
        except PenstockError:
            self._scheduler.pause(50.0)
            return self._queues.partitions > 0 and self._scheduler.random.random() < 0.5
        batch_bytes_max = topic.config.max_batch_bytes
        self._queues.update(topic.writable_partitions, 10_000, batch_bytes_max, topic.first_writable)
        self._queues.has_tags = topic.config.index_tags
        self._queues.fresh_until_ms = int(self._scheduler.now_ms) + _METADATA_MS
        return True

    def _send(self) -> None:
        while not self._has_sent_all or self._in_flight or self._accumulator.unfinished():
            now_ms = int(self._scheduler.now_ms)
            self._follow_up(self._accumulator.expire(now_ms))
            entries = self._accumulator.drain(now_ms)
            self._note_moves()
            if entries:
                self._in_flight += 1
                self._carry(entries)
                self._in_flight -= 1
            elif self._in_flight or self._accumulator.unfinished():
                self._scheduler.pause(min(max(self._accumulator.wake_at_ms - now_ms, 1), _LOOK_MS))
            else:
                self._rest()

    def _rest(self) -> None:
        """Pass over the looks until there is a record, as if each had found nothing: hours without one cost little."""
        task = self._scheduler.current
        self._resting[task] = self._scheduler.now_ms
        self._scheduler.on_pause(task)
        self._scheduler.block(_IDLE_LOOKS * _LOOK_MS)
        self._resting.pop(task, None)

    def _end_rests(self) -> None:
        """Each sender looks when it would have looked next."""
        for task, began_ms in self._resting.items():
            looks = (self._scheduler.now_ms - began_ms) // _LOOK_MS + 1
            self._scheduler.wake(task, began_ms + looks * _LOOK_MS)
        self._resting.clear()

    def _carry(self, entries: list[Entry]) -> None:
        began_ms = self._scheduler.now_ms
        for entry in entries:
            for batch in entry.batches:
                self._begin(batch)
        sent = [
            ProduceEntry(
                topic=entry.queue.topic.name,
                partition=entry.queue.partition,
                data=b"".join(batch.build() for batch in entry.batches),
                tag_filter=tag_filter_of(entry.batches),
                may_expire=any(batch.may_expire for batch in entry.batches),
            )
            for entry in entries
        ]
        results: list[int | PenstockError]
        try:
            answers = self._simulation.call(lambda instance: self._produce(instance, sent), is_read=False)
            results = [answer if isinstance(answer, PenstockError) else int(answer.base_offset) for answer in answers]
        except PenstockError as error:
            results = [error] * len(entries)
        for entry, data, result in zip(entries, sent, results, strict=True):
            self._claim(entry, result, began_ms)
            if isinstance(result, int) and self._is_idempotent and self._scheduler.random.random() < _REPEATED_SHARE:
                self._repeat_later(entry, data, result)
        chance = self._scheduler.random.random()
        finished = self._accumulator.complete(entries, results, int(self._scheduler.now_ms), chance)
        self._note_moves()
        self._follow_up(finished)

    def _note_moves(self) -> None:
        """Follow the records of batches that have moved: those of one partition in their order."""
        moved = [batch for batch in self._batches if batch.places is not None]
        for batch in sorted(moved, key=lambda each: each.partition):
            self._move(batch)
        self._batches = {each: None for each in self._batches if each.places is None and each.outcome is None}

    def _move(self, batch: ProducerBatch) -> None:
        """The partition was closed, so nothing of the batch is there: other batches have its records now."""
        self._simulation.count("batch moved")
        if batch in self._sent_batches:
            self._simulation.recorder.fail(self._sent_batches.pop(batch).operation)
        for value, (taker, index) in zip(batch.followers, batch.places or (), strict=True):
            expect(len(taker.followers) == index, f"{value} is record {index} of a batch with {taker.followers}")
            taker.followers.append(value)
            self._batches[taker] = None
            self._simulation.claims.sent[value].partition = taker.partition

    def _repeat_later(self, entry: Entry, sent: ProduceEntry, offset: int) -> None:
        """Send the request again later: a network may deliver it once more, long after its answer."""
        simulation = self._simulation

        def repeat() -> None:
            for value in (value for batch in entry.batches for value in batch.followers):
                # A topic that was made anew knows nothing of this producer, and may take the repeat.
                simulation.claims.sent[value].maybe += 1
            try:
                [answer] = simulation.call(lambda instance: self._produce(instance, [sent]), is_read=False)
            except PenstockError:
                return
            if isinstance(answer, AppendedRange):
                is_stable = sent.topic not in simulation.claims.topic_changes
                expect(answer.base_offset == offset or not is_stable, f"{sent} at {offset} was repeated: {answer}")
                simulation.count("repeat answered")
            elif answer.code is ErrorCode.PARTITION_CLOSED:
                is_stable = sent.topic not in simulation.claims.topic_changes
                expect(not is_stable, f"{sent} at {offset} was repeated, and is refused: {answer}")

        self._scheduler.spawn(
            f"{self._name} again", repeat, delay_ms=self._scheduler.random.choice([1.0, 100.0, 20_000.0])
        )

    def _produce(self, instance: Instance, sent: list[ProduceEntry]) -> Outcomes[AppendedRange]:
        return produce(instance, sent, self._acks)

    def _begin(self, batch: ProducerBatch) -> None:
        if batch not in self._sent_batches:
            where = (batch.topic, batch.partition)
            sends = [history.Send(where, value, None, None, self._key(value)) for value in batch.followers]
            acks = history.Acks(self._acks.value)
            operation = self._simulation.recorder.invoke(self._name, history.Function.SEND, sends, acks=acks)
            self._sent_batches[batch] = _SentBatch(operation)
        self._sent_batches[batch].attempts += 1

    def _key(self, value: str) -> str | None:
        return None if self._key_of is None else self._key_of(value)

    def _claim(self, entry: Entry, result: int | PenstockError, began_ms: float) -> None:
        claims = self._simulation.claims
        offset = result if isinstance(result, int) else 0
        for batch in entry.batches:
            for value in batch.followers:
                if isinstance(result, int):
                    claims.acknowledge(value, offset, began_ms)
                    offset += 1
                elif result.maybe_applied or result.code is ErrorCode.DUPLICATE_SEQUENCE:
                    claims.sent[value].maybe += 1
        if isinstance(result, PenstockError) and result.code.category is Category.NOT_FOUND:
            self._scheduler.note("told", result.code.name, entry.queue.topic.name, entry.queue.partition)

    def _follow_up(self, finished: list[ProducerBatch]) -> None:
        for batch in (batch for batch in finished if batch.places is None):
            way = self._sent_batches.pop(batch, None)
            self._scheduler.note("outcome", batch.followers[0], len(batch.followers), batch.outcome)
            if way is None:
                continue
            recorder = self._simulation.recorder
            attempts = 1 if self._is_idempotent else way.attempts  # each may have left a copy, without idempotence
            if isinstance(batch.outcome, int):
                where = (batch.topic, batch.partition)
                offset = None if batch.outcome == UNKNOWN_OFFSET else batch.outcome
                sends = [
                    history.Send(where, value, None if offset is None else offset + index, None, self._key(value))
                    for index, value in enumerate(batch.followers)
                ]
                recorder.ok(way.operation, sends, attempts=attempts)
            elif batch.outcome is not None and batch.maybe_applied:
                recorder.maybe(way.operation, attempts=attempts)
            else:
                recorder.fail(way.operation)


def headers_of(value: str) -> Headers:
    """The headers of a record of a producer that tags: the last character of its value is its tag."""
    return (("tag", value[-1].encode()),)


def count_outcomes(simulation: Simulation) -> Counter[str]:
    """Count the records by the outcome that their producers know."""
    counts: Counter[str] = Counter()
    for sent in simulation.claims.sent.values():
        counts["acknowledged" if sent.acked else "maybe" if sent.maybe else "failed"] += 1
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerChoices:
    """Each producer draws one value of each sequence. Of `acks` None, it draws from what the simulation allows."""

    records: Sequence[int]
    pace_ms: Sequence[float]
    acks: Acks | None = None
    max_in_flight: Sequence[int] = (2,)
    is_batching: bool = True
    is_idempotent: bool | None = None
    is_tagging: bool = False
    expires_in_ms: Sequence[int | None] = ()


def start_producers(
    simulation: Simulation, topic: str, names: Iterable[str], choices: ProducerChoices, *, is_late: bool = False
) -> None:
    """Start a producer of each name: now, or each at a later time of its own."""
    random = simulation.scheduler.random

    def drawn(values: Sequence[T]) -> T:
        return values[0] if len(values) == 1 else random.choice(values)

    for name in names:
        producer = SimulatedProducer(
            simulation,
            name,
            topic,
            records=drawn(choices.records),
            acks=random.choice(simulation.acks_allowed) if choices.acks is None else choices.acks,
            pace_ms=drawn(choices.pace_ms),
            max_in_flight=drawn(choices.max_in_flight),
            is_batching=choices.is_batching,
            is_idempotent=choices.is_idempotent,
            is_tagging=choices.is_tagging,
            expires_in_ms=choices.expires_in_ms,
        )
        producer.start(delay_ms=simulation.later() if is_late else 0.0)
