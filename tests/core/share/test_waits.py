from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_MERGE_BYTES, SHARE_WAITS_BLIND_MAX, SHARE_WAITS_MAX
from penstock_core.share.draft import Draft, apply
from penstock_core.share.record_set import RecordSet, normalized
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_state import ShareState, Wait
from penstock_core.share.waits import add_wait, merge_waits
from tests.core.share.share_samples import NOW_MS, PLAIN, check


def waiting(count: int, **changes: object) -> ShareState:
    """A state of so many waits of one record each, with gaps between them, a second apart in all."""
    waits = {
        Offset(3 * at): replace(Wait(NOW_MS + at, 8, RecordSet(((3 * at, 3 * at + 1),))), **changes)  # type: ignore[arg-type]  # fields of many types
        for at in range(count)
    }
    return ShareState(position=Offset(3 * count), open=count, waits=waits)


def merged(state: ShareState) -> ShareState:
    draft = Draft(state)
    merge_waits(draft, PLAIN, NOW_MS - 60_000)
    update = draft.update()
    after = state if update is None else apply(state, update)
    assert after is not None
    check(after)
    assert after.unfinished() == state.unfinished()
    return after


def test_small_items_are_left_alone() -> None:
    state = waiting(10)
    assert merged(state) == state


def test_near_waits_become_one_that_is_available_at_the_last_time() -> None:
    state = waiting(150)
    after = merged(state)
    merged_count = SHARE_ENTRIES_MAX - 1
    assert len(after.waits) == len(state.waits) - merged_count + 1
    first = after.waits[Offset(0)]
    assert first.records.count == merged_count
    assert first.available_ms == max(wait.available_ms for wait in [*state.waits.values()][:merged_count])


def test_merging_ends_with_a_small_item() -> None:
    state = waiting(150)
    for _ in range(10):
        state = merged(state)
    assert entries_bytes({}, state.waits) <= SHARE_MERGE_BYTES


def test_waits_of_other_counts_or_times_stay_apart() -> None:
    state = waiting(150)
    waits = {
        first: replace(wait, deliveries=1 + first % 2, available_ms=NOW_MS + 1_000_000 * (first % 5))
        for first, wait in state.waits.items()
    }
    after = merged(replace(state, waits=waits))
    for first, wait in after.waits.items():
        kinds = {(waits[Offset(at)].deliveries, waits[Offset(at)].available_ms) for at in wait.records.offsets()}
        assert kinds == {(wait.deliveries, wait.available_ms)}, first


def test_rejected_waits_stay_apart_by_their_reasons() -> None:
    state = waiting(150, is_rejected=True, available_ms=0)
    waits = {first: replace(wait, reason=f"reason {first % 2}") for first, wait in state.waits.items()}
    after = merged(replace(state, waits=waits))
    assert len(after.waits) < len(waits)
    for wait in after.waits.values():
        assert {waits[Offset(at)].reason for at in wait.records.offsets()} == {wait.reason}


def released(state: ShareState, *waits: Wait) -> ShareState:
    """The state after an update that adds waits, whose records lie above those of the state."""
    draft = Draft(state)
    for wait in waits:
        add_wait(draft, PLAIN, NOW_MS, wait)
    update = draft.update()
    assert update is not None
    assert update.waits_max is None or len(state.waits) <= update.waits_max
    after = apply(state, update)
    assert after is not None
    records = [each.records for each in waits]
    assert after.unfinished() == normalized((*state.unfinished(), *(span for each in records for span in each.ranges)))
    return after


def one(offset: int, **changes: object) -> Wait:
    return replace(Wait(NOW_MS + 500, 1, RecordSet(((offset, offset + 1),))), **changes)  # type: ignore[arg-type]  # fields of many types


def test_what_one_update_adds_with_equal_facts_is_one_wait() -> None:
    after = released(waiting(3), *(one(100 + at) for at in range(10)), one(200, reason="bad", is_rejected=True))
    assert {first for first in after.waits if first >= 100} == {100, 200}


def test_what_an_item_with_many_waits_gets_is_merged_into_a_near_one() -> None:
    state = waiting(SHARE_WAITS_BLIND_MAX - 1)
    state = released(state, one(1_000, deliveries=8, available_ms=NOW_MS))
    assert len(state.waits) == SHARE_WAITS_BLIND_MAX
    after = released(state, one(1_100, deliveries=8, available_ms=NOW_MS + 40))
    assert len(after.waits) == SHARE_WAITS_BLIND_MAX
    other = released(after, one(1_200, deliveries=3))
    assert len(other.waits) == SHARE_WAITS_BLIND_MAX + 1, "it has another count"


@pytest.mark.parametrize("changes", [{}, {"is_rejected": True, "reason": "b"}, {"is_dead": True}])
def test_waits_of_a_full_item_take_what_comes(changes: dict[str, object]) -> None:
    state = ShareState(position=Offset(0))
    for at in range(2 * SHARE_WAITS_MAX):
        facts = {"reason": f"reason {at}"} if "reason" in changes else {}
        wait = one(3 * at, deliveries=at, available_ms=NOW_MS + 100_000 * at, **{**changes, **facts})
        state = released(replace(state, position=Offset(3 * at + 3)), wait)
    assert len(state.waits) == SHARE_WAITS_MAX
    assert all(
        (wait.is_rejected, wait.is_dead) == ("reason" in changes, "is_dead" in changes) for wait in state.waits.values()
    )


def test_update_that_adds_a_wait_is_refused_when_others_have_filled_the_item() -> None:
    state = ShareState(position=Offset(2_000))
    draft = Draft(state)
    draft.put_wait(one(1_500))
    update = draft.update()
    assert update is not None
    full = waiting(SHARE_WAITS_MAX)
    assert apply(replace(full, position=Offset(2_000)), update) is None
