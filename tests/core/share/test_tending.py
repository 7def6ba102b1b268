import pytest

from penstock_core.ids import LockNonce, Offset
from penstock_core.share.acquire import plan_acquire
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import ShareState, Wait
from penstock_core.share.waits import tends
from tests.core.share.share_samples import NOW_MS, PLAIN, acquired, held, log, request

NONCES = [LockNonce(f"tending-{number:04}") for number in range(1_000)]
WAITING = ShareState(position=Offset(1), open=1, waits={Offset(0): Wait(NOW_MS, 1, RecordSet(((0, 1),)))})


@pytest.mark.parametrize(
    ("overdue_ms", "share"), [(0, 1 / 8), (249, 1 / 8), (250, 1 / 4), (500, 1 / 2), (750, 1), (10**6, 1), (-5, 1 / 8)]
)
def test_more_acquires_tend_the_longer_a_record_is_overdue(overdue_ms: int, share: float) -> None:
    found = sum(tends(nonce, overdue_ms) for nonce in NONCES) / len(NONCES)
    assert found == pytest.approx(share, abs=0.04)


def test_acquire_that_tends_early_tends_later_too() -> None:
    for nonce in NONCES[:100]:
        found = [tends(nonce, overdue_ms) for overdue_ms in range(0, 1_001, 250)]
        assert found == sorted(found)


def test_most_acquires_of_fresh_records_rely_on_no_entry_of_others() -> None:
    plans = [plan_acquire(WAITING, PLAIN, log(), request(nonce)) for nonce in NONCES[:100]]
    touching = [plan for plan in plans if plan.update is None or plan.update.expected_waits]
    assert 5 <= len(touching) <= 20


def test_slow_worker_alone_takes_what_came_back_although_there_are_fresh_records() -> None:
    state, tried = WAITING, 0
    for nonce in NONCES[:20]:  # one record every ten seconds
        tried += 1
        state = acquired(state, nonce, 1, now_ms=NOW_MS + 10_000 * tried, next_offset=1_000)
        if ((((0, 1),), 2)) in held(state, nonce):
            break
    assert tried <= 10


def test_every_acquire_tends_where_there_is_nothing_fresh_or_no_room_for_it() -> None:
    full = ShareState(position=Offset(1), open=20_000, waits=WAITING.waits)
    for nonce in NONCES[:50]:
        assert held(acquired(WAITING, nonce, next_offset=1), nonce) == [(((0, 1),), 2)]
        plan = plan_acquire(full, PLAIN, log(), request(nonce))
        assert plan.update is not None
        assert Offset(0) in plan.update.expected_waits
