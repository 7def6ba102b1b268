"""The fetch buffer under any interleaving of its driver's and its owner's calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.fetch_buffer import FetchRequest
from penstock.model import TopicPartition
from tests.sdk.consumer.fetch_buffer_fixtures import SETTINGS, T0, T1, T2, UNAVAILABLE, PartitionsService, new_buffer

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
