"""A reader of the SDK: its own fetch buffer decides what to fetch. One task of the simulation fetches and hands out."""

from typing import Any

from penstock.consumer.fetch_buffer import FetchBuffer, FetchRequest, FetchSettings
from penstock.model import ConsumerRecord, TopicPartition
from penstock.retry import RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.outcomes import Outcomes
from penstock_core.records.codec import decode
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.topics.describe_topic import describe_topic
from tests.history import format as history
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_REST_MS_MAX = 3_000.0
_OBSERVED_BYTES = 10_000


class SimulatedReader:
    """Reads all partitions of one topic from their start until the run is over."""

    def __init__(self, simulation: Simulation, name: str, topic: str, *, is_topic_stable: bool) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._name = name
        self._topic = topic
        self._is_topic_stable = is_topic_stable  # the topic is never created again
        random = simulation.scheduler.random
        self._wait_ms = random.choice([0, 300])
        self._max_records = random.choice([1, 5, 1_000])
        self._buffer = FetchBuffer(
            FetchSettings(
                fetch_max_bytes=random.choice([100, 1_000, 100_000]),
                fetch_wait_ms=self._wait_ms,
                buffer_bytes=300_000,
                max_in_flight=1,
                offset_reset="earliest",
                retry=RetryPolicy(backoff_ms=20, backoff_max_ms=500),
            )
        )
        self._expected: dict[TopicPartition, int] = {}
        self.positions: dict[int, int] = {}  # by partition: the offset that a consumer would commit

    def start(self) -> None:
        self._scheduler.spawn(self._name, self._run)

    def _run(self) -> None:
        described_at_ms = -1e9
        rest_ms = 0.0  # in runs that take minutes, it grows with each fetch that brings nothing
        while not self._simulation.is_over:
            if self._scheduler.now_ms - described_at_ms > 2_000.0:
                described_at_ms = self._scheduler.now_ms
                self._assign()
            request = self._buffer.next_request(int(self._scheduler.now_ms))
            if request is None:
                self._scheduler.pause_between_polls(40.0)
            else:
                self._fetch(request)
                is_slowing = not self._hand_out() and self._simulation.lasts_ms > 0
                rest_ms = min(rest_ms * 2 + 50.0, _REST_MS_MAX) if is_slowing else 0.0
                self._scheduler.pause_between_polls(rest_ms + self._scheduler.random.choice([0.1, 10.0, 100.0]))

    def _assign(self) -> None:
        try:
            topic, _ = self._simulation.call(
                lambda instance: describe_topic(instance.topic_cache, instance.stores.log, self._topic), is_read=True
            )
        except PenstockError:
            return
        # If a topic is made anew with fewer partitions, the missing ones get no answer. The SDK's users see the same.
        count = max(topic.partitions, len(self._buffer.assignment()))
        known = self._buffer.assignment()
        partitions = [TopicPartition(self._topic, number) for number in range(count)]
        if len(known) == count:
            return
        self._buffer.assign(partitions)
        for partition in partitions:
            if partition not in self._expected:
                self._seek(partition, 0)
        kept = tuple((each.topic, each.partition) for each in partitions if each in known)
        started = tuple(((each.topic, each.partition), 0) for each in partitions if each not in known)
        self._simulation.recorder.done(self._name, history.Function.ASSIGN, [history.Assign(kept, started)])

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._expected[partition] = offset
        self._buffer.seek(partition, offset)

    def _fetch(self, request: FetchRequest) -> None:
        entries = [FetchEntry(**wanted) for wanted in request.body["partitions"]]
        acked_ends = [self._simulation.claims.acked_ends.get((entry.topic, entry.partition), 0) for entry in entries]
        random = self._scheduler.random
        try:
            results = self._simulation.call(
                lambda instance: self._ask(instance, entries, request.body["max_bytes"]), is_read=True
            )
        except PenstockError as error:
            self._buffer.fail(request, error, int(self._scheduler.now_ms), random.random())
            return
        self._check_answer(entries, results, acked_ends)
        answers = [_to_json(result) for result in results]
        body = b"".join(result.data for result in results if isinstance(result, FetchResult))
        generations = [cursor.generation for cursor in request.cursors]
        self._buffer.accept(request, answers, memoryview(body), int(self._scheduler.now_ms), random.random())
        for cursor, generation in zip(request.cursors, generations, strict=True):
            if cursor.generation != generation and cursor.position is not None:
                self._was_reset(cursor.partition, cursor.position)

    def _ask(self, instance: Instance, entries: list[FetchEntry], max_bytes: int) -> Outcomes[FetchResult]:
        return fetch(instance, entries, max_bytes=max_bytes, min_bytes=1, wait_ms=self._wait_ms)

    def _check_answer(self, entries: list[FetchEntry], results: Outcomes[FetchResult], acked_ends: list[int]) -> None:
        for entry, result, acked_end in zip(entries, results, acked_ends, strict=True):
            if isinstance(result, PenstockError):
                self._check_error(entry, result)
                continue
            expect(
                result.log_start_offset <= entry.offset <= result.next_offset <= result.high_watermark,
                f"a fetch of {entry.topic}[{entry.partition}] from {entry.offset} answered {result.log_start_offset}"
                f" <= {result.next_offset} <= {result.high_watermark}",
            )
            expect(bool(result.data) == (result.next_offset > entry.offset), "a fetch moved on without data")
            expect(
                not self._is_topic_stable or result.high_watermark >= acked_end,
                f"high watermark of {entry.topic}[{entry.partition}] is {result.high_watermark}, although {acked_end}"
                " was acknowledged before it was asked for",
            )
        fetched = [result for result in results if isinstance(result, FetchResult)]
        expect(
            len(fetched) < len(results)
            or any(result.data for result in fetched)
            or all(result.next_offset == result.high_watermark for result in fetched),
            "a fetch below the high watermark brought nothing",
        )

    def _check_error(self, entry: FetchEntry, error: PenstockError) -> None:
        """Check that removed data is reported with its bounds, and that only spoilt data is reported as corrupt."""
        what = f"a fetch of {entry.topic}[{entry.partition}] from {entry.offset} answered {error}"
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = int(error.facts["log_start_offset"]), int(error.facts["high_watermark"])
            expect(start <= end and not start <= entry.offset <= end, what)
        is_spoilt = bool(self._simulation.counts["object lost"] or self._simulation.counts["object spoilt"])
        expect(is_spoilt or error.code is not ErrorCode.CORRUPT_SEGMENT, what)

    def _was_reset(self, partition: TopicPartition, offset: int) -> None:
        self._scheduler.note("reset", partition, offset)
        self._expected[partition] = offset
        seek = history.Seek((partition.topic, partition.partition), offset)
        self._simulation.recorder.done(self._name, history.Function.SEEK, [seek])

    def _hand_out(self) -> int:
        """Hand out all buffered records, and return their number."""
        count = 0
        recorder = self._simulation.recorder
        while True:
            poll = recorder.invoke(self._name, history.Function.POLL)
            try:
                records = self._buffer.take(self._max_records)
            except PenstockError as error:
                recorder.fail(poll)
                self._scheduler.note("raised", error)
                for partition in self._buffer.assignment():  # go on at the same position, as an application would
                    self._buffer.seek(partition, self._expected[partition])
                return count
            by_partition: dict[TopicPartition, list[tuple[int, str]]] = {}
            for record in records:
                by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(
                    self._checked(record)
                )
            recorder.ok(
                poll, [history.Poll((at.topic, at.partition), tuple(found)) for at, found in by_partition.items()]
            )
            if not records:
                return count
            count += len(records)

    def _checked(self, record: ConsumerRecord) -> tuple[int, str]:
        partition = TopicPartition(record.topic, record.partition)
        value = (record.value or b"").decode()
        expected = self._expected[partition]
        expect(record.offset == expected, f"{self._name} got offset {record.offset} of {partition}, not {expected}")
        self._expected[partition] = record.offset + 1
        self.positions[partition.partition] = record.offset + 1
        expect(
            self._simulation.oracle.log.value_at(record.topic, record.partition, record.offset, value),
            f"{self._name} read {value!r} at offset {record.offset} of {partition}, where it was never appended",
        )
        return record.offset, value


