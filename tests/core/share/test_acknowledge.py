from dataclasses import replace

import pytest

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_REASON_BYTES_MAX
from penstock_core.share.acknowledge import Acknowledgement, AckResult, AckType, plan_acknowledge, plan_blind
from penstock_core.share.draft import apply
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import client_lock_id, parse_client_lock_id
from penstock_core.share.share_state import Lock, ShareState, Wait, locks_of
from penstock_core.share.waits import backoff_ms
from tests.core.share.share_samples import (
    LOCK_MS,
    NEW,
    NONCE,
    NOW_MS,
    OTHER,
    PLAIN,
    WITH_DEAD_LETTERS,
    ack,
    acknowledged,
    acquired,
    held,
)

FIRST_ID = LockId("nonce-01.0")
HELD = acquired(NEW)  # [0, 10) is locked by NONCE
OK, DONE, LOST = AckResult.OK, AckResult.DONE, AckResult.LOST
LATER_MS = NOW_MS + 10_000_000


def test_accepted_records_are_finished() -> None:
    after, results = acknowledged(HELD, ack(AckType.ACCEPT, (0, 4), (6, 7)))
    assert after.unfinished() == ((4, 6), (7, 10))
    assert results == [(((0, 4), (6, 7)), OK)]
    after, results = acknowledged(after, ack(AckType.ACCEPT))
    assert (after.open, after.locks, results) == (0, {}, [(((4, 6), (7, 10)), OK)])


def test_accept_counts_after_the_lock_s_time_when_no_other_acquire_took_the_records() -> None:
    after, results = acknowledged(HELD, ack(AckType.ACCEPT), now_ms=LATER_MS)
    assert (after.open, [result for _, result in results]) == (0, [OK])


@pytest.mark.parametrize("kind", AckType)
def test_acknowledgement_changes_nothing_when_another_acquire_has_the_records(kind: AckType) -> None:
    taken = acquired(HELD, OTHER, now_ms=LATER_MS, records_max=1, next_offset=10)
    assert held(taken, OTHER) == [(((0, 1),), 2)]
    after, results = acknowledged(taken, ack(kind, (0, 1)))
    assert after == taken
    assert results == [(((0, 1),), LOST)]


@pytest.mark.parametrize("kind", [AckType.ACCEPT, AckType.RELEASE, AckType.REJECT])
def test_repeated_acknowledgement_of_finished_offsets_answers_done(kind: AckType) -> None:
    accepted, _ = acknowledged(HELD, ack(AckType.ACCEPT))
    after, results = acknowledged(accepted, ack(kind, (2, 5)))
    assert (after, results) == (accepted, [(((2, 5),), DONE)])


def test_renewal_of_finished_records_is_lost() -> None:
    accepted, _ = acknowledged(HELD, ack(AckType.ACCEPT))
    _, results = acknowledged(accepted, ack(AckType.RENEW, (0, 10)))
    assert results == [(((0, 10),), LOST)]


def test_repeated_release_and_reject_answer_done_while_the_records_wait() -> None:
    waiting, _ = acknowledged(HELD, ack(AckType.RELEASE, (0, 2)), ack(AckType.REJECT, (2, 3)), config=WITH_DEAD_LETTERS)
    _, results = acknowledged(waiting, ack(AckType.RELEASE, (0, 2)), ack(AckType.REJECT, (2, 3)))
    assert results == [(((0, 2),), DONE), (((2, 3),), DONE)]
    _, results = acknowledged(waiting, ack(AckType.REJECT, (0, 3)), ack(AckType.ACCEPT, (0, 3)))
    assert results == [(((2, 3),), DONE), (((0, 2),), LOST), (((0, 3),), LOST)]


def test_offsets_that_were_never_handed_out_are_lost() -> None:
    after, results = acknowledged(HELD, ack(AckType.ACCEPT, (8, 14)))
    assert results == [(((8, 10),), OK), (((10, 14),), LOST)]
    assert after.unfinished() == ((0, 8),)


def test_released_records_wait_for_the_backoff() -> None:
    after, results = acknowledged(HELD, ack(AckType.RELEASE, (3, 5)))
    assert after.waits == {3: Wait(NOW_MS + backoff_ms(PLAIN, 1, FIRST_ID), 1, RecordSet(((3, 5),)))}
    assert results == [(((3, 5),), OK)]
    assert after.open == 10


def test_release_may_tell_its_delay_and_take_the_delivery_back() -> None:
    after, _ = acknowledged(
        HELD,
        ack(AckType.RELEASE, (3, 5), delay_ms=7),
        ack(AckType.RELEASE, (8, 9), is_uncounted=True),
        ack(AckType.RELEASE, (9, 10), is_uncounted=True, delay_ms=9),
    )
    assert [(wait.available_ms, wait.deliveries) for _, wait in sorted(after.waits.items())] == [
        (NOW_MS + 7, 1),
        (NOW_MS, 0),
        (NOW_MS + 9, 0),
    ]


