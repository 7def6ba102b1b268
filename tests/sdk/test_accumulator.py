from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accumulator import PRODUCER_IDS, UNKNOWN_OFFSET, Accumulator, AccumulatorSettings, Entry
from penstock.errors import ClosedError, DeliveryTimeoutError, RecordTooLargeError, UnavailableError, UnknownTopicError
from penstock.producer_batch import Numbering, ProducerBatch, TopicQueues
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.producer_state import (
    SEQUENCE_MAX,
    ProducerSequence,
    ProducerState,
    Verdict,
    judge,
    state_after,
)
from penstock_core.record_batch import Compression, validate, walk
from penstock_core.records import decode

SETTINGS = AccumulatorSettings(
    linger_ms=10,
    batch_bytes=400,
    request_bytes=4_000,
    buffer_bytes=20_000,
    delivery_timeout_ms=1_000,
    compression=Compression.NONE,
    retry=RetryPolicy(backoff_ms=100, backoff_max_ms=200),
)
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")
MAYBE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "lost", maybe_applied=True)
OUT_OF_ORDER = PenstockError(ErrorCode.OUT_OF_ORDER_SEQUENCE, "unknown producer")
UNKNOWN = UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "gone")


def _topic(partitions: int = 3, batch_bytes_max: int = 1_000, name: str = "t") -> TopicQueues:
    topic = TopicQueues(name)
    topic.update(partitions, SETTINGS.batch_bytes, batch_bytes_max)
    return topic


def _accumulator(**changes: object) -> Accumulator:
    return Accumulator(replace(SETTINGS, **changes), choose=lambda count: 0)  # type: ignore[arg-type]  # kwargs of many types


def _append(
    accumulator: Accumulator, topic: TopicQueues, partition: int | None, value: bytes, now_ms: int = 0
) -> ProducerBatch:
    batch = accumulator.append(topic, partition, None, value, (), 0, now_ms)
    assert batch is not None
    return batch


def _values(entry: Entry) -> list[bytes | None]:
    return [record.value for batch in entry.batches for record in decode(batch.build())]


def test_record_lingers_then_leaves() -> None:
    accumulator, topic = _accumulator(), _topic()
    _append(accumulator, topic, 1, b"a", now_ms=5)
    assert accumulator.drain(14) == []
    assert accumulator.wake_at_ms == 15
    (entry,) = accumulator.drain(15)
    assert (entry.queue.partition, _values(entry)) == (1, [b"a"])


def test_full_batch_leaves_at_once() -> None:
    accumulator, topic = _accumulator(), _topic()
    values = [b"%03d" % number * 30 for number in range(6)]
    for value in values:
        _append(accumulator, topic, 0, value)
    assert accumulator.wake_at_ms == 0
    (entry,) = accumulator.drain(0)
    assert _values(entry) == values
    assert len(entry.batches) > 1


def test_whatever_waits_travels_with_what_is_ready() -> None:
    accumulator, first, second = _accumulator(), _topic(name="first"), _topic(name="second")
    _append(accumulator, first, 0, b"a", now_ms=0)
    _append(accumulator, second, 2, b"b", now_ms=9)
    entries = accumulator.drain(10)
    assert [(entry.queue.topic.name, entry.queue.partition) for entry in entries] == [("first", 0), ("second", 2)]


def test_hurry_does_not_linger() -> None:
    accumulator, topic = _accumulator(), _topic()
    _append(accumulator, topic, 0, b"a")
    accumulator.hurry = 1
    assert len(accumulator.drain(0)) == 1


def test_partition_waits_while_it_is_in_a_request() -> None:
    accumulator, topic = _accumulator(linger_ms=0), _topic()
    _append(accumulator, topic, 0, b"a")
    first = accumulator.drain(0)
    _append(accumulator, topic, 0, b"b")
    _append(accumulator, topic, 1, b"c")
    second = accumulator.drain(0)
    assert [entry.queue.partition for entry in second] == [1]
    assert accumulator.drain(0) == []
    accumulator.complete(first, [0], 0, 0.0)
    (third,) = accumulator.drain(0)
    assert _values(third) == [b"b"]


