"""The breaker between a share consumer and its handler."""

from penstock import ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.breaker import Breaker
from penstock_core.limits import SDK_SHARE_FAILURES_MAX, SDK_SHARE_PAUSE_MS, SDK_SHARE_PAUSE_MS_MAX


def record(offset: int) -> ShareRecord:
    return ShareRecord("orders", 0, offset, 1, None, b"", (), 1, "a.0")


def opened(now_ms: int = 0) -> Breaker:
    breaker = Breaker()
    pauses = [breaker.failed(record(offset), now_ms) for offset in range(SDK_SHARE_FAILURES_MAX)]
    assert pauses == [0] * (SDK_SHARE_FAILURES_MAX - 1) + [SDK_SHARE_PAUSE_MS]
    return breaker


def test_breaker_opens_after_ten_records_and_lets_one_handler_try() -> None:
    breaker = opened(now_ms=5)
    assert (breaker.is_open, breaker.due_ms) == (True, 5 + SDK_SHARE_PAUSE_MS)
    breaker.tries()
    assert breaker.due_ms == NEVER_MS
    breaker.gives_up()
    assert breaker.due_ms == 5 + SDK_SHARE_PAUSE_MS


def test_pause_doubles_up_to_a_minute_and_ends_with_a_success() -> None:
    breaker, pauses = opened(), []
    for offset in range(10):
        breaker.tries()
        pauses.append(breaker.failed(record(offset), 0))
    assert pauses[:3] == [2 * SDK_SHARE_PAUSE_MS, 4 * SDK_SHARE_PAUSE_MS, 8 * SDK_SHARE_PAUSE_MS]
    assert pauses[-1] == SDK_SHARE_PAUSE_MS_MAX
    breaker.tries()
    breaker.succeeded()
    assert (breaker.is_open, breaker.due_ms) == (False, 0)
    assert breaker.failed(record(0), 0) == 0


def test_record_that_fails_again_and_again_opens_nothing() -> None:
    breaker = Breaker()
    assert [breaker.failed(record(7), 0) for _ in range(100)] == [0] * 100
    assert not breaker.is_open


def test_failures_from_before_the_pause_do_not_lengthen_it() -> None:
    breaker = opened()
    assert breaker.failed(record(100), 500) == 0
    assert breaker.due_ms == SDK_SHARE_PAUSE_MS


def test_success_from_before_the_pause_ends_it() -> None:
    breaker = opened()
    breaker.succeeded()
    assert breaker.due_ms == 0
