"""The fetch buffer under any interleaving of its driver's and its owner's calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.fetch_buffer import FetchBuffer, FetchRequest
from penstock.errors import CorruptError, InvalidError, OffsetOutOfRangeError, UnknownTopicError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.retry import NEVER_MS
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.consumer.fetch_buffer_fixtures import (
    SETTINGS,
    T0,
    T1,
    T2,
    UNAVAILABLE,
    PartitionsService,
    asked_of,
    new_buffer,
    next_request,
    offsets_of,
)


def test_one_request_asks_for_all_partitions_and_waits_for_data() -> None:
    request = next_request(new_buffer(T0, T1, T2))
    assert asked_of(request) == [0, 1, 2]
    assert request.body["wait_ms"] == 500
    assert request.body["max_bytes"] == 1_000


def test_partition_without_a_position_is_not_fetched() -> None:
    buffer = FetchBuffer(SETTINGS)
    buffer.assign([T0])
    assert buffer.next_request(0) is None
    assert buffer.without_position() == [T0]


def test_records_come_in_order_with_their_place() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    service.append(T0, 3)
    service.append(T0, 2)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    records = buffer.take(4)
    assert records[0] == ConsumerRecord("t", 0, 0, 0, None, b"0", ())
    assert offsets_of(records) == [0, 1, 2, 3]
    assert buffer.positions() == {T0: 4}
    assert offsets_of(buffer.take(4)) == [4]


def test_records_below_the_asked_offset_are_skipped() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    service.append(T0, 5)
    buffer.seek(T0, 3)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert [offsets_of(buffer.take(1)), offsets_of(buffer.take(10))] == [[3], [4]]


def test_position_goes_past_offsets_that_hold_nothing_any_more() -> None:
    buffer = new_buffer(T0)
    request = next_request(buffer)
    answer = {"log_start_offset": 0, "high_watermark": 9, "next_offset": 9, "length": 0}
    buffer.accept(request, [answer], memoryview(b""), now_ms=0, chance=0.0)
    assert buffer.take(10) == []
    assert buffer.positions() == {T0: 9}


def test_seek_drops_prefetched_records_and_answers_in_flight() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    service.append(T0, 5)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    stale = next_request(buffer)
    buffer.seek(T0, 1)
    fresh = next_request(buffer)
    buffer.accept(stale, *service.answer(stale), now_ms=0, chance=0.0)
    assert buffer.take(10) == []
    buffer.accept(fresh, *service.answer(fresh), now_ms=0, chance=0.0)
    assert offsets_of(buffer.take(10)) == [1, 2, 3, 4]


def test_unassigned_partition_is_dropped_even_when_its_answer_comes() -> None:
    buffer, service = new_buffer(T0, T1), PartitionsService()
    service.append(T0)
    service.append(T1)
    request = next_request(buffer)
    buffer.assign([T1])
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert {record.partition for record in buffer.take(10)} == {1}
    with pytest.raises(InvalidError, match="not assigned"):
        buffer.seek(T0, 0)


def test_paused_partition_returns_nothing_and_goes_on_at_its_position() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    service.append(T0, 2)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    buffer.pause(T0, is_paused=True)
    assert buffer.take(10) == []
    assert buffer.next_request(0) is None
    buffer.pause(T0, is_paused=False)
    assert offsets_of(buffer.take(10)) == [0, 1]


def test_paused_partition_gives_its_memory_to_other_partitions() -> None:
    buffer, service = new_buffer(T0, T1, buffer_bytes=1_000), PartitionsService()
    service.append(T0, 2)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert buffer.next_request(0) is None
    buffer.pause(T0, is_paused=True)
    assert asked_of(next_request(buffer)) == [1]
    buffer.pause(T0, is_paused=False)
    assert buffer.positions()[T0] == 0


def test_prefetching_stops_at_the_memory_bound_and_goes_on_when_there_is_room() -> None:
    buffer, service = new_buffer(T0, fetch_max_bytes=200, buffer_bytes=500, max_in_flight=1), PartitionsService()
    for _ in range(20):
        service.append(T0, 5)
    while (request := buffer.next_request(0)) is not None:
        buffer.accept(request, *service.answer(request, batches_max=1), now_ms=0, chance=0.0)
    first = offsets_of(buffer.take(1_000))
    assert 0 < len(first) < 20
    assert buffer.wake_at_ms == 0
    assert buffer.next_request(0) is not None


def test_quiet_partitions_share_one_long_poll() -> None:
    buffer, service = new_buffer(T0, T1), PartitionsService()
    first = next_request(buffer)
    buffer.assign([T0, T1, T2])
    buffer.seek(T2, 0)
    second = next_request(buffer)
    assert (asked_of(first), asked_of(second)) == ([0, 1], [2])
    buffer.accept(first, *service.answer(first), now_ms=0, chance=0.0)
    assert buffer.next_request(0) is None
    buffer.accept(second, *service.answer(second), now_ms=0, chance=0.0)
    assert sorted(asked_of(next_request(buffer))) == [0, 1, 2]


def test_partition_that_had_records_does_not_wait_for_the_quiet_ones() -> None:
    buffer, service = new_buffer(T0, T1), PartitionsService()
    first = next_request(buffer)
    service.append(T0)
    buffer.accept(first, *service.answer(first), now_ms=0, chance=0.0)
    buffer.pause(T0, is_paused=True)
    assert asked_of(next_request(buffer)) == [1]
    buffer.pause(T0, is_paused=False)
    assert asked_of(next_request(buffer)) == [0]


def test_partitions_that_are_behind_are_shared_out_over_requests() -> None:
    buffer, service = new_buffer(T0, T1, T2), PartitionsService()
    for partition in (T0, T1, T2):
        service.append(partition)
        service.append(partition)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request, batches_max=1), now_ms=0, chance=0.0)
    assert [asked_of(next_request(buffer)), asked_of(next_request(buffer))] == [[0, 1], [2]]
    assert buffer.next_request(0) is None


def test_partitions_take_turns() -> None:
    buffer, service = new_buffer(T0, T1), PartitionsService()
    service.append(T0, 4)
    service.append(T1, 4)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert [buffer.take_run(2)[0].partition for _ in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 3), ("latest", 5)])
def test_offset_out_of_range_follows_the_reset(reset: str, expected: int) -> None:
    buffer, service = new_buffer(T0, offset_reset=reset), PartitionsService()
    service.append(T0, 5)
    service.starts[T0] = 3
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert buffer.positions() == {T0: expected}
    assert next_request(buffer).body["partitions"][0]["offset"] == expected


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("taken", [0, 2, 5])
def test_reader_within_a_jump_returns_what_it_has_and_goes_on_behind_it(reset: str, taken: int) -> None:
    buffer, service = new_buffer(T0, offset_reset=reset), PartitionsService()
    service.append(T0, 5)
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    found = offsets_of(buffer.take(taken)) if taken else []
    request = next_request(buffer)
    error = PenstockError(
        ErrorCode.OFFSET_OUT_OF_RANGE, "lost", log_start_offset=0, high_watermark=1_001, to=1_000
    ).to_json()
    buffer.accept(request, [{"error": error}], memoryview(b""), now_ms=0, chance=0.0)
    while records := buffer.take(10):
        found += offsets_of(records)
    assert found == [0, 1, 2, 3, 4], "no record is passed over"
    assert buffer.positions() == {T0: 1_000}
    assert next_request(buffer).body["partitions"][0]["offset"] == 1_000


def test_offset_out_of_range_is_raised_without_a_reset() -> None:
    buffer, service = new_buffer(T0, offset_reset="none"), PartitionsService()
    service.append(T0, 5)
    service.starts[T0] = 3
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        buffer.take(10)
    assert caught.value.facts["log_start_offset"] == 3


def test_answer_and_failure_wake_the_driver_that_had_nothing_to_ask() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    request = next_request(buffer)
    assert buffer.next_request(0) is None
    assert buffer.wake_at_ms == NEVER_MS
    buffer.accept(request, *service.answer(request), now_ms=5, chance=0.0)
    assert buffer.wake_at_ms <= 5
    request = next_request(buffer)
    assert buffer.next_request(5) is None
    buffer.fail(request, UNAVAILABLE, now_ms=7, chance=0.0)
    assert buffer.wake_at_ms <= 7


def test_failed_request_is_tried_again_after_its_time() -> None:
    buffer = new_buffer(T0)
    buffer.fail(next_request(buffer), UNAVAILABLE, now_ms=1_000, chance=0.5)
    assert buffer.take(10) == []
    assert buffer.next_request(1_049) is None
    assert buffer.wake_at_ms == 1_050
    assert buffer.next_request(1_050) is not None


def test_permanent_failure_is_raised_once_and_tried_again_later() -> None:
    buffer = new_buffer(T0)
    buffer.fail(next_request(buffer), UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "gone"), now_ms=0, chance=0.0)
    with pytest.raises(UnknownTopicError):
        buffer.take(10)
    assert buffer.take(10) == []
    assert buffer.next_request(200) is not None


def test_error_of_one_partition_waits_until_other_partitions_have_no_records() -> None:
    buffer, service = new_buffer(T0, T1), PartitionsService()
    service.append(T1)
    request = next_request(buffer)
    answers, body = service.answer(request)
    answers[0] = {"error": PenstockError(ErrorCode.UNKNOWN_TOPIC, "gone").to_json()}
    buffer.accept(request, answers, body, now_ms=0, chance=0.0)
    assert offsets_of(buffer.take(10)) == [0]
    with pytest.raises(UnknownTopicError):
        buffer.take(10)


def test_corrupt_batch_is_raised_after_the_records_before_it_and_read_again() -> None:
    buffer, service = new_buffer(T0), PartitionsService()
    service.append(T0, 2)
    service.append(T0, 2)
    good = service.batches[T0][1]
    service.batches[T0][1] = (good[0], good[1], good[2][:-1] + b"!")
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert offsets_of(buffer.take(10)) == [0, 1]
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    with pytest.raises(CorruptError):
        buffer.take(10)
    service.batches[T0][1] = good
    request = next_request(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert offsets_of(buffer.take(10)) == [2, 3]


_ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 12)),
    st.tuples(st.just("request"), st.just(0), st.just(0)),
    st.tuples(st.just("answer"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("fail"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("take"), st.just(0), st.integers(1, 5)),
    st.tuples(st.just("seek"), st.integers(0, 2), st.integers(0, 30)),
    st.tuples(st.just("pause"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60))
def test_every_record_comes_once_and_in_order_under_any_interleaving(actions: list[tuple[str, int, int]]) -> None:
    partitions = (T0, T1, T2)
    buffer, service = new_buffer(*partitions, fetch_max_bytes=300, buffer_bytes=900), PartitionsService()
    flying: list[FetchRequest] = []
    expected = dict.fromkeys(partitions, 0)
    now_ms = 0
    is_asleep = False

    def request() -> None:
        nonlocal is_asleep
        if is_asleep and buffer.wake_at_ms > now_ms:
            return  # as the driver does: no call woke it
        made = buffer.next_request(now_ms)
        is_asleep = made is None
        if made is not None:
            flying.append(made)
        assert len(flying) <= SETTINGS.max_in_flight

    def take(count: int) -> int:
        records = buffer.take(count)
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset == expected[partition]
            assert record.value == b"%d" % record.offset
            assert not buffer.cursor(partition).is_paused
            expected[partition] += 1
        assert {each: buffer.positions()[each] for each in partitions} == expected
        return len(records)

    for action, number, detail in actions:
        if action == "append":
            service.append(partitions[number], detail)
        elif action == "request":
            request()
        elif action == "answer" and flying:
            made = flying.pop(number % len(flying))
            buffer.accept(made, *service.answer(made, batches_max=detail), now_ms=now_ms, chance=0.5)
        elif action == "fail" and flying:
            buffer.fail(flying.pop(number % len(flying)), UNAVAILABLE, now_ms, chance=0.5)
        elif action == "take":
            take(detail)
        elif action == "seek":
            offset = min(detail, service.end(partitions[number]))
            buffer.seek(partitions[number], offset)
            expected[partitions[number]] = offset
        elif action == "pause":
            buffer.pause(partitions[number], bool(detail))
        elif action == "wait":
            now_ms += number
    for partition in partitions:
        buffer.pause(partition, is_paused=False)
    for _ in range(500):
        if expected == {each: service.end(each) for each in partitions}:
            return
        now_ms += 300
        request()
        if flying:
            made = flying.pop(0)
            buffer.accept(made, *service.answer(made), now_ms=now_ms, chance=0.5)
        take(10)
    raise AssertionError(f"stuck at {expected}: wakes at {buffer.wake_at_ms}")
