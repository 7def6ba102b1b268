from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptError, InvalidError, OffsetOutOfRangeError, UnavailableError, UnknownTopicError
from penstock.fetch_buffer import FetchBuffer, FetchRequest, FetchSettings
from penstock.model import ConsumerRecord, TopicPartition
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.record_batch import stamp
from penstock_core.records import NewRecord, encode

SETTINGS = FetchSettings(
    fetch_max_bytes=1_000,
    fetch_wait_ms=500,
    buffer_bytes=10_000,
    max_in_flight=2,
    offset_reset="earliest",
    retry=RetryPolicy(backoff_ms=100, backoff_max_ms=200),
)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")


class _Service:
    """Partitions as lists of batches of known offsets; answers requests as POST /v1/fetch does."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[tuple[int, int, bytes]]] = {}
        self.starts: dict[TopicPartition, int] = {}

    def append(self, partition: TopicPartition, count: int = 1) -> None:
        base = self.end(partition)
        data = bytearray(encode([NewRecord(offset, None, b"%d" % offset) for offset in range(base, base + count)]))
        stamp(data, base)
        self.batches.setdefault(partition, []).append((base, base + count, bytes(data)))

    def end(self, partition: TopicPartition) -> int:
        return max((end for _, end, _ in self.batches.get(partition, [])), default=0)

    def answer(self, request: FetchRequest, batches_max: int = 100) -> tuple[list[dict[str, Any]], memoryview]:
        answers, bodies = [], []
        for asked in request.body["partitions"]:
            partition, offset = TopicPartition(asked["topic"], asked["partition"]), asked["offset"]
            start, end = self.starts.get(partition, 0), self.end(partition)
            bounds = {"log_start_offset": start, "high_watermark": end}
            if not start <= offset <= end:
                error = OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, "", **bounds).to_json()
                answers.append({"topic": partition.topic, "partition": partition.partition, "error": error})
                continue
            found = [each for each in self.batches.get(partition, []) if each[1] > offset][:batches_max]
            body = b"".join(data for *_, data in found)
            bodies.append(body)
            answers.append({**bounds, "next_offset": found[-1][1] if found else offset, "length": len(body)})
        return answers, memoryview(b"".join(bodies))


def _buffer(*partitions: TopicPartition, **changes: Any) -> FetchBuffer:
    buffer = FetchBuffer(replace(SETTINGS, **changes))
    buffer.assign(partitions)
    for partition in partitions:
        buffer.seek(partition, 0)
    return buffer


def _next(buffer: FetchBuffer, now_ms: int = 0) -> FetchRequest:
    request = buffer.next_request(now_ms)
    assert request is not None
    return request


def _asked(request: FetchRequest) -> list[int]:
    return [asked["partition"] for asked in request.body["partitions"]]


def _offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_one_request_asks_for_all_partitions_and_waits_for_data() -> None:
    request = _next(_buffer(T0, T1, T2))
    assert _asked(request) == [0, 1, 2]
    assert request.body["wait_ms"] == 500
    assert request.body["max_bytes"] == 1_000


def test_partition_without_a_position_is_not_fetched() -> None:
    buffer = FetchBuffer(SETTINGS)
    buffer.assign([T0])
    assert buffer.next_request(0) is None
    assert buffer.without_position() == [T0]


def test_records_come_in_order_with_their_place() -> None:
    buffer, service = _buffer(T0), _Service()
    service.append(T0, 3)
    service.append(T0, 2)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    records = buffer.take(4)
    assert records[0] == ConsumerRecord("t", 0, 0, 0, None, b"0", ())
    assert _offsets(records) == [0, 1, 2, 3]
    assert buffer.positions() == {T0: 4}
    assert _offsets(buffer.take(4)) == [4]


def test_records_below_the_asked_offset_are_skipped() -> None:
    buffer, service = _buffer(T0), _Service()
    service.append(T0, 5)
    buffer.seek(T0, 3)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert [_offsets(buffer.take(1)), _offsets(buffer.take(10))] == [[3], [4]]


def test_position_goes_past_offsets_that_hold_nothing_any_more() -> None:
    buffer = _buffer(T0)
    request = _next(buffer)
    answer = {"log_start_offset": 0, "high_watermark": 9, "next_offset": 9, "length": 0}
    buffer.accept(request, [answer], memoryview(b""), now_ms=0, chance=0.0)
    assert buffer.take(10) == []
    assert buffer.positions() == {T0: 9}


def test_seek_drops_what_is_prefetched_and_what_is_in_flight() -> None:
    buffer, service = _buffer(T0), _Service()
    service.append(T0, 5)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    stale = _next(buffer)
    buffer.seek(T0, 1)
    fresh = _next(buffer)
    buffer.accept(stale, *service.answer(stale), now_ms=0, chance=0.0)
    assert buffer.take(10) == []
    buffer.accept(fresh, *service.answer(fresh), now_ms=0, chance=0.0)
    assert _offsets(buffer.take(10)) == [1, 2, 3, 4]


def test_unassigned_partition_is_dropped_even_when_its_answer_comes() -> None:
    buffer, service = _buffer(T0, T1), _Service()
    service.append(T0)
    service.append(T1)
    request = _next(buffer)
    buffer.assign([T1])
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert {record.partition for record in buffer.take(10)} == {1}
    with pytest.raises(InvalidError, match="not assigned"):
        buffer.seek(T0, 0)


def test_paused_partition_hands_out_nothing_and_goes_on_where_it_was() -> None:
    buffer, service = _buffer(T0), _Service()
    service.append(T0, 2)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    buffer.pause(T0, is_paused=True)
    assert buffer.take(10) == []
    assert buffer.next_request(0) is None
    buffer.pause(T0, is_paused=False)
    assert _offsets(buffer.take(10)) == [0, 1]


def test_paused_partition_gives_its_memory_to_others() -> None:
    buffer, service = _buffer(T0, T1, buffer_bytes=1_000), _Service()
    service.append(T0, 2)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert buffer.next_request(0) is None
    buffer.pause(T0, is_paused=True)
    assert _asked(_next(buffer)) == [1]
    buffer.pause(T0, is_paused=False)
    assert buffer.positions()[T0] == 0


def test_prefetching_stops_at_the_memory_bound_and_goes_on_when_there_is_room() -> None:
    buffer, service = _buffer(T0, fetch_max_bytes=200, buffer_bytes=500, max_in_flight=1), _Service()
    for _ in range(20):
        service.append(T0, 5)
    while (request := buffer.next_request(0)) is not None:
        buffer.accept(request, *service.answer(request, batches_max=1), now_ms=0, chance=0.0)
    first = _offsets(buffer.take(1_000))
    assert 0 < len(first) < 20
    assert buffer.wake_at_ms == 0
    assert buffer.next_request(0) is not None


def test_quiet_partitions_share_one_long_poll() -> None:
    buffer, service = _buffer(T0, T1), _Service()
    first = _next(buffer)
    buffer.assign([T0, T1, T2])
    buffer.seek(T2, 0)
    second = _next(buffer)
    assert (_asked(first), _asked(second)) == ([0, 1], [2])
    buffer.accept(first, *service.answer(first), now_ms=0, chance=0.0)
    assert buffer.next_request(0) is None
    buffer.accept(second, *service.answer(second), now_ms=0, chance=0.0)
    assert sorted(_asked(_next(buffer))) == [0, 1, 2]


def test_partition_that_had_records_does_not_wait_for_the_quiet_ones() -> None:
    buffer, service = _buffer(T0, T1), _Service()
    first = _next(buffer)
    service.append(T0)
    buffer.accept(first, *service.answer(first), now_ms=0, chance=0.0)
    buffer.pause(T0, is_paused=True)
    assert _asked(_next(buffer)) == [1]
    buffer.pause(T0, is_paused=False)
    assert _asked(_next(buffer)) == [0]


def test_partitions_that_are_behind_are_shared_out_over_requests() -> None:
    buffer, service = _buffer(T0, T1, T2), _Service()
    for partition in (T0, T1, T2):
        service.append(partition)
        service.append(partition)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request, batches_max=1), now_ms=0, chance=0.0)
    assert [_asked(_next(buffer)), _asked(_next(buffer)), buffer.next_request(0)] == [[0, 1], [2], None]


def test_partitions_take_turns() -> None:
    buffer, service = _buffer(T0, T1), _Service()
    service.append(T0, 4)
    service.append(T1, 4)
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert [buffer.take_run(2)[0].partition for _ in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 3), ("latest", 5)])
def test_offset_out_of_range_follows_the_reset(reset: str, expected: int) -> None:
    buffer, service = _buffer(T0, offset_reset=reset), _Service()
    service.append(T0, 5)
    service.starts[T0] = 3
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert buffer.positions() == {T0: expected}
    assert _next(buffer).body["partitions"][0]["offset"] == expected


def test_offset_out_of_range_is_raised_without_a_reset() -> None:
    buffer, service = _buffer(T0, offset_reset="none"), _Service()
    service.append(T0, 5)
    service.starts[T0] = 3
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        buffer.take(10)
    assert caught.value.facts["log_start_offset"] == 3


def test_answer_and_failure_wake_the_driver_that_had_nothing_to_ask() -> None:
    buffer, service = _buffer(T0), _Service()
    request = _next(buffer)
    assert buffer.next_request(0) is None
    assert buffer.wake_at_ms == NEVER_MS
    buffer.accept(request, *service.answer(request), now_ms=5, chance=0.0)
    assert buffer.wake_at_ms <= 5
    request = _next(buffer)
    assert buffer.next_request(5) is None
    buffer.fail(request, UNAVAILABLE, now_ms=7, chance=0.0)
    assert buffer.wake_at_ms <= 7


def test_failed_request_is_tried_again_after_its_time() -> None:
    buffer = _buffer(T0)
    buffer.fail(_next(buffer), UNAVAILABLE, now_ms=1_000, chance=0.5)
    assert buffer.take(10) == []
    assert buffer.next_request(1_049) is None
    assert buffer.wake_at_ms == 1_050
    assert buffer.next_request(1_050) is not None


def test_permanent_failure_is_raised_once_and_tried_again_later() -> None:
    buffer = _buffer(T0)
    buffer.fail(_next(buffer), UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "gone"), now_ms=0, chance=0.0)
    with pytest.raises(UnknownTopicError):
        buffer.take(10)
    assert buffer.take(10) == []
    assert buffer.next_request(200) is not None


def test_error_of_one_partition_waits_until_the_others_are_handed_out() -> None:
    buffer, service = _buffer(T0, T1), _Service()
    service.append(T1)
    request = _next(buffer)
    answers, body = service.answer(request)
    answers[0] = {"error": PenstockError(ErrorCode.UNKNOWN_TOPIC, "gone").to_json()}
    buffer.accept(request, answers, body, now_ms=0, chance=0.0)
    assert _offsets(buffer.take(10)) == [0]
    with pytest.raises(UnknownTopicError):
        buffer.take(10)


def test_corrupt_batch_is_raised_after_what_is_before_it_and_read_again() -> None:
    buffer, service = _buffer(T0), _Service()
    service.append(T0, 2)
    service.append(T0, 2)
    good = service.batches[T0][1]
    service.batches[T0][1] = (good[0], good[1], good[2][:-1] + b"!")
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert _offsets(buffer.take(10)) == [0, 1]
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    with pytest.raises(CorruptError):
        buffer.take(10)
    service.batches[T0][1] = good
    request = _next(buffer)
    buffer.accept(request, *service.answer(request), now_ms=0, chance=0.0)
    assert _offsets(buffer.take(10)) == [2, 3]


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


@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60))
def test_every_record_comes_once_and_in_order_under_any_interleaving(actions: list[tuple[str, int, int]]) -> None:
    partitions = (T0, T1, T2)
    buffer, service = _buffer(*partitions, fetch_max_bytes=300, buffer_bytes=900), _Service()
    flying: list[FetchRequest] = []
    expected = dict.fromkeys(partitions, 0)
    now_ms = 0
    is_asleep = False

    def request() -> None:
        nonlocal is_asleep
        if is_asleep and buffer.wake_at_ms > now_ms:
            return  # as the driver does: nobody woke it
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