def test_request_stays_within_its_bytes_and_leaves_the_rest_for_the_next() -> None:
    accumulator, topic = _accumulator(request_bytes=1_000), _topic(8)
    for partition in range(8):
        _append(accumulator, topic, partition, b"x" * 200)
    sizes = []
    while entries := accumulator.drain(10):
        sizes.append(sum(len(batch.build()) + 81 for entry in entries for batch in entry.batches) + 64)
    assert max(sizes) <= 1_000
    assert len(sizes) == 4


def test_request_names_100_partitions_at_most() -> None:
    accumulator, topic = _accumulator(request_bytes=1_000_000), _topic(150)
    for partition in range(150):
        _append(accumulator, topic, partition, b"x")
    assert [len(accumulator.drain(10)), len(accumulator.drain(10)), len(accumulator.drain(10))] == [100, 50, 0]


def test_offsets_go_on_from_batch_to_batch() -> None:
    accumulator, topic = _accumulator(), _topic()
    batches = {id(batch): batch for batch in (_append(accumulator, topic, 0, b"x" * 90) for _ in range(7))}
    accumulator.complete(accumulator.drain(10), [100], 10, 0.0)
    outcomes = [(batch.outcome, batch.record_count) for batch in batches.values()]
    assert outcomes[0][0] == 100
    assert [first for first, _ in outcomes[1:]] == [first + count for first, count in outcomes[:-1]]  # type: ignore[operator]  # offsets
    assert accumulator.buffered_bytes == 0


def test_result_wakes_the_sender_that_had_nothing_to_send() -> None:
    accumulator, topic = _accumulator(linger_ms=0), _topic()
    _append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(0)
    _append(accumulator, topic, 0, b"b")
    assert accumulator.drain(0) == []
    assert accumulator.wake_at_ms == NEVER_MS
    accumulator.complete(entries, [0], 3, 0.0)
    assert accumulator.wake_at_ms <= 3


def test_retry_keeps_order_and_waits_for_its_time() -> None:
    accumulator, topic = _accumulator(), _topic()
    _append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    _append(accumulator, topic, 0, b"b", now_ms=11)
    assert accumulator.complete(entries, [UNAVAILABLE], 20, 0.5) == []
    assert accumulator.drain(69) == []
    assert accumulator.wake_at_ms == 70
    (again,) = accumulator.drain(70)
    assert _values(again) == [b"a"]
    accumulator.complete([again], [0], 71, 0.5)
    (behind,) = accumulator.drain(71)
    assert _values(behind) == [b"b"]


def _numbers(entry: Entry) -> list[tuple[int, int, int]]:
    headers = [header for batch in entry.batches for _, header in walk(batch.build())]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers]


def _counting() -> Callable[[int], int]:
    """Instead of chance: producer ids 1, 2, 3 …, and the first partition."""
    ids = count(1)
    return lambda choices: next(ids) if choices == PRODUCER_IDS else 0


def test_records_are_numbered_by_partition_when_they_leave() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=0), _counting()), _topic()
    for number in range(3):
        _append(accumulator, topic, 0, b"a")
        _append(accumulator, topic, 1, b"b")
        _append(accumulator, topic, 1, b"c")
        entries = accumulator.drain(0)
        assert [_numbers(entry) for entry in entries] == [[(1, 0, number)], [(2, 0, 2 * number)]]
        accumulator.complete(entries, [0, 0], 0, 0.0)


def test_records_are_not_numbered_without_idempotence() -> None:
    accumulator, topic = _accumulator(is_idempotent=False), _topic()
    _append(accumulator, topic, 0, b"a")
    [entry] = accumulator.drain(10)
    assert _numbers(entry) == [(-1, -1, -1)]