def test_release_after_the_last_delivery_waits_for_the_dead_letter_topic_only() -> None:
    last = ShareState(position=Offset(4), open=4, locks={FIRST_ID: Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 4),)))})
    after, _ = acknowledged(last, ack(AckType.RELEASE, delay_ms=60_000), config=WITH_DEAD_LETTERS)
    assert after.waits == {0: Wait(0, 3, RecordSet(((0, 4),)), is_dead=True)}


def test_reason_of_a_release_goes_with_its_last_delivery_only() -> None:
    lock = Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 4),)))
    last = ShareState(position=Offset(4), open=4, locks={FIRST_ID: lock})
    boom = ack(AckType.RELEASE, (0, 3), reason="ValueError: " + "é" * 150)
    after, _ = acknowledged(last, boom, ack(AckType.RELEASE, (3, 4), reason="other"), config=WITH_DEAD_LETTERS)
    assert [(wait.is_dead, wait.is_rejected, wait.reason) for _, wait in sorted(after.waits.items())] == [
        (True, False, ("deliveries: ValueError: " + "é" * 150)[: 24 + (SHARE_REASON_BYTES_MAX - 24) // 2]),
        (True, False, "deliveries: other"),
    ]
    after, _ = acknowledged(HELD, ack(AckType.RELEASE, reason="boom"), config=WITH_DEAD_LETTERS)
    assert [wait.reason for wait in after.waits.values()] == [""]
    after, _ = acknowledged(last, ack(AckType.RELEASE, reason="boom", is_uncounted=True), config=WITH_DEAD_LETTERS)
    assert [(wait.deliveries, wait.reason) for wait in after.waits.values()] == [(2, "")]


def test_release_after_the_last_delivery_comes_again_and_counts_when_it_is_spared() -> None:
    last = ShareState(position=Offset(4), open=4, locks={FIRST_ID: Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 4),)))})
    after, _ = acknowledged(last, ack(AckType.RELEASE, delay_ms=9, is_spared=True), config=WITH_DEAD_LETTERS)
    assert after.waits == {0: Wait(NOW_MS + 9, 3, RecordSet(((0, 4),)))}
    again = acquired(after, OTHER, now_ms=NOW_MS + 9, config=WITH_DEAD_LETTERS, next_offset=4)
    assert held(again, OTHER) == [(((0, 4),), 4)]


