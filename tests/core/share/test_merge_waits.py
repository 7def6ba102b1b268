from dataclasses import replace

from penstock_core.ids import Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_MERGE_BYTES
from penstock_core.share.draft import Draft
from penstock_core.share.merge_waits import merge_waits
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_state import ShareState, Wait
from penstock_core.share.share_update import apply
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
