from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_LOCKS_MAX, SHARE_SUSPECT_PARTS
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.acquire import grants, next_available_ms, plan_acquire
from penstock_core.share.draft import apply
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, lock_id
from penstock_core.share.waits import backoff_ms
from tests.core.share.share_samples import (
    LOCK_MS,
    NEW,
    NO_BACKOFF,
    NONCE,
    NOW_MS,
    OTHER,
    PLAIN,
    WITH_DEAD_LETTERS,
    ack,
    acknowledged,
    acquired,
    applied,
    check,
    held,
    log,
    request,
)

EXPIRED_MS = NOW_MS + LOCK_MS + 10_000
A, B = LockId("aaaaaaaa.0"), LockId("bbbbbbbb.0")
NONCES = [LockNonce(f"nonce-{number:02}") for number in range(40)]


def test_fresh_records_are_handed_out_in_order() -> None:
    state = acquired(acquired(NEW), OTHER, 5)
    assert (held(state), held(state, OTHER)) == ([(((0, 10),), 1)], [(((10, 15),), 1)])
    [grant] = grants(state, NONCE)
    assert (grant.lock_id, grant.records.ranges, grant.lock.until_ms) == ("nonce-01.0", ((0, 10),), NOW_MS + LOCK_MS)


def test_fresh_records_end_at_the_next_offset() -> None:
    state = acquired(NEW, next_offset=3)
    assert held(state) == [(((0, 3),), 1)]
    plan = plan_acquire(state, PLAIN, log(3), request(OTHER))
    assert (plan.update, plan.is_blocked) == (None, False)


def test_two_acquires_with_the_same_view_get_different_records() -> None:
    plans = [plan_acquire(NEW, PLAIN, log(), request(nonce)) for nonce in (NONCE, OTHER)]
    state = applied(applied(NEW, plans[0]), plans[1])
    assert (held(state), held(state, OTHER)) == ([(((0, 10),), 1)], [(((10, 20),), 1)])


def test_acquire_with_an_old_view_goes_not_past_the_end_that_it_saw() -> None:
    stale = plan_acquire(NEW, PLAIN, log(15), request())
    state = acquired(NEW, OTHER, next_offset=30)
    assert stale.update is not None
    assert apply(state, stale.update) is None


def test_repeated_acquire_finds_its_own_locks_and_counts_no_delivery() -> None:
    state = acquired(NEW)
    plan = plan_acquire(state, PLAIN, log(), request())
    assert (plan.update, plan.is_repeat) == (None, True)
    assert [grant.records.ranges for grant in grants(state, NONCE)] == [((0, 10),)]


def test_first_try_of_an_acquire_that_lands_after_the_second_is_refused() -> None:
    first = plan_acquire(NEW, PLAIN, log(), request())
    state = acquired(NEW)
    assert first.update is not None
    assert apply(state, first.update) is None


def test_every_lock_of_a_late_try_is_expected_absent() -> None:
    """The tries saw different entries. One of their locks is accepted, and another one of that id must not be lost."""
    waits = {
        Offset(0): Wait(0, 1, RecordSet(((0, 1),))),
        Offset(1): Wait(0, 2, RecordSet(((1, 2),))),
    }
    both = ShareState(position=Offset(2), open=2, waits=waits)
    one = ShareState(position=Offset(2), open=1, waits={Offset(0): waits[Offset(0)]})
    first = plan_acquire(one, NO_BACKOFF, log(5), request())
    second = applied(both, plan_acquire(both, NO_BACKOFF, log(5), request()))
    assert first.update is not None
    assert all(name in first.update.expected_locks for name in first.update.locks)
    accepted, _ = acknowledged(second, ack(AckType.ACCEPT, index=0))
    assert apply(accepted, first.update) is None


def test_records_below_the_log_start_are_passed_over() -> None:
    plan = plan_acquire(NEW, PLAIN, log(100, 40), request())
    state = applied(NEW, plan)
    assert held(state) == [(((40, 50),), 1)]
    assert plan.update is not None
    assert apply(acquired(NEW, OTHER), plan.update) is None, "the position has moved"


def test_bound_in_flight_blocks_fresh_records_until_some_are_finished() -> None:
    config = replace(PLAIN, in_flight_max=12)
    state = acquired(acquired(NEW, config=config), OTHER, config=config)
    assert held(state, OTHER) == [(((10, 12),), 1)]
    plan = plan_acquire(state, config, log(), request(NONCES[0]))
    assert (plan.update, plan.is_blocked) == (None, True)
    finished, _ = acknowledged(state, ack(AckType.ACCEPT, (0, 3)))
    assert held(acquired(finished, NONCES[0], config=config), NONCES[0]) == [(((12, 15),), 1)]


