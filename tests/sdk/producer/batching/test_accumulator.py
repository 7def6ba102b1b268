from collections.abc import Callable

import pytest

from penstock.errors import ClosedError, DeliveryTimeoutError, RecordTooLargeError, UnknownTopicError
from penstock.producer.batching.accumulator import PRODUCER_IDS, Accumulator
from penstock.producer.batching.pacing import QUOTA
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.retry import NEVER_MS
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.quotas.quota import Rate
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    SETTINGS,
    UNAVAILABLE,
    UNKNOWN,
    append,
    new_accumulator,
    new_topic,
    values_of,
)


def test_record_lingers_then_leaves() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    append(accumulator, topic, 1, b"a", now_ms=5)
    assert accumulator.drain(14) == []
    assert accumulator.wake_at_ms == 15
    (entry,) = accumulator.drain(15)
    assert (entry.queue.partition, values_of(entry)) == (1, [b"a"])


def test_full_batch_leaves_at_once() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    values = [b"%03d" % number * 30 for number in range(6)]
    for value in values:
        append(accumulator, topic, 0, value)
    assert accumulator.wake_at_ms == 0
    (entry,) = accumulator.drain(0)
    assert values_of(entry) == values
    assert len(entry.batches) > 1


def test_waiting_batches_travel_with_a_ready_one() -> None:
    accumulator, first, second = new_accumulator(), new_topic(name="first"), new_topic(name="second")
    append(accumulator, first, 0, b"a", now_ms=0)
    append(accumulator, second, 2, b"b", now_ms=9)
    entries = accumulator.drain(10)
    assert [(entry.queue.topic.name, entry.queue.partition) for entry in entries] == [("first", 0), ("second", 2)]


def test_hurry_does_not_linger() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    append(accumulator, topic, 0, b"a")
    accumulator.flush_waiters = 1
    assert len(accumulator.drain(0)) == 1


def test_partition_waits_while_it_is_in_a_request() -> None:
    accumulator, topic = new_accumulator(linger_ms=0), new_topic()
    append(accumulator, topic, 0, b"a")
    first = accumulator.drain(0)
    append(accumulator, topic, 0, b"b")
    append(accumulator, topic, 1, b"c")
    second = accumulator.drain(0)
    assert [entry.queue.partition for entry in second] == [1]
    assert accumulator.drain(0) == []
    accumulator.complete(first, [0], 0, 0.0)
    (third,) = accumulator.drain(0)
    assert values_of(third) == [b"b"]


def test_request_stays_within_its_bytes_and_leaves_the_rest_for_the_next() -> None:
    accumulator, topic = new_accumulator(request_bytes=1_000), new_topic(8)
    for partition in range(8):
        append(accumulator, topic, partition, b"x" * 200)
    sizes = []
    while entries := accumulator.drain(10):
        sizes.append(sum(len(batch.build()) + 81 for entry in entries for batch in entry.batches) + 64)
    assert max(sizes) <= 1_000
    assert len(sizes) == 4


def test_request_names_100_partitions_at_most() -> None:
    accumulator, topic = new_accumulator(request_bytes=1_000_000), new_topic(150)
    for partition in range(150):
        append(accumulator, topic, partition, b"x")
    assert [len(accumulator.drain(10)), len(accumulator.drain(10)), len(accumulator.drain(10))] == [100, 50, 0]


def test_offsets_go_on_from_batch_to_batch() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batches = {id(batch): batch for batch in (append(accumulator, topic, 0, b"x" * 90) for _ in range(7))}
    accumulator.complete(accumulator.drain(10), [100], 10, 0.0)
    outcomes = [(batch.outcome, batch.record_count) for batch in batches.values()]
    assert outcomes[0][0] == 100
    assert [first for first, _ in outcomes[1:]] == [first + count for first, count in outcomes[:-1]]  # type: ignore[operator]  # offsets
    assert accumulator.buffered_bytes == 0


