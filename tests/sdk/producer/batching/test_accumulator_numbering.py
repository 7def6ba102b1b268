"""The numbers that records get, and the records that are sent again after a failure."""

from dataclasses import replace

import pytest

from penstock.producer.batching.accumulator import UNKNOWN_OFFSET, Accumulator, Entry
from penstock.producer.batching.producer_batch import Numbering
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.producer_state import SEQUENCE_MAX
from penstock_core.records.record_batch import walk
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    OUT_OF_ORDER,
    SETTINGS,
    UNKNOWN,
    append,
    counting,
    new_accumulator,
    new_topic,
    values_of,
)


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
