from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, Offset
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock
from penstock_core.share.waits import available_ms, backoff_ms, is_last_delivery
from tests.core.share.share_samples import NO_BACKOFF, NOW_MS, PLAIN, WITH_DEAD_LETTERS

IDS = st.text("abcdefgh", min_size=8, max_size=8).map(LockId)


@given(st.integers(0, 70_000), IDS)
def test_pause_is_between_half_of_the_doubled_time_and_all_of_it(deliveries: int, lock_id: LockId) -> None:
    doubled = min(PLAIN.retry_backoff_ms_max, PLAIN.retry_backoff_ms_min * 2 ** max(0, min(deliveries, 40) - 1))
    assert doubled / 2 - 1 <= backoff_ms(PLAIN, deliveries, lock_id) <= doubled


def test_pause_differs_from_lock_to_lock() -> None:
    assert len({backoff_ms(PLAIN, 9, LockId(f"nonce-{number}.0")) for number in range(100)}) > 90


def test_pause_may_be_none() -> None:
    assert backoff_ms(NO_BACKOFF, 5, LockId("a.0")) == 0


def test_lock_is_available_after_its_end_and_the_pause() -> None:
    lock = Lock(Offset(0), NOW_MS, 2, RecordSet(((0, 1),)))
    name = LockId("nonce-01.0")
    assert available_ms(PLAIN, name, lock) == NOW_MS + backoff_ms(PLAIN, 2, name)


def test_last_delivery_has_no_pause() -> None:
    lock = Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 1),)))
    assert available_ms(WITH_DEAD_LETTERS, LockId("a.0"), lock) == NOW_MS
    assert [is_last_delivery(WITH_DEAD_LETTERS, deliveries) for deliveries in (2, 3, 4)] == [False, True, True]
    assert not is_last_delivery(PLAIN, 60_000)
