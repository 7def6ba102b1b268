from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import (
    SHARE_ENTRIES_MAX,
    SHARE_FAIR_BYTES,
    SHARE_FAIR_OLDEST_EACH,
    SHARE_FAIR_WAIT_RANGES,
    SHARE_ITEM_BYTES,
    SHARE_WAITS_BLIND_MAX,
)
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.acquire import AcquirePlan
from penstock_core.share.fair import plan_fair
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait
from penstock_core.share.tenants import FINISHED, KnownTenants, TenantBatch
from tests.core.share.share_samples import NEW, NOW_MS, WITH_DEAD_LETTERS, acknowledged, applied, log, request

FAIR = ShareGroupConfig(sharing="fair", retry_backoff_ms_min=1, retry_backoff_ms_max=1)
LONG_AGO_MS = NOW_MS - 100_000


def is_oldest_first(nonce: LockNonce) -> bool:
    return (murmur2(nonce.encode()) >> 4) % SHARE_FAIR_OLDEST_EACH == 0


ALL = [LockNonce(f"nonce-{number:04}") for number in range(4_000)]
OLDEST = [nonce for nonce in ALL if is_oldest_first(nonce)]
BY_SHARES = [nonce for nonce in ALL if not is_oldest_first(nonce)]
NO_SUSPECT = [nonce for nonce in BY_SHARES if not murmur2(nonce.encode()) % 2]
SUSPECT = [nonce for nonce in BY_SHARES if murmur2(nonce.encode()) % 2]


def known(text: str, size: int = 1_000) -> KnownTenants:
    """A letter for each record; a point is one that is finished. Batches of `size` records, with 1,000 bytes each."""
    tenants = [FINISHED if each == "." else ord(each) for each in text]
    return KnownTenants(TenantBatch.of(at, tenants[at : at + size], 1_000) for at in range(0, len(text), size))


def plan(
    state: ShareState,
    text: str,
    records_max: int = 3,
    nonce: LockNonce = NO_SUSPECT[0],
    config: ShareGroupConfig = FAIR,
) -> AcquirePlan:
    return plan_fair(state, config, log(len(text)), request(nonce, records_max), known(text))


def emptied(state: ShareState) -> ShareState:
    """The state after all locks were accepted."""
    for name in [*state.locks]:
        state, _ = acknowledged(state, Acknowledgement(lock_id=name, type=AckType.ACCEPT))
    return state


def taken(found: AcquirePlan, state: ShareState = NEW) -> list[int]:
    after = applied(state, found)
    return sorted(o for name in found.update.locks for o in after.locks[name].held.offsets() if name in after.locks)  # type: ignore[union-attr]


def test_each_record_goes_to_the_tenant_with_the_fewest() -> None:
    assert taken(plan(NEW, "nnnnnanbb", 3)) == [0, 5, 7]
    assert taken(plan(NEW, "nnnnnanbb", 4)) in ([0, 1, 5, 7], [0, 5, 7, 8])


def test_records_in_flight_count_and_those_of_an_ended_lock_do_not() -> None:
    held = Lock(Offset(0), NOW_MS + 1, 1, RecordSet(((0, 2),)))
    state = replace(NEW, position=Offset(2), open=2, locks={LockId("other--01.0"): held})
    assert taken(plan(state, "nnnnaa", 2), state) == [4, 5]
    ended = replace(state, locks={LockId("other--01.0"): replace(held, until_ms=NOW_MS)})
    assert len(taken(plan(ended, "nnnnaa", 2), ended)) == 2
    assert taken(plan(ended, "nnnnaa", 2), ended) == [2, 4]


def test_a_tenant_gets_what_the_others_leave() -> None:
    assert taken(plan(NEW, "nnnnnnna", 5)) == [0, 1, 2, 3, 7]


def test_what_is_passed_over_is_one_wait_due_at_once_without_a_delivery() -> None:
    found = plan(NEW, "nnnanb", 3)
    after = applied(NEW, found)
    assert after.waits == {1: Wait(0, 0, RecordSet(((1, 3), (4, 5))))}
    assert (after.position, after.open) == (6, 6)
    assert found.update is not None
    assert found.update.position_between == (0, 0)


def test_the_next_records_in_order_are_taken_wherever_the_position_is() -> None:
    found = plan(NEW, "nnnn", 3)
    assert found.update is not None
    assert (found.update.position_between, found.update.waits) == ((0, 1), {})


def test_records_that_were_passed_over_come_before_fresh_ones_of_their_tenant() -> None:
    state = applied(NEW, plan(NEW, "nnnanbnn", 3))
    assert taken(plan(state, "nnnanbnn", 2, NO_SUSPECT[1]), state) == [1, 2]