def test_bound_in_flight_holds_when_two_acquires_have_the_same_view() -> None:
    config = replace(PLAIN, in_flight_max=15)
    plans = [plan_acquire(NEW, config, log(), request(nonce)) for nonce in (NONCE, OTHER)]
    assert plans[1].update is not None
    assert apply(applied(NEW, plans[0]), plans[1].update) is None


def test_number_of_locks_is_bounded() -> None:
    locks = {
        LockId(f"n{number}.0"): Lock(Offset(number), EXPIRED_MS * 2, 1, RecordSet(((0, 1),)))
        for number in range(SHARE_LOCKS_MAX)
    }
    state = ShareState(position=Offset(SHARE_LOCKS_MAX), open=SHARE_LOCKS_MAX, locks=locks)
    assert plan_acquire(state, PLAIN, log(), request()).is_blocked
    one_less, _ = acknowledged(state, ack(AckType.ACCEPT, nonce=LockNonce("n3")))
    plans = [plan_acquire(one_less, PLAIN, log(), request(nonce)) for nonce in (NONCE, OTHER)]
    assert plans[1].update is not None
    assert apply(applied(one_less, plans[0]), plans[1].update) is None


def test_large_item_gives_no_fresh_records() -> None:
    waits = {Offset(at): Wait(EXPIRED_MS, 1 + at, RecordSet(((at, at + 1),))) for at in range(0, 1800, 2)}
    state = ShareState(position=Offset(1800), open=900, waits=waits)
    assert plan_acquire(state, PLAIN, log(2_000), request()).is_blocked


def test_released_records_come_again_once_their_pause_is_over() -> None:
    waiting, _ = acknowledged(acquired(NEW), ack(AckType.RELEASE, (2, 5), delay_ms=100))
    early = acquired(waiting, OTHER, next_offset=20)
    assert held(early, OTHER) == [(((10, 20),), 1)]
    state = acquired(waiting, OTHER, next_offset=10, now_ms=NOW_MS + 100)
    assert held(state, OTHER) == [(((2, 5),), 2)]


def test_records_that_come_again_take_half_of_an_acquire_while_there_are_fresh_ones() -> None:
    waiting, _ = acknowledged(acquired(NEW, records_max=20), ack(AckType.RELEASE, delay_ms=0))
    state = acquired(waiting, OTHER, records_max=8, now_ms=NOW_MS + 1_000)
    assert held(state, OTHER) == [(((0, 4),), 2), (((20, 24),), 1)]
    assert state.waits == {4: Wait(NOW_MS, 1, RecordSet(((4, 20),)))}
    assert held(acquired(waiting, OTHER, records_max=8, next_offset=20), OTHER) == [(((0, 8),), 2)]


def test_two_acquires_of_the_same_wait_exclude_each_other() -> None:
    waiting, _ = acknowledged(acquired(NEW), ack(AckType.RELEASE, delay_ms=0))
    plans = [plan_acquire(waiting, PLAIN, log(10), request(nonce)) for nonce in (NONCE, OTHER)]
    state = applied(waiting, plans[0])
    assert plans[1].update is not None
    assert apply(state, plans[1].update) is None


def test_expired_lock_is_split_after_its_time_and_the_pause() -> None:
    state = acquired(NEW, records_max=16)
    ends_ms = NOW_MS + LOCK_MS + backoff_ms(PLAIN, 1, LockId("nonce-01.0"))
    assert plan_acquire(state, PLAIN, log(16), request(OTHER, 16, ends_ms - 1)).update is None
    plan = plan_acquire(state, PLAIN, log(16), request(OTHER, 16, ends_ms))
    taken = applied(state, plan)
    assert plan.is_alone
    assert held(taken, OTHER) == [(((0, 2),), 2)]
    assert held(taken) == []
    assert taken.waits == {
        first: Wait(ends_ms, 1, RecordSet(((first, first + 2),)), is_suspect=True) for first in range(2, 16, 2)
    }
    assert len(taken.waits) == SHARE_SUSPECT_PARTS - 1


def test_old_holder_has_lost_its_expired_lock_once_another_acquire_has_a_part() -> None:
    taken = acquired(acquired(NEW), OTHER, now_ms=EXPIRED_MS, next_offset=10)
    after, results = acknowledged(taken, ack(AckType.ACCEPT, (0, 10)))
    assert after == taken
    assert results == [(((0, 10),), AckResult.LOST)]


def suspects_of(deliveries: int) -> ShareState:
    """A suspect of 30 records, another one, a part, and a wait that is none."""
    locks = {
        A: Lock(Offset(0), NOW_MS, deliveries, RecordSet(((0, 30),))),
        B: Lock(Offset(30), NOW_MS, 1, RecordSet(((0, 30),))),
    }
    waits = {
        Offset(60): Wait(0, 1, RecordSet(((60, 61),))),
        Offset(61): Wait(0, deliveries, RecordSet(((61, 64),)), is_suspect=True),
    }
    return ShareState(position=Offset(64), open=64, locks=locks, waits=waits)