def test_result_wakes_the_sender_that_had_nothing_to_send() -> None:
    accumulator, topic = new_accumulator(linger_ms=0), new_topic()
    append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(0)
    append(accumulator, topic, 0, b"b")
    assert accumulator.drain(0) == []
    assert accumulator.wake_at_ms == NEVER_MS
    accumulator.complete(entries, [0], 3, 0.0)
    assert accumulator.wake_at_ms <= 3


def test_retry_keeps_order_and_waits_for_its_time() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    append(accumulator, topic, 0, b"b", now_ms=11)
    assert accumulator.complete(entries, [MAYBE], 20, 0.5) == []
    assert accumulator.drain(69) == []
    assert accumulator.wake_at_ms == 70
    (again,) = accumulator.drain(70)
    assert values_of(again) == [b"a"]
    accumulator.complete([again], [0], 71, 0.5)
    (behind,) = accumulator.drain(71)
    assert values_of(behind) == [b"b"]


def test_permanent_error_of_a_partition_fails_only_its_records() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    good, bad = append(accumulator, topic, 0, b"a"), append(accumulator, topic, 1, b"b")
    finished = accumulator.complete(accumulator.drain(10), [7, UNKNOWN], 10, 0.0)
    assert finished == [good, bad]
    assert (good.outcome, bad.outcome) == (7, UNKNOWN)


def test_error_says_maybe_applied_when_an_earlier_try_may_have_been() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [MAYBE], 10, 0.0)
    accumulator.complete(accumulator.drain(10), [UNKNOWN], 10, 0.0)
    assert isinstance(batch.outcome, UnknownTopicError)
    assert batch.outcome.maybe_applied


def test_delivery_times_out_with_its_last_error_when_retries_do_not_help() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [MAYBE], 950, 0.99)
    assert isinstance(batch.outcome, DeliveryTimeoutError)
    assert batch.outcome.__cause__ is MAYBE
    assert batch.outcome.maybe_applied


def test_delivery_times_out_while_it_waits_for_another_request() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    first = append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    accumulator.complete(entries, [UNAVAILABLE], 10, 0.0)
    assert accumulator.expire(999) == []
    assert accumulator.expire(1_000) == [first]
    assert isinstance(first.outcome, DeliveryTimeoutError)
    assert not first.outcome.maybe_applied


def test_nothing_is_tried_again_without_retries() -> None:
    accumulator, topic = new_accumulator(retry=None), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(10), [UNAVAILABLE], 10, 0.0)
    assert batch.outcome is UNAVAILABLE


def test_append_is_refused_while_memory_is_full() -> None:
    accumulator, topic = new_accumulator(buffer_bytes=500), new_topic()
    batch = append(accumulator, topic, 0, b"x" * 300)
    assert accumulator.append(topic, 0, None, b"x" * 300, (), 0, 0) is None
    accumulator.complete(accumulator.drain(10), [0], 10, 0.0)
    assert batch.outcome == 0
    append(accumulator, topic, 0, b"x" * 300)


def test_oversize_record_is_refused_with_the_limit_and_nothing_is_kept() -> None:
    accumulator, topic = new_accumulator(), new_topic(batch_bytes_max=1_000)
    with pytest.raises(RecordTooLargeError, match="max_batch_bytes is 1,000"):
        accumulator.append(topic, 0, None, b"x" * 1_000, (), 0, 0)
    with pytest.raises(RecordTooLargeError):
        accumulator.append(topic, 0, None, b"", [("h", b"x" * 1_000)], 0, 0)
    assert accumulator.buffered_bytes == 0
    assert accumulator.wake_at_ms == NEVER_MS


def test_malformed_record_leaves_no_batch_behind() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    with pytest.raises(PenstockError):
        accumulator.append(topic, 0, None, ["a", "list"], (), 0, 0)  # type: ignore[arg-type]  # the wrong type is tested
    accumulator.flush_waiters = 1
    assert accumulator.drain(0) == []