def test_retry_goes_as_it_went_with_its_numbers_and_its_company() -> None:
    accumulator, topic = Accumulator(SETTINGS, _counting()), _topic()
    for _ in range(6):
        _append(accumulator, topic, 0, b"x" * 90)
    [sent] = accumulator.drain(10)
    numbers, values = _numbers(sent), _values(sent)
    assert len(numbers) > 1
    for _ in range(6):
        _append(accumulator, topic, 0, b"y" * 90, now_ms=11)
    for failure in range(3):
        accumulator.complete([sent], [MAYBE], 20 + failure, 0.0)
        [sent] = accumulator.drain(20 + failure)
        assert (_numbers(sent), _values(sent)) == (numbers, values)
    accumulator.complete([sent], [0], 30, 0.0)
    [behind] = accumulator.drain(30)
    assert _numbers(behind)[0] == (1, 0, 6)


@pytest.mark.parametrize("error", [UNKNOWN, MAYBE], ids=["permanent", "out of time"])
def test_partition_goes_on_as_a_new_producer_when_a_batch_failed(error: PenstockError) -> None:
    accumulator, topic = Accumulator(SETTINGS, _counting()), _topic()
    _append(accumulator, topic, 0, b"a")
    [sent] = accumulator.drain(10)
    _append(accumulator, topic, 0, b"b", now_ms=950)
    assert accumulator.complete([sent], [error], 999, 0.99)
    [behind] = accumulator.drain(1_000)
    assert (_values(behind), _numbers(behind)) == ([b"b"], [(2, 0, 0)])


def test_batches_that_went_together_expire_together() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=500), _counting()), _topic()
    first = _append(accumulator, topic, 0, b"x" * 300)
    second = _append(accumulator, topic, 0, b"x" * 300, now_ms=100)
    assert first is not second
    [sent] = accumulator.drain(100)
    third = _append(accumulator, topic, 0, b"c", now_ms=101)
    accumulator.complete([sent], [MAYBE], 110, 0.0)
    assert accumulator.expire(1_000) == [first, second]
    [behind] = accumulator.drain(1_000)
    assert behind.batches == (third,)
    assert _numbers(behind) == [(2, 0, 0)]


def test_unknown_producer_is_sent_again_at_once_as_a_new_one() -> None:
    """As in a topic that was deleted and made anew."""
    accumulator, topic = Accumulator(SETTINGS, _counting()), _topic()
    _append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [0], 10, 0.0)
    _append(accumulator, topic, 0, b"b", now_ms=20)
    [sent] = accumulator.drain(30)
    assert _numbers(sent) == [(1, 0, 1)]
    assert accumulator.complete([sent], [OUT_OF_ORDER], 31, 0.9) == []
    [again] = accumulator.drain(31)
    assert (_values(again), _numbers(again)) == ([b"b"], [(2, 0, 0)])


def test_repeat_that_the_service_cannot_place_counts_as_delivered() -> None:
    accumulator, topic = _accumulator(), _topic()
    batch = _append(accumulator, topic, 0, b"a")
    duplicate = PenstockError(ErrorCode.DUPLICATE_SEQUENCE, "taken before")
    assert accumulator.complete(accumulator.drain(10), [duplicate], 10, 0.0) == [batch]
    assert batch.outcome == UNKNOWN_OFFSET


def test_numbers_end_where_kafkas_do() -> None:
    accumulator, topic = Accumulator(SETTINGS, _counting()), _topic()
    topic.queues[0].numbering = Numbering(9, 0, SEQUENCE_MAX)
    for expected in ([(9, 0, SEQUENCE_MAX)], [(1, 0, 0)]):
        _append(accumulator, topic, 0, b"a")
        [sent] = accumulator.drain(10)
        assert _numbers(sent) == expected
        accumulator.complete([sent], [0], 10, 0.0)


def test_permanent_error_of_a_partition_fails_only_its_records() -> None:
    accumulator, topic = _accumulator(), _topic()
    good, bad = _append(accumulator, topic, 0, b"a"), _append(accumulator, topic, 1, b"b")
    finished = accumulator.complete(accumulator.drain(10), [7, UNKNOWN], 10, 0.0)
    assert finished == [good, bad]
    assert (good.outcome, bad.outcome) == (7, UNKNOWN)


def test_error_says_maybe_applied_when_an_earlier_try_may_have_been() -> None:
    accumulator, topic = _accumulator(), _topic()
    batch = _append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [MAYBE], 10, 0.0)
    accumulator.complete(accumulator.drain(10), [UNKNOWN], 10, 0.0)
    assert isinstance(batch.outcome, UnknownTopicError)
    assert batch.outcome.maybe_applied


