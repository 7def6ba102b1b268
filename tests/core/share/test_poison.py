"""Records that kill their workers reach the dead-letter topic alone, and every other record is accepted."""

from dataclasses import replace

import pytest

from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import AckType
from penstock_core.share.acquire import plan_acquire
from penstock_core.share.bury import plan_bury
from penstock_core.share.draft import apply
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.share_state import ShareState, locks_of
from tests.core.share.share_samples import LOCK_MS, NEW, NOW_MS, WITH_DEAD_LETTERS, ack, acknowledged, log, request

RECORDS = 120
ROUNDS_MAX = 3_000
CONFIG = replace(WITH_DEAD_LETTERS, in_flight_max=RECORDS)


def worked_off(poison: set[int], *, deliveries_max: int, by_key: bool) -> tuple[set[int], set[int], int]:
    """What was accepted and what was buried, when a worker dies of each poison record; and the rounds."""
    config = replace(CONFIG, deliveries_max=deliveries_max, ordering="key" if by_key else "none")
    hashes = [1 + offset % 40 for offset in range(RECORDS)]
    state, now_ms, accepted, buried = NEW, NOW_MS, set[int](), set[int]()
    for turn in range(ROUNDS_MAX):
        now_ms += LOCK_MS // 10
        nonce = LockNonce(f"nonce-{turn:05}")
        wanted = request(nonce, 20, now_ms)
        if by_key:
            plan = plan_read_first(state, config, log(RECORDS), wanted, hashes[state.position :])
        else:
            plan = plan_acquire(state, config, log(RECORDS), wanted)
        state = after(state, plan.update)
        granted = {offset for lock in locks_of(state, nonce).values() for offset in lock.held.offsets()}
        if not granted & poison:
            for index in range(len(locks_of(state, nonce))):
                state, _ = acknowledged(state, ack(AckType.ACCEPT, nonce=nonce, index=index), config=config)
            accepted |= granted
        burial = plan_bury(state, config, now_ms)
        state = after(state, burial.update)
        buried |= {offset for each in burial.burials for offset in each.records.offsets()}
        if len(accepted) + len(buried) == RECORDS:
            return accepted, buried, turn
    raise AssertionError(f"{RECORDS - len(accepted) - len(buried)} records are left: {state}")


def after(state: ShareState, update: object) -> ShareState:
    if update is None:
        return state
    found = apply(state, update)  # type: ignore[arg-type]  # an update of a plan
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("deliveries_max", [2, 5])
@pytest.mark.parametrize("poison", [{0}, {17}, {3, 4}, {5, 60, 119}])
def test_poison_record_takes_no_other_record_along(poison: set[int], deliveries_max: int, by_key: bool) -> None:
    accepted, buried, rounds = worked_off(poison, deliveries_max=deliveries_max, by_key=by_key)
    assert buried == poison
    assert accepted == {*range(RECORDS)} - poison
    assert rounds < 1_500
