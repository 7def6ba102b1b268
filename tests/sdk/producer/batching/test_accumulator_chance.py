"""The accumulator under any interleaving, against partitions that keep the service's rules in a simpler way.

The numbers that records get, and the records that are sent again after a failure.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.producer.batching.accumulator import UNKNOWN_OFFSET, Accumulator, Entry
from penstock.producer.batching.producer_batch import Numbering, ProducerBatch
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.producer_state import (
    SEQUENCE_MAX,
    ProducerSequence,
    ProducerState,
    Verdict,
    judge,
    state_after,
)
from penstock_core.records.record_batch import validate, walk
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    OUT_OF_ORDER,
    SETTINGS,
    UNAVAILABLE,
    UNKNOWN,
    append,
    counting,
    new_accumulator,
    new_topic,
    values_of,
)


class _Service:
    """Logs of partitions that number producers by the service's rules, in a simpler way."""

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes | None]] = {}
        self._offsets: dict[tuple[int, ProducerSequence], int] = {}
        self._states: dict[tuple[int, int], ProducerState] = {}

    def apply(self, entry: Entry) -> int | PenstockError:
        partition = entry.queue.partition
        sequence = validate(b"".join(batch.build() for batch in entry.batches)).sequence
        if sequence is not None:
            producer = (partition, sequence.producer_id)
            try:
                if judge(self._states.get(producer), sequence) is Verdict.REPEATS:
                    return self._offsets[partition, sequence]
            except PenstockError as error:
                return error
            self._states[producer] = state_after(sequence, 0)
            self._offsets[partition, sequence] = len(self.logs.get(partition, []))
        log = self.logs.setdefault(partition, [])
        base_offset = len(log)
        log += values_of(entry)
        return base_offset


_RESULTS = st.sampled_from(["ok", "ok", "refused", "lost request", "lost answer", "fatal"])
_ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 150)),
    st.tuples(st.just("drain"), st.just(0), st.just(0)),
    st.tuples(st.just("complete"), st.integers(0, 5), st.lists(_RESULTS, min_size=3, max_size=3)),
    st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
)


class _Run:
    """An accumulator, its driver and the partitions, which take one action after another."""

    def __init__(self, chance: float, *, is_idempotent: bool) -> None:
        settings = replace(SETTINGS, linger_ms=0, is_idempotent=is_idempotent)
        self.accumulator = Accumulator(settings, counting())
        self.topic = new_topic()
        self.service = _Service()
        self.sent: list[tuple[bytes, ProducerBatch, int]] = []
        self.finished: list[ProducerBatch] = []
        self.lost_answers: set[int] = set()  # ids of batches that were applied without the producer knowing
        self._chance = chance
        self._is_idempotent = is_idempotent
        self._flying: list[list[Entry]] = []
        self._now_ms = 0
        self._is_asleep = False

    def act(self, action: str, number: int, detail: object) -> None:
        if action == "append":
            value = b"%d:" % len(self.sent) + b"x" * int(str(detail))
            batch = self.accumulator.append(self.topic, number, None, value, (), 0, self._now_ms)
            if batch is not None:
                self.sent.append((value, batch, batch.record_count - 1))
        elif action == "drain":
            self._drain()
        elif action == "complete" and self._flying:
            outcomes = list(detail)  # type: ignore[call-overload]  # a list here
            self._complete(self._flying.pop(number % len(self._flying)), outcomes)
        elif action == "wait":
            self._now_ms += number

    def come_to_rest(self) -> None:
        for _ in range(200):
            if not (self._flying or self.accumulator.buffered_bytes):
                return
            for entries in self._flying:
                self._complete(entries, ["ok"] * 3)
            self._flying.clear()
            self._now_ms += 200
            self._drain()

    def check(self) -> None:
        assert len(self.finished) == len({id(batch) for batch in self.finished}), "two outcomes for one batch"
        places: dict[int, list[int]] = {}
        for value, batch, index in self.sent:
            assert batch.outcome is not None
            log = self.service.logs.get(batch.partition, [])
            if isinstance(batch.outcome, int):
                assert log[batch.outcome + index] == value
                assert log.count(value) == 1 or (id(batch) in self.lost_answers and not self._is_idempotent)
                places.setdefault(batch.partition, []).append(batch.outcome + index)
            else:
                assert not log.count(value) or batch.outcome.maybe_applied
                assert log.count(value) <= 1 or not self._is_idempotent
        for offsets in places.values():
            assert offsets == sorted(offsets), "delivered records are out of order"
        assert self.accumulator.buffered_bytes == 0

    def _drain(self) -> None:
        if self._is_asleep and self.accumulator.wake_at_ms > self._now_ms:
            return  # as the sender does: no call woke it
        self.finished += self.accumulator.expire(self._now_ms)
        entries = self.accumulator.drain(self._now_ms)
        self._is_asleep = not entries
        partitions = [entry.queue.partition for request in (*self._flying, entries) for entry in request]
        assert len(partitions) == len(set(partitions)), "a partition is in two requests"
        if entries:
            self._flying.append(entries)

    def _complete(self, entries: list[Entry], outcomes: list[str]) -> None:
        results = [self._result(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=False)]
        self.finished += self.accumulator.complete(entries, results, self._now_ms, self._chance)

    def _result(self, entry: Entry, outcome: str) -> int | PenstockError:
        if outcome == "ok":
            return self.service.apply(entry)
        if outcome == "lost answer":
            self.service.apply(entry)
            self.lost_answers.update(id(batch) for batch in entry.batches)
            return MAYBE
        return {"refused": UNAVAILABLE, "lost request": MAYBE, "fatal": UNKNOWN}[outcome]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60), st.floats(0, 1, exclude_max=True), st.booleans())