def test_the_nonce_decides_between_equals_so_that_one_worker_serves_all() -> None:
    found = Counter(taken(plan(NEW, "n" * 20 + "a" * 20 + "b" * 20, 1, nonce))[0] for nonce in BY_SHARES[:400])
    assert set(found) == {0, 20, 40}
    assert min(found.values()) > 80


def test_a_backlog_wins_as_often_as_each_other_tenant_and_among_these_the_oldest_record() -> None:
    found = Counter(taken(plan(NEW, "n" * 20 + "abcc", 1, nonce))[0] for nonce in BY_SHARES[:400])
    assert set(found) == {0, 20}
    assert 60 < found[0] < 140


def test_some_acquires_take_the_oldest_records_whatever_their_tenant() -> None:
    assert len(OLDEST) == pytest.approx(len(ALL) / SHARE_FAIR_OLDEST_EACH, rel=0.3)
    for nonce in OLDEST:
        assert taken(plan(NEW, "nnnnabc", 3, nonce)) == [0, 1, 2]


def test_finished_records_are_passed_and_not_kept() -> None:
    after = applied(NEW, plan(NEW, "..n.na.", 2))
    assert (after.position, after.waits) == (5 + 2, {4: Wait(0, 0, RecordSet(((4, 5),)))})
    assert applied(NEW, plan(NEW, "....")).position == 4


def test_fresh_records_end_where_their_tenants_are_unknown() -> None:
    found = plan_fair(NEW, FAIR, log(20), request(NO_SUSPECT[0], 10), known("nna"))
    assert taken(found) == [0, 1, 2]
    nothing = plan_fair(NEW, FAIR, log(20), request(NO_SUSPECT[0], 10), KnownTenants())
    assert (nothing.update, nothing.is_blocked) == (None, False)


def test_unknown_records_that_were_passed_over_are_of_one_tenant() -> None:
    state = replace(NEW, position=Offset(6), open=6, waits={Offset(0): Wait(0, 0, RecordSet(((0, 6),)))})
    found = plan_fair(state, FAIR, log(6), request(NO_SUSPECT[0], 4), KnownTenants())
    assert taken(found, state) == [0, 1, 2, 3]


def test_no_room_in_flight_blocks_and_takes_what_came_back() -> None:
    config = replace(FAIR, in_flight_max=5)
    state = applied(NEW, plan(NEW, "nnnnaab", 3, config=config))
    assert (state.open, state.position) == (5, 5)
    after = applied(state, plan(state, "nnnnaab", 3, NO_SUSPECT[1], config=config))
    assert (after.open, after.position) == (5, 5)
    blocked = plan(after, "nnnnaab", 3, NO_SUSPECT[2], config=config)
    assert (blocked.update, blocked.is_blocked) == (None, True)


def test_records_before_a_chosen_one_that_have_no_room_are_taken_in_order() -> None:
    config = replace(FAIR, in_flight_max=4)
    assert taken(plan(NEW, "nnnnnnab", 3, config=config)) == [0, 1, 2]


def test_an_item_that_is_full_of_ranges_passes_over_nothing_more_and_goes_on_in_order() -> None:
    text = "".join(f"n{chr(1_000 + number)}" for number in range(4_000))
    state, sizes = NEW, list[int]()
    for nonce in BY_SHARES[:30]:
        state = emptied(applied(state, plan(state, text, 100, nonce)))
        sizes.append(entries_bytes(state.locks, state.waits))
    assert SHARE_FAIR_BYTES / 2 < max(sizes) < SHARE_FAIR_BYTES + 500 < SHARE_ITEM_BYTES
    assert state.position > 4_000


def test_what_is_passed_over_is_split_so_that_acquires_at_the_same_time_take_of_different_waits() -> None:
    text = "".join(f"n{chr(1_000 + number)}" for number in range(1_000))
    state = emptied(applied(NEW, plan(NEW, text, 300, NO_SUSPECT[0])))
    sizes = [len(wait.records.ranges) for wait in state.waits.values()]
    assert max(sizes) <= SHARE_FAIR_WAIT_RANGES < sum(sizes)
    later = [plan(state, text[: state.position], 1, nonce).update for nonce in NO_SUSPECT[1:60]]
    assert len({min(update.expected_waits) for update in later if update is not None}) > len(sizes) / 3
    finished = 300
    for nonce in NO_SUSPECT[1:30]:
        found = plan(state, text, 20, nonce)
        finished += len(taken(found, state))
        state = emptied(applied(state, found))
        assert len(state.waits) <= SHARE_WAITS_BLIND_MAX
        assert finished + sum(wait.records.count for wait in state.waits.values()) == state.position, "none is lost"