@given(st.sampled_from(NONCES))
def test_part_of_a_suspect_goes_alone_and_at_last_as_one_record(nonce: LockNonce) -> None:
    for deliveries in (1, 2):
        state = suspects_of(deliveries)
        plan = plan_acquire(state, WITH_DEAD_LETTERS, log(), request(nonce, 50, EXPIRED_MS))
        after = applied(state, plan)
        [*found] = held(after, nonce)
        records = [offset for ranges, _ in found for start, end in ranges for offset in range(start, end)]
        if plan.is_alone:
            assert after.position == 64, "no fresh records"
            [(_, count)] = found
            assert len(records) == 1 if count == 3 else len(records) in (3, 4)
        else:
            assert {*records}.isdisjoint({*range(60), 61, 62, 63})


def test_suspects_come_first_when_there_is_nothing_else() -> None:
    for nonce in NONCES:
        state = suspects_of(1)
        waits = {first: wait for first, wait in state.waits.items() if wait.is_suspect}
        state = replace(state, waits=waits, open=63)
        assert plan_acquire(state, PLAIN, log(64), request(nonce, 50, EXPIRED_MS)).is_alone


def test_every_suspect_gets_its_turn() -> None:
    state = suspects_of(2)
    for number, nonce in enumerate(NONCES):
        state = acquired(state, nonce, 5, config=WITH_DEAD_LETTERS, now_ms=EXPIRED_MS + number, next_offset=10_000)
    taken = {offset for nonce in NONCES for ranges, _ in held(state, nonce) for offset in range(*ranges[0])}
    assert taken & {*range(30)}
    assert taken & {*range(30, 60)}
    assert taken & {61, 62, 63}


def test_acquire_of_one_record_takes_a_fresh_one_or_one_that_came_back() -> None:
    waiting, _ = acknowledged(acquired(NEW), ack(AckType.RELEASE, delay_ms=0))
    found = {held(acquired(waiting, nonce, 1), nonce)[0] for nonce in NONCES}
    assert found == {(((0, 1),), 2), (((10, 11),), 1)}


def test_records_of_one_count_share_a_lock() -> None:
    waits = {Offset(at): Wait(0, 1 + at % 2, RecordSet(((at, at + 1),))) for at in range(4)}
    state = ShareState(position=Offset(4), open=4, waits=waits)
    found = held(acquired(state, next_offset=4))
    assert sorted(count for _, count in found) == [2, 3]
    assert sum(RecordSet(ranges).count for ranges, _ in found) in (3, 4)


def test_dead_records_stay_dead_when_the_bound_rises() -> None:
    waits = {Offset(0): Wait(0, 3, RecordSet(((0, 1),)), is_dead=True)}
    state = ShareState(position=Offset(1), open=1, waits=waits)
    more = replace(WITH_DEAD_LETTERS, deliveries_max=9)
    assert plan_acquire(state, more, log(1), request()).update is None
    assert held(acquired(state, next_offset=1)) == [(((0, 1),), 4)], "without a dead-letter topic it comes again"


def test_records_on_their_last_delivery_and_rejected_ones_are_not_handed_out() -> None:
    locks = {A: Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 2),)))}
    waits = {
        Offset(2): Wait(0, 3, RecordSet(((2, 3),)), is_dead=True),
        Offset(3): Wait(0, 1, RecordSet(((3, 4),)), is_rejected=True),
    }
    state = ShareState(position=Offset(4), open=4, locks=locks, waits=waits)
    assert plan_acquire(state, WITH_DEAD_LETTERS, log(4), request(now_ms=EXPIRED_MS)).update is None


def test_record_has_one_more_delivery_when_the_bound_was_lowered_below_those_it_had() -> None:
    waits = {Offset(2): Wait(0, 4, RecordSet(((2, 3),)))}
    state = ShareState(position=Offset(3), open=1, waits=waits)
    after = applied(state, plan_acquire(state, WITH_DEAD_LETTERS, log(3), request()))
    assert [lock.deliveries for lock in after.locks.values()] == [5]


def test_rejected_records_are_finished_once_there_is_no_dead_letter_topic() -> None:
    waits = {Offset(3): Wait(0, 1, RecordSet(((3, 4),)), is_rejected=True)}
    state = ShareState(position=Offset(4), open=1, waits=waits)
    assert applied(state, plan_acquire(state, PLAIN, log(4), request())).open == 0


