from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TimerId, TopicId
from penstock_core.limits import (
    APPEND_MS_MAX,
    STORAGE_REPEAT_MS_MAX,
    TIMER_DELAY_MS_MAX,
    TIMER_MARK_KEPT_MS,
    TIMER_MESSAGE_MS_MAX,
    TIMER_MINUTE_KEPT_MS,
    TIMER_PAST_MS_MAX,
    TIMERS_PROMOTED_MAX,
    TRANSACTION_ACTIONS_MAX,
    TRANSACTION_MS_MAX,
)
from penstock_core.log.timer import (
    TimerPlace,
    TimerState,
    cancelled,
    check_due,
    delivered,
    delivered_ref,
    is_announceable,
    is_minute_over,
    is_past,
    minute_of,
    new_timer_id,
    parse_scheduled_id,
    parse_timer_id,
    scheduled_id,
    second_of,
)
from tests.support.refusals import refused
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
NOW = 1_800_000_000_000
CLOCKS_APART_MS = 5 * 60_000  # AWS refuses a signature from a clock that is further off


def test_no_put_comes_after_its_mark_or_its_minute_have_gone() -> None:
    """A put is checked, and then sent for some seconds at most; a staged one waits for its commit."""
    latest_put_ms = TIMER_PAST_MS_MAX + APPEND_MS_MAX + STORAGE_REPEAT_MS_MAX
    assert latest_put_ms + 2 * CLOCKS_APART_MS < TIMER_MINUTE_KEPT_MS
    assert latest_put_ms + TRANSACTION_MS_MAX < TIMER_MARK_KEPT_MS
    assert 1 + TIMERS_PROMOTED_MAX <= TRANSACTION_ACTIONS_MAX


def test_due_times_are_bounded() -> None:
    check_due(NOW + TIMER_DELAY_MS_MAX, NOW)
    refused(ErrorCode.INVALID_REQUEST, lambda: check_due(NOW + TIMER_DELAY_MS_MAX + 1, NOW))
    assert not is_past(NOW - TIMER_PAST_MS_MAX, NOW)
    assert is_past(NOW - TIMER_PAST_MS_MAX - 1, NOW)


def test_minute_is_over_when_no_writer_puts_a_timer_in_it() -> None:
    minute = minute_of(NOW, KEY)
    assert minute.start_ms <= NOW < minute.end_ms
    assert not is_minute_over(minute, minute.end_ms + TIMER_MINUTE_KEPT_MS)
    assert is_minute_over(minute, minute.end_ms + TIMER_MINUTE_KEPT_MS + 1)


@given(st.integers(1, 2**48))
def test_second_of_a_due_time_ends_at_it_or_later(due_ms: int) -> None:
    second = second_of(due_ms, KEY)
    assert second.start_ms <= due_ms <= second.end_ms < due_ms + 1_000


def test_message_can_wait_for_the_end_of_the_second() -> None:
    assert is_announceable(NOW + TIMER_MESSAGE_MS_MAX - 1_000, NOW)
    assert not is_announceable(NOW + TIMER_MESSAGE_MS_MAX - 999, NOW)


def test_mark_expires_a_day_after_settlement_and_due_time() -> None:
    timer = timer_at(KEY, NOW)
    assert timer.is_waiting
    assert timer.expires_ms is None
    assert delivered(timer, NOW + 5).expires_ms == NOW + 5 + TIMER_MARK_KEPT_MS
    assert cancelled(timer, NOW - 5).expires_ms == NOW + TIMER_MARK_KEPT_MS
    assert [each(timer, NOW).state for each in (delivered, cancelled)] == [TimerState.DELIVERED, TimerState.CANCELLED]
    assert delivered_ref(timer, NOW + 5) == replace(timer.ref, appended_ms=NOW + 5, is_delayed=True)


@given(st.integers(0, 999), st.integers(0, 10**15 - 1), st.binary(min_size=16, max_size=16))
def test_scheduled_id_round_trip(partition: int, due_ms: int, timer_id: bytes) -> None:
    place = TimerPlace(due_ms, TimerId(timer_id))
    assert parse_scheduled_id(scheduled_id(Partition(partition), place)) == (partition, place)


@pytest.mark.parametrize("text", ["", "1-2", "1-2-zz", f"1000-2-{'0' * 32}", f"1-2-{'0' * 32} ", f"1-2-{'0' * 33}"])
def test_other_texts_are_no_scheduled_id(text: str) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: parse_scheduled_id(text))


def test_timer_ids_rise_with_time_and_count() -> None:
    ids = [new_timer_id(now_ms, number, b"\xff" * 6) for now_ms, number in ((5, 1), (5, 2), (6, 0))]
    assert ids == sorted(ids)
    assert [parse_timer_id(each.hex()) for each in ids] == ids
    with pytest.raises(PenstockError):
        parse_timer_id("0" * 31)