def test_delivery_times_out_with_its_last_error_when_retries_do_not_help() -> None:
    accumulator, topic = _accumulator(), _topic()
    batch = _append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [MAYBE], 950, 0.99)
    assert isinstance(batch.outcome, DeliveryTimeoutError)
    assert batch.outcome.__cause__ is MAYBE
    assert batch.outcome.maybe_applied


def test_delivery_times_out_while_it_waits_for_another_request() -> None:
    accumulator, topic = _accumulator(), _topic()
    first = _append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    accumulator.complete(entries, [UNAVAILABLE], 10, 0.0)
    assert accumulator.expire(999) == []
    assert accumulator.expire(1_000) == [first]
    assert isinstance(first.outcome, DeliveryTimeoutError)
    assert not first.outcome.maybe_applied


def test_nothing_is_tried_again_without_retries() -> None:
    accumulator, topic = _accumulator(retry=None), _topic()
    batch = _append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [UNAVAILABLE], 10, 0.0)
    assert batch.outcome is UNAVAILABLE


def test_append_is_refused_while_memory_is_full() -> None:
    accumulator, topic = _accumulator(buffer_bytes=500), _topic()
    batch = _append(accumulator, topic, 0, b"x" * 300)
    assert accumulator.append(topic, 0, None, b"x" * 300, (), 0, 0) is None
    accumulator.complete(accumulator.drain(10), [0], 10, 0.0)
    assert batch.outcome == 0
    _append(accumulator, topic, 0, b"x" * 300)


def test_oversize_record_is_refused_with_the_limit_and_nothing_is_kept() -> None:
    accumulator, topic = _accumulator(), _topic(batch_bytes_max=1_000)
    with pytest.raises(RecordTooLargeError, match="max_batch_bytes is 1,000"):
        accumulator.append(topic, 0, None, b"x" * 1_000, (), 0, 0)
    with pytest.raises(RecordTooLargeError):
        accumulator.append(topic, 0, None, b"", [("h", b"x" * 1_000)], 0, 0)
    assert accumulator.buffered_bytes == 0
    assert accumulator.wake_at_ms == NEVER_MS


def test_malformed_record_leaves_no_batch_behind() -> None:
    accumulator, topic = _accumulator(), _topic()
    with pytest.raises(PenstockError):
        accumulator.append(topic, 0, None, ["a", "list"], (), 0, 0)  # type: ignore[arg-type]  # what is tested
    accumulator.hurry = 1
    assert accumulator.drain(0) == []


def test_large_record_gets_a_batch_of_its_own() -> None:
    accumulator, topic = _accumulator(), _topic(batch_bytes_max=1_000)
    _append(accumulator, topic, 0, b"x" * 800)
    _append(accumulator, topic, 0, b"y")
    (entry,) = accumulator.drain(0)
    assert [batch.record_count for batch in entry.batches] == [1, 1]


def test_records_without_key_stick_to_a_partition_until_its_batch_leaves() -> None:
    chosen = iter([2, 0, 1])
    choose: Callable[[int], int] = lambda choices: 7 if choices == PRODUCER_IDS else next(chosen)  # noqa: E731 - one use
    accumulator, topic = Accumulator(SETTINGS, choose), _topic()
    assert {_append(accumulator, topic, None, b"a").partition for _ in range(5)} == {2}
    accumulator.drain(10)
    assert {_append(accumulator, topic, None, b"a").partition for _ in range(5)} == {0}


def test_records_without_key_avoid_a_partition_in_flight() -> None:
    accumulator, topic = _accumulator(), _topic()
    assert _append(accumulator, topic, None, b"a").partition == 0
    accumulator.drain(10)
    assert _append(accumulator, topic, None, b"b").partition == 1