def test_records_that_retention_removed_are_finished_when_they_would_come_again() -> None:
    locks = {A: Lock(Offset(0), NOW_MS, 1, RecordSet(((0, 10),)))}
    waits = {Offset(10): Wait(0, 1, RecordSet(((10, 30),)))}
    state = ShareState(position=Offset(30), open=30, locks=locks, waits=waits)
    for nonce in NONCES[:4]:
        plan = plan_acquire(state, PLAIN, log(30, 25), request(nonce, now_ms=EXPIRED_MS))
        state = state if plan.update is None else applied(state, plan)
    assert state.unfinished() == ((25, 30),)


def test_one_update_acknowledges_and_acquires() -> None:
    state = acquired(acquired(NEW), OTHER)
    plan = plan_acquire(state, PLAIN, log(), request(NONCES[0]), [ack(AckType.ACCEPT)])
    after = applied(state, plan)
    assert [answer.result for answer in plan.answers] == [AckResult.OK]
    assert (held(after), held(after, NONCES[0]), after.open) == ([], [(((20, 30),), 1)], 20)


def test_acknowledgement_makes_room_for_its_own_acquire() -> None:
    config = replace(PLAIN, in_flight_max=10)
    state = acquired(NEW, config=config)
    after = applied(state, plan_acquire(state, config, log(), request(OTHER), [ack(AckType.ACCEPT)]))
    assert (held(after, OTHER), after.open) == ([(((10, 20),), 1)], 10)


@pytest.mark.parametrize("config", [PLAIN, replace(PLAIN, ordering="key")])
def test_call_with_many_acknowledgements_stays_within_one_update(config: ShareGroupConfig) -> None:
    hashes = tuple(range(1, 61))
    locks = {
        lock_id(nonce, 0): Lock(
            Offset(3 * number), EXPIRED_MS * 2, 1, RecordSet(((0, 3),), _hashes(config, hashes[:3]))
        )
        for number, nonce in enumerate(NONCES[:20])
    }
    waits = {
        Offset(60 + number): Wait(
            0, 1 + number, RecordSet(((60 + number, 61 + number),), _hashes(config, (70 + number,)))
        )
        for number in range(10)
    }
    locks[A] = Lock(Offset(70), NOW_MS, 1, RecordSet(((0, 3),), _hashes(config, (80, 81, 82))))
    state = ShareState(position=Offset(73), open=73, locks=locks, waits=waits)
    for count in range(20):
        wanted = [ack(AckType.RELEASE, (3 * number, 3 * number + 1), nonce=NONCES[number]) for number in range(count)]
        asked = request(NONCES[30], 50, EXPIRED_MS)
        if config.is_by_key:
            plan = plan_read_first(state, config, log(90), asked, [90, 90, 91], wanted)
        else:
            plan = plan_acquire(state, config, log(90), asked, wanted)
        assert plan.update is not None
        touched = {*plan.update.expected_locks, *plan.update.expected_waits}
        assert len(touched) <= SHARE_ENTRIES_MAX
        applied(state, plan)


def _hashes(config: ShareGroupConfig, hashes: tuple[int, ...]) -> tuple[int, ...]:
    return hashes if config.is_by_key else ()


def test_next_available_is_the_first_wait_or_end_of_a_lock() -> None:
    assert next_available_ms(NEW, PLAIN, NOW_MS) is None
    state = acquired(NEW)
    pause_ms = backoff_ms(PLAIN, 1, LockId("nonce-01.0"))
    assert next_available_ms(state, PLAIN, NOW_MS) == LOCK_MS + pause_ms
    waiting, _ = acknowledged(state, ack(AckType.RELEASE, (0, 1), delay_ms=70))
    assert next_available_ms(waiting, PLAIN, NOW_MS) == 70
    assert next_available_ms(waiting, PLAIN, EXPIRED_MS) == 0


@pytest.mark.parametrize("config", [NO_BACKOFF, WITH_DEAD_LETTERS])
@given(st.data())
def test_any_series_of_calls_keeps_the_invariants(config: ShareGroupConfig, data: st.DataObject) -> None:
    state, now_ms = NEW, NOW_MS
    for nonce in NONCES[:12]:
        now_ms += data.draw(st.sampled_from([0, 1_000, LOCK_MS, 700_000]))
        wanted = [
            ack(
                data.draw(st.sampled_from(AckType)),
                *data.draw(st.lists(RANGES, max_size=2)),
                nonce=data.draw(st.sampled_from(NONCES[:12])),
                index=data.draw(st.integers(0, 2)),
            )
            for _ in range(data.draw(st.integers(0, 3)))
        ]
        bounds = log(data.draw(st.integers(0, 40)), data.draw(st.integers(0, 10)))
        plan = plan_acquire(state, config, bounds, request(nonce, data.draw(st.integers(1, 12)), now_ms), wanted)
        if plan.update is not None:
            after = apply(state, plan.update)
            assert after is not None
            check(after)
            state = after


RANGES = st.builds(lambda start, length: (start, start + length), st.integers(0, 40), st.integers(1, 10))
