from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accumulator import Accumulator, AccumulatorSettings, Entry
from penstock.errors import ClosedError, DeliveryTimeoutError, RecordTooLargeError, UnavailableError, UnknownTopicError
from penstock.producer_batch import ProducerBatch, TopicQueues
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.record_batch import Compression
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
    assert _values(again) == [b"a", b"b"]


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
    accumulator, topic = Accumulator(SETTINGS, choose=lambda count: next(chosen)), _topic()
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
    """Partitions' logs, and whether each request's entry is applied."""

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes | None]] = {}

    def apply(self, entry: Entry) -> int:
        log = self.logs.setdefault(entry.queue.partition, [])
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


@settings(max_examples=300, deadline=None)
@given(st.lists(_ACTIONS, max_size=60), st.floats(0, 1, exclude_max=True))
def test_nothing_is_lost_reordered_or_told_wrongly_under_any_interleaving(
    actions: list[tuple[str, int, object]], chance: float
) -> None:
    accumulator, topic, service = _accumulator(linger_ms=0), _topic(), _Service()
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
            assert log.count(value) == 1 or id(batch) in lost_answers
            places.setdefault(batch.partition, []).append(batch.outcome + index)
        else:
            assert value not in log or batch.outcome.maybe_applied
    for offsets in places.values():
        assert offsets == sorted(offsets), "delivered records are out of order"
    assert accumulator.buffered_bytes == 0