def test_each_record_has_one_true_outcome_under_any_interleaving(
    actions: list[tuple[str, int, object]], chance: float, is_idempotent: bool
) -> None:
    run = _Run(chance, is_idempotent=is_idempotent)
    for action, number, detail in actions:
        run.act(action, number, detail)
    run.come_to_rest()
    run.check()


def _numbers(entry: Entry) -> list[tuple[int, int, int]]:
    headers = [header for batch in entry.batches for _, header in walk(batch.build())]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers]


def test_records_are_numbered_by_partition_when_they_leave() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=0), counting()), new_topic()
    for number in range(3):
        append(accumulator, topic, 0, b"a")
        append(accumulator, topic, 1, b"b")
        append(accumulator, topic, 1, b"c")
        entries = accumulator.drain(0)
        assert [_numbers(entry) for entry in entries] == [[(1, 0, number)], [(2, 0, 2 * number)]]
        accumulator.complete(entries, [0, 0], 0, 0.0)


def test_records_are_not_numbered_without_idempotence() -> None:
    accumulator, topic = new_accumulator(is_idempotent=False), new_topic()
    append(accumulator, topic, 0, b"a")
    [entry] = accumulator.drain(10)
    assert _numbers(entry) == [(-1, -1, -1)]


def test_retry_goes_as_it_went_with_its_numbers_and_its_company() -> None:
    accumulator, topic = Accumulator(SETTINGS, counting()), new_topic()
    for _ in range(6):
        append(accumulator, topic, 0, b"x" * 90)
    [sent] = accumulator.drain(10)
    numbers, values = _numbers(sent), values_of(sent)
    assert len(numbers) > 1
    for _ in range(6):
        append(accumulator, topic, 0, b"y" * 90, now_ms=11)
    for failure in range(3):
        accumulator.complete([sent], [MAYBE], 20 + failure, 0.0)
        [sent] = accumulator.drain(20 + failure)
        assert (_numbers(sent), values_of(sent)) == (numbers, values)
    accumulator.complete([sent], [0], 30, 0.0)
    [behind] = accumulator.drain(30)
    assert _numbers(behind)[0] == (1, 0, 6)


@pytest.mark.parametrize("error", [UNKNOWN, MAYBE], ids=["permanent", "out of time"])
def test_partition_goes_on_as_a_new_producer_when_a_batch_failed(error: PenstockError) -> None:
    accumulator, topic = Accumulator(SETTINGS, counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    [sent] = accumulator.drain(10)
    append(accumulator, topic, 0, b"b", now_ms=950)
    assert accumulator.complete([sent], [error], 999, 0.99)
    [behind] = accumulator.drain(1_000)
    assert (values_of(behind), _numbers(behind)) == ([b"b"], [(2, 0, 0)])


def test_batches_that_went_together_expire_together() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=500), counting()), new_topic()
    first = append(accumulator, topic, 0, b"x" * 300)
    second = append(accumulator, topic, 0, b"x" * 300, now_ms=100)
    assert first is not second
    [sent] = accumulator.drain(100)
    third = append(accumulator, topic, 0, b"c", now_ms=101)
    accumulator.complete([sent], [MAYBE], 110, 0.0)
    assert accumulator.expire(1_000) == [first, second]
    [behind] = accumulator.drain(1_000)
    assert behind.batches == (third,)
    assert _numbers(behind) == [(2, 0, 0)]


def test_unknown_producer_is_sent_again_at_once_as_a_new_one() -> None:
    """So it is in a topic that was deleted and created again."""
    accumulator, topic = Accumulator(SETTINGS, counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [0], 10, 0.0)
    append(accumulator, topic, 0, b"b", now_ms=20)
    [sent] = accumulator.drain(30)
    assert _numbers(sent) == [(1, 0, 1)]
    assert accumulator.complete([sent], [OUT_OF_ORDER], 31, 0.9) == []
    [again] = accumulator.drain(31)
    assert (values_of(again), _numbers(again)) == ([b"b"], [(2, 0, 0)])


def test_batches_of_which_some_are_there_are_not_sent_again_as_new_ones() -> None:
    """Another producer has written under the id, and the service has one of the batches of the request."""
    accumulator, topic = Accumulator(SETTINGS, counting()), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    partly = PenstockError(ErrorCode.OUT_OF_ORDER_SEQUENCE, "with other bytes", maybe_applied=True)
    assert accumulator.complete(accumulator.drain(10), [partly], 10, 0.0) == [batch]
    assert isinstance(batch.outcome, PenstockError)
    assert batch.outcome.maybe_applied
    append(accumulator, topic, 0, b"b", now_ms=20)
    [behind] = accumulator.drain(30)
    assert _numbers(behind) == [(2, 0, 0)], "what follows goes on as a new producer"


def test_repeat_that_the_service_cannot_place_counts_as_delivered() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    duplicate = PenstockError(ErrorCode.DUPLICATE_SEQUENCE, "taken before")
    assert accumulator.complete(accumulator.drain(10), [duplicate], 10, 0.0) == [batch]
    assert batch.outcome == UNKNOWN_OFFSET


def test_numbers_end_where_kafkas_do() -> None:
    accumulator, topic = Accumulator(SETTINGS, counting()), new_topic()
    topic.queues[0].numbering = Numbering(9, 0, SEQUENCE_MAX)
    for expected in ([(9, 0, SEQUENCE_MAX)], [(1, 0, 0)]):
        append(accumulator, topic, 0, b"a")
        [sent] = accumulator.drain(10)
        assert _numbers(sent) == expected
        accumulator.complete([sent], [0], 10, 0.0)