def test_batches_that_fill_the_answer_end_the_acquire_but_for_the_first_one() -> None:
    found = plan_fair(NEW, FAIR, log(9), request(NO_SUSPECT[0], 9), known("abcdefghi", size=3), bytes_max=2_000)
    assert len(taken(found)) == 6
    found = plan_fair(NEW, FAIR, log(9), request(NO_SUSPECT[0], 9), known("abcdefghi", size=3), bytes_max=1)
    assert len(taken(found)) == 3


def test_a_poison_candidate_waits_while_its_tenant_has_more_in_flight() -> None:
    locks = {
        LockId("other--01.0"): Lock(Offset(0), LONG_AGO_MS, 1, RecordSet(((0, 1),))),
        LockId("other--02.0"): Lock(Offset(1), NOW_MS + 1, 1, RecordSet(((0, 1),))),
    }
    state = replace(NEW, position=Offset(2), open=2, locks=locks)
    assert not plan(state, "nna", 2, SUSPECT[0]).is_alone
    assert plan(state, "nnnn", 2, SUSPECT[0]).is_alone
    assert not plan(state, "nnnn", 2, NO_SUSPECT[0]).is_alone
    assert plan(state, "nn", 2, NO_SUSPECT[0]).is_alone


def test_waits_below_the_log_start_and_rejected_ones_without_a_dead_letter_topic_go() -> None:
    waits = {
        Offset(0): Wait(0, 0, RecordSet(((0, 2),))),
        Offset(5): Wait(0, 1, RecordSet(((5, 6),)), is_rejected=True),
    }
    state = replace(NEW, position=Offset(8), open=3, waits=waits)
    found = plan_fair(state, FAIR, log(8, log_start=3), request(NO_SUSPECT[0]), known("nnnnnnnn"))
    assert (applied(state, found).open, applied(state, found).waits) == (0, {})
    kept = replace(FAIR, dead_letter_topic=WITH_DEAD_LETTERS.dead_letter_topic, deliveries_max=3)
    found = plan_fair(state, kept, log(8, log_start=3), request(NO_SUSPECT[0]), known("nnnnnnnn"))
    assert [*applied(state, found).waits] == [5]


@pytest.mark.parametrize("count", range(17))
def test_an_update_with_acknowledgements_touches_no_more_entries_than_any(count: int) -> None:
    state = applied(NEW, plan(NEW, "nnnanbnnnanb" + "nnanb" * 20, 12))
    for nonce in BY_SHARES[1:20]:
        state = applied(state, plan(state, "nnnanbnnnanb" + "nnanb" * 20, 2, nonce))
    acks = [Acknowledgement(lock_id=name, type=AckType.ACCEPT) for name in [*state.locks][:count]]
    found = plan_fair(state, FAIR, log(112), request(BY_SHARES[30], 9), known("nnnanbnnnanb" + "nnanb" * 20), acks)
    assert found.update is not None
    assert len(found.update.expected_locks) + len(found.update.expected_waits) <= SHARE_ENTRIES_MAX


def test_a_repeat_takes_nothing_more() -> None:
    state = applied(NEW, plan(NEW, "nnnanb", 3))
    again = plan(state, "nnnanb", 3)
    assert (again.is_repeat, again.update) == (True, None)


@given(st.text("nnnnnab.", min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 30), st.integers(0, 10**6))
def test_every_record_is_handed_out_once_whatever_the_bounds(text: str, most: int, room: int, seed: int) -> None:
    config = replace(FAIR, in_flight_max=room)
    state, found = NEW, list[int]()
    for number in range(3 * len(text) + 3):
        made = plan(state, text, most, LockNonce(f"{seed:06}-{number:04}"), config)
        if made.update is not None:
            found += taken(made, state)
            state = applied(state, made)
            assert state.open <= room
        if made.is_blocked or (seed + number) % 3:
            state = emptied(state)
    live = [offset for offset, each in enumerate(text) if each != "."]
    assert (sorted(found), state.position, state.open) == (live, len(text), 0)


def shares(text: str, offsets: Sequence[int]) -> Counter[str]:
    return Counter(text[offset] for offset in offsets)


@given(st.text("nab", min_size=1, max_size=40), st.integers(1, 12), st.sampled_from(BY_SHARES))
def test_shares_are_max_min_fair(text: str, most: int, nonce: LockNonce) -> None:
    got, there = shares(text, taken(plan(NEW, text, most, nonce))), Counter(text)
    assert sum(got.values()) == min(most, len(text))
    level = max(got.values())
    assert all(got[tenant] >= min(count, level - 1) for tenant, count in there.items())