def _to_json(result: FetchResult | PenstockError) -> dict[str, Any]:
    """Encode the result as penstock_handlers/fetch.py does."""
    if isinstance(result, PenstockError):
        return {"error": result.to_json()}
    return {
        "log_start_offset": result.log_start_offset,
        "high_watermark": result.high_watermark,
        "next_offset": result.next_offset,
        "length": len(result.data),
    }


class Observer:
    """Reads from the log start until the run is over."""

    def __init__(self, simulation: Simulation, name: str, topic: str) -> None:
        self._simulation = simulation
        self._name = name
        self._topic = topic
        self._positions = dict.fromkeys(range(simulation.topics[topic]), 0)

    def start(self) -> None:
        started = tuple(((self._topic, partition), 0) for partition in self._positions)
        self._simulation.recorder.done(self._name, history.Function.ASSIGN, [history.Assign((), started)])
        self._simulation.scheduler.spawn(self._name, self._run)

    def _run(self) -> None:
        random = self._simulation.scheduler.random
        while not self._simulation.is_over:
            for partition in random.sample([*self._positions], len(self._positions)):
                self._look(partition)
            self._simulation.scheduler.pause_between_polls(random.choice([0.1, 20.0, 300.0]))

    def _look(self, partition: int) -> None:
        recorder, position = self._simulation.recorder, self._positions[partition]
        entry = FetchEntry(topic=self._topic, partition=partition, offset=position, max_bytes=_OBSERVED_BYTES)
        operation = recorder.invoke(self._name, history.Function.POLL)
        try:
            [result] = self._simulation.call(
                lambda instance: fetch(instance, [entry], max_bytes=_OBSERVED_BYTES, min_bytes=0, wait_ms=0),
                is_read=True,
            )
        except PenstockError as error:
            result = error
        where = (self._topic, partition)
        if isinstance(result, FetchResult):
            records = tuple(
                (int(record.offset), (record.value or b"").decode())
                for record in decode(memoryview(result.data))
                if record.offset >= position
            )
            self._positions[partition] = int(result.next_offset)
            recorder.ok(operation, [history.Poll(where, records, int(result.high_watermark))])
            return
        recorder.fail(operation)
        if result.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = int(result.facts["log_start_offset"])
            recorder.done(self._name, history.Function.SEEK, [history.Seek(where, self._positions[partition])])