def test_abandon_fails_what_waits_and_does_not_retry_what_is_in_flight() -> None:
    accumulator, topic = _accumulator(), _topic()
    flying = _append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    waiting = _append(accumulator, topic, 0, b"b")
    assert accumulator.abandon(ClosedError("closed")) == [waiting]
    assert isinstance(waiting.outcome, ClosedError)
    accumulator.complete(entries, [UNAVAILABLE], 10, 0.0)
    assert flying.outcome is UNAVAILABLE
    assert accumulator.buffered_bytes == 0


class _Service:
    """Partitions' logs, and what they know of producers: by the rules of the service, kept in a simpler way."""

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
        log += _values(entry)
        return base_offset


_RESULTS = st.sampled_from(["ok", "ok", "refused", "lost request", "lost answer", "fatal"])
_ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 150)),
    st.tuples(st.just("drain"), st.just(0), st.just(0)),
    st.tuples(st.just("complete"), st.integers(0, 5), st.lists(_RESULTS, min_size=3, max_size=3)),
    st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
)


@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60), st.floats(0, 1, exclude_max=True), st.booleans())
def test_nothing_is_lost_reordered_or_told_wrongly_under_any_interleaving(
    actions: list[tuple[str, int, object]], chance: float, is_idempotent: bool
) -> None:
    idempotent = replace(SETTINGS, linger_ms=0, is_idempotent=is_idempotent)
    accumulator, topic, service = Accumulator(idempotent, _counting()), _topic(), _Service()
    sent: list[tuple[bytes, ProducerBatch, int]] = []
    flying: list[list[Entry]] = []
    finished: list[ProducerBatch] = []
    lost_answers: set[int] = set()  # ids of batches that were applied without the producer knowing
    now_ms = 0
    is_asleep = False

    def result(entry: Entry, what: str) -> int | PenstockError:
        if what == "ok":
            return service.apply(entry)
        if what == "lost answer":
            service.apply(entry)
            lost_answers.update(id(batch) for batch in entry.batches)
            return MAYBE
        return {"refused": UNAVAILABLE, "lost request": MAYBE, "fatal": UNKNOWN}[what]

    def complete(entries: list[Entry], outcomes: list[str]) -> None:
        results = [result(entry, what) for entry, what in zip(entries, outcomes, strict=False)]
        finished.extend(accumulator.complete(entries, results, now_ms, chance))

    def drain() -> None:
        nonlocal is_asleep
        if is_asleep and accumulator.wake_at_ms > now_ms:
            return  # as the sender does: nobody woke it
        finished.extend(accumulator.expire(now_ms))
        entries = accumulator.drain(now_ms)
        is_asleep = not entries
        partitions = [entry.queue.partition for request in (*flying, entries) for entry in request]
        assert len(partitions) == len(set(partitions)), "a partition is in two requests"
        if entries:
            flying.append(entries)

    for action, number, detail in actions:
        if action == "append":
            value = b"%d:" % len(sent) + b"x" * int(str(detail))
            batch = accumulator.append(topic, number, None, value, (), 0, now_ms)
            if batch is not None:
                sent.append((value, batch, batch.record_count - 1))
        elif action == "drain":
            drain()
        elif action == "complete" and flying:
            complete(flying.pop(number % len(flying)), list(detail))  # type: ignore[call-overload]  # a list here
        elif action == "wait":
            now_ms += number
    for _ in range(200):
        if not (flying or accumulator.buffered_bytes):
            break
        for entries in flying:
            complete(entries, ["ok"] * 3)
        flying.clear()
        now_ms += 200
        drain()

    assert len(finished) == len({id(batch) for batch in finished}), "two outcomes for one batch"
    places: dict[int, list[int]] = {}
    for value, batch, index in sent:
        assert batch.outcome is not None
        log = service.logs.get(batch.partition, [])
        if isinstance(batch.outcome, int):
            assert log[batch.outcome + index] == value
            assert log.count(value) == 1 or (id(batch) in lost_answers and not is_idempotent)
            places.setdefault(batch.partition, []).append(batch.outcome + index)
        else:
            assert not log.count(value) or batch.outcome.maybe_applied
            assert log.count(value) <= 1 or not is_idempotent
    for offsets in places.values():
        assert offsets == sorted(offsets), "delivered records are out of order"
    assert accumulator.buffered_bytes == 0
