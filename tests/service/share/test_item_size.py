"""The share item has a bound that holds, however workers give their records back. DynamoDB takes 400 KB."""

from typing import Any

import pytest

from penstock_core.limits import SHARE_ITEM_BYTES, SHARE_LOCKS_ALL_MAX, SHARE_WAITS_MAX
from penstock_core.share.acknowledge import AckType
from penstock_core.share.share_codec import entries_bytes
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.hand_over import HandedLock
from tests.service.share.sharing import GROUP, entry_of, finish, locks_in, new_group, state_of, take
from tests.support.service import SteppedClock, head_of, new_topic, send

RECORDS = 500


@pytest.fixture
def filled(instance: Instance) -> Instance:
    for name in ("orders", "dead"):
        new_topic(instance, name)
    new_group(instance, dead_letter_topic="dead", deliveries_max=50)
    for _ in range(RECORDS // 100):
        send(instance, "orders", *["x"] * 100)
    return instance


def give_back(instance: Instance, kind: AckType, at_once: int, facts: list[dict[str, Any]]) -> int:
    """Each record by itself, so many in a request. The largest size of the item meanwhile."""
    held: list[HandedLock] = []
    while found := locks_in(take(instance, 100)):
        held += found
    entries = [
        entry_of(lock, kind, ((offset, offset + 1),), **facts[offset % len(facts)])
        for lock in held
        for offset in lock.grant.records.offsets()
    ]
    assert len(entries) == RECORDS
    largest = 0
    for at in range(0, RECORDS, at_once):
        acknowledge(instance, GROUP, entries[at : at + at_once])
        state = state_of(instance)
        largest = max(largest, entries_bytes(state.locks, state.waits))
        assert len(state.waits) <= SHARE_WAITS_MAX
    return largest


@pytest.mark.parametrize("at_once", [1, 100])
def test_released_one_by_one(filled: Instance, clock: SteppedClock, at_once: int) -> None:
    """Two rounds with pauses of each length: first near times, then times that have nothing in common."""
    delays = [{"delay_ms": 1_000 * place * place} for place in range(100)]
    near: list[dict[str, Any]] = [{}]
    for facts in (near, delays):
        assert give_back(filled, AckType.RELEASE, at_once, facts) < SHARE_ITEM_BYTES
        clock.sleep_ms(60_000_000)


def test_rejected_one_by_one_with_reasons_of_their_own(filled: Instance) -> None:
    facts = [{"reason": f"order {number}: " + "x" * 180} for number in range(RECORDS)]
    assert give_back(filled, AckType.REJECT, 100, facts) < 6 * SHARE_ITEM_BYTES
    while state_of(filled).open:
        take(filled)
    assert head_of(filled, "dead").next_offset == RECORDS


def test_locks_of_records_that_came_back_have_a_bound(filled: Instance, clock: SteppedClock) -> None:
    give_back(filled, AckType.RELEASE, 100, [{"delay_ms": 0}])
    clock.sleep_ms(1_000)
    for _ in range(SHARE_LOCKS_ALL_MAX + 20):
        take(filled, 1)
    assert len(state_of(filled).locks) <= SHARE_LOCKS_ALL_MAX
    clock.sleep_ms(10_000_000)
    seen = 0
    while seen < RECORDS:
        acquired = take(filled, 100)
        seen += sum(lock.grant.records.count for lock in locks_in(acquired))
        finish(filled, acquired)
    assert state_of(filled).open == 0