def test_rejected_records_wait_for_the_dead_letter_topic_with_their_reason() -> None:
    after, _ = acknowledged(HELD, ack(AckType.REJECT, (0, 1), reason="é" * 150), config=WITH_DEAD_LETTERS)
    [wait] = after.waits.values()
    assert (wait.is_rejected, wait.deliveries, wait.reason) == (True, 1, "é" * (SHARE_REASON_BYTES_MAX // 2))


def test_rejected_records_are_finished_without_a_dead_letter_topic() -> None:
    after, _ = acknowledged(HELD, ack(AckType.REJECT, (0, 1)))
    assert (after.waits, after.unfinished()) == ({}, ((1, 10),))


def test_renewal_keeps_the_whole_lock() -> None:
    accepted, _ = acknowledged(HELD, ack(AckType.ACCEPT, (0, 1)))
    after, results = acknowledged(accepted, ack(AckType.RENEW, lock_ms=5_000), now_ms=LATER_MS)
    [lock] = locks_of(after, NONCE).values()
    assert (lock.until_ms, lock.held.ranges) == (LATER_MS + 5_000, ((1, 10),))
    assert results == [(((1, 10),), OK)]
    after, _ = acknowledged(after, ack(AckType.RENEW))
    assert locks_of(after, NONCE)[FIRST_ID].until_ms == NOW_MS + PLAIN.lock_ms


def test_plan_stops_when_its_update_is_full() -> None:
    state = NEW
    nonces = [LockNonce(f"nonce-{number}x") for number in range(SHARE_ENTRIES_MAX)]
    for nonce in nonces:
        state = acquired(state, nonce, 2)
    wanted = [ack(AckType.RELEASE, nonce=nonce) for nonce in nonces]
    plan = plan_acknowledge(state, PLAIN, wanted, NOW_MS)
    assert 0 < plan.planned < len(wanted)
    assert {answer.index for answer in plan.answers} == {*range(plan.planned)}
    assert plan.update is not None
    assert apply(state, plan.update) is not None


def test_waiter_is_taken_by_what_brings_records_back() -> None:
    by_key = WITH_DEAD_LETTERS.__class__(ordering="key")
    for kind, plain, key in (
        (AckType.ACCEPT, False, True),
        (AckType.RELEASE, True, True),
        (AckType.RENEW, False, False),
    ):
        for config, expected in ((PLAIN, plain), (by_key, key)):
            update = plan_acknowledge(HELD, config, [ack(kind, lock_ms=7)], NOW_MS).update
            assert update is not None
            assert update.takes_waiter is expected


def handed_out(state: ShareState, kind: AckType = AckType.ACCEPT, *ranges: tuple[int, int]) -> Acknowledgement:
    """An acknowledgement with the lock id that the client got."""
    [(name, lock)] = locks_of(state, NONCE).items()
    lock_id, generation, known = parse_client_lock_id(client_lock_id(name, lock, state.generation))
    assert known == lock
    return Acknowledgement(lock_id=lock_id, type=kind, offsets=ranges or None, generation=generation, handed_out=known)


def test_blind_plan_is_the_plan_on_the_state() -> None:
    state = acquired(HELD, OTHER)
    for kind in AckType:
        for ranges in ((), ((0, 2), (5, 6))):
            wanted = handed_out(state, kind, *ranges)
            blind = plan_blind(PLAIN, [wanted], NOW_MS + 5)
            seen = plan_acknowledge(state, PLAIN, [wanted], NOW_MS + 5)
            assert blind is not None
            assert blind.update is not None
            assert seen.update is not None
            assert replace(blind.update, waits_max=seen.update.waits_max) == seen.update
            assert blind.answers == seen.answers


def test_blind_plan_is_refused_when_the_lock_has_changed() -> None:
    wanted = handed_out(HELD)
    changed, _ = acknowledged(HELD, ack(AckType.ACCEPT, (0, 1)))
    blind = plan_blind(PLAIN, [wanted], NOW_MS)
    assert blind is not None
    assert blind.update is not None
    assert apply(changed, blind.update) is None
    after, results = acknowledged(changed, wanted)
    assert (after.open, results) == (0, [(((1, 10),), OK), (((0, 1),), DONE)])


def test_blind_accept_is_refused_when_the_id_came_back_with_other_records() -> None:
    """A copy of the acquire that arrives late takes later records under the same lock id, with the same bytes."""
    wanted = handed_out(HELD)
    accepted, _ = acknowledged(HELD, wanted)
    again = acquired(accepted)
    assert held(again) == [(((10, 20),), 1)]
    after, results = acknowledged(again, wanted)
    assert (after, results) == (again, [(((0, 10),), DONE)])
    blind = plan_blind(PLAIN, [wanted], NOW_MS)
    assert blind is not None
    assert blind.update is not None
    assert apply(again, blind.update) is None


@pytest.mark.parametrize("kind", AckType)
def test_acknowledgement_of_a_lock_changes_no_other_lock_that_has_its_id_by_now(kind: AckType) -> None:
    """It names offsets of the new lock, which its client was never sent."""
    accepted, _ = acknowledged(HELD, handed_out(HELD))
    again = acquired(accepted)
    after, results = acknowledged(again, replace(handed_out(HELD), type=kind, offsets=((10, 20),)))
    assert (after, results) == (again, [(((10, 20),), LOST)])


def test_no_blind_plan_without_the_lock_or_for_two_generations() -> None:
    known = handed_out(HELD)
    assert plan_blind(PLAIN, [known, ack(AckType.ACCEPT, nonce=OTHER)], NOW_MS) is None
    newer = Acknowledgement(lock_id=known.lock_id, type=AckType.ACCEPT, generation=3, handed_out=known.handed_out)
    assert plan_blind(PLAIN, [known, newer], NOW_MS) is None
    assert plan_blind(PLAIN, [], NOW_MS) is None
    same_end = replace(known, type=AckType.RENEW, lock_ms=LOCK_MS)
    assert plan_blind(PLAIN, [same_end], NOW_MS) is None, "nothing to write, so nothing tells whether the lock is there"


def test_release_takes_the_later_records_of_the_same_key_along_uncounted() -> None:
    by_key = PLAIN.__class__(ordering="key")
    records = RecordSet(((0, 6),), (1, 2, 1, 0, 2, 1))
    state = ShareState(position=Offset(6), open=6, locks={FIRST_ID: Lock(Offset(0), NOW_MS, 2, records)})
    after, results = acknowledged(state, ack(AckType.RELEASE, (2, 3), delay_ms=9), config=by_key)
    assert after.waits == {
        2: Wait(NOW_MS + 9, 2, RecordSet(((2, 3),), (1,))),
        5: Wait(0, 1, RecordSet(((5, 6),), (1,))),
    }
    assert held(after) == [(((0, 2), (3, 5)), 2)]
    assert results == [(((2, 3),), OK)]


@pytest.mark.parametrize("position", [0, 10])
def test_acknowledgement_answers_lock_lost_when_a_reset_has_taken_the_lock(position: int) -> None:
    lock = HELD.locks[FIRST_ID]
    lock_id, generation, handed_out = parse_client_lock_id(client_lock_id(FIRST_ID, lock, HELD.generation))
    mine = Acknowledgement(lock_id=lock_id, type=AckType.ACCEPT, generation=generation, handed_out=handed_out)
    reset = ShareState(generation=HELD.generation + 1, position=Offset(position))
    plan = plan_acknowledge(reset, PLAIN, [mine], NOW_MS)
    assert plan.update is None
    assert [(each.ranges, each.result) for each in plan.answers] == [(((0, 10),), LOST)]


def test_accept_of_expired_records_counts_those_that_the_lock_still_has() -> None:
    after, _ = acknowledged(HELD, ack(AckType.ACCEPT, (0, 4)))
    after, results = acknowledged(after, ack(AckType.ACCEPT, (2, 7), is_expired=True))
    assert (after.unfinished(), after.expired) == (((7, 10),), 3)
    assert results == [(((4, 7),), OK), (((2, 4),), DONE)]