def test_large_record_gets_a_batch_of_its_own() -> None:
    accumulator, topic = new_accumulator(), new_topic(batch_bytes_max=1_000)
    append(accumulator, topic, 0, b"x" * 800)
    append(accumulator, topic, 0, b"y")
    (entry,) = accumulator.drain(0)
    assert [batch.record_count for batch in entry.batches] == [1, 1]


def test_records_without_key_stick_to_a_partition_until_its_batch_leaves() -> None:
    chosen = iter([2, 0, 1])
    choose: Callable[[int], int] = lambda choices: 7 if choices == PRODUCER_IDS else next(chosen)  # noqa: E731 - one use
    accumulator, topic = Accumulator(SETTINGS, choose), new_topic()
    assert {append(accumulator, topic, None, b"a").partition for _ in range(5)} == {2}
    accumulator.drain(10)
    assert {append(accumulator, topic, None, b"a").partition for _ in range(5)} == {0}


def test_records_without_key_avoid_a_partition_in_flight() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    assert append(accumulator, topic, None, b"a").partition == 0
    accumulator.drain(10)
    assert append(accumulator, topic, None, b"b").partition == 1


def test_abandon_fails_waiting_batches_and_does_not_retry_those_in_flight() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    flying = append(accumulator, topic, 0, b"a")
    entries = accumulator.drain(10)
    waiting = append(accumulator, topic, 0, b"b")
    assert accumulator.abandon(ClosedError("closed")) == [waiting]
    assert isinstance(waiting.outcome, ClosedError)
    accumulator.complete(entries, [UNAVAILABLE], 10, 0.0)
    assert flying.outcome is UNAVAILABLE
    assert accumulator.buffered_bytes == 0


def over_quota(bytes_per_s: int) -> PenstockError:
    return PenstockError(ErrorCode.THROTTLED, "spent", retry_after_ms=100, quota=QUOTA, limit=bytes_per_s)


def test_quota_of_bytes_bounds_requests_and_batches_until_a_minute_after_the_last_refusal() -> None:
    accumulator = new_accumulator(
        batch_bytes=10_000, request_bytes=100_000, buffer_bytes=200_000, delivery_timeout_ms=200_000
    )
    topic = TopicQueues("t")
    topic.update(2, 10_000, 100_000)
    for number in range(40):
        append(accumulator, topic, number % 2, b"x" * 2_000)
    [*refused] = accumulator.drain(20)
    assert sum(batch.size_bytes for entry in refused for batch in entry.batches) > 40_000, "all that waits"
    accumulator.complete(refused, [over_quota(5_000)] * len(refused), 20, 0.0)
    for _ in range(10):
        append(accumulator, topic, 0, b"y" * 2_000, now_ms=400)
    now_ms, sent = 400, []
    while accumulator.unfinished():
        now_ms += 200
        entries = accumulator.drain(now_ms)
        assert len(entries) == 1
        assert len(entries[0].batches) == 1, "a batch of the time before goes alone"
        sent += values_of(entries[0])
        accumulator.complete(entries, [0], now_ms, 0.0)
    assert len(sent) == 50
    assert topic.batch_bytes == 5_000
    append(accumulator, topic, 0, b"late", now_ms=70_000)
    accumulator.complete(accumulator.drain(70_020), [0], 70_020, 0.0)
    assert (topic.paced_bytes, topic.fresh_until_ms) == (0, 0)
    topic.update(2, 10_000, 100_000)
    assert topic.batch_bytes == 10_000


def test_other_quotas_bound_no_request() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    append(accumulator, topic, 0, b"x")
    error = PenstockError(ErrorCode.THROTTLED, "", quota="produce_requests_per_s", limit=5)
    accumulator.complete(accumulator.drain(20), [error], 20, 0.0)
    assert topic.paced_bytes == 0
    assert Rate.PRODUCE_BYTES == QUOTA
