from penstock_core.ids import LockId, Offset
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.bury import Burial, BurialCause, has_burials, plan_bury, plan_wait_longer
from penstock_core.share.draft import apply
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock, ShareState, Wait
from tests.core.share.share_samples import NOW_MS, PLAIN, WITH_DEAD_LETTERS, ack, acknowledged, check

A, B = LockId("nonce-01.0"), LockId("nonce-02.0")
LOCKS = {
    A: Lock(Offset(0), NOW_MS, 3, RecordSet(((0, 50),))),
    B: Lock(Offset(50), NOW_MS, 2, RecordSet(((0, 10),))),
}
WAITS = {
    Offset(60): Wait(0, 3, RecordSet(((60, 70),)), is_dead=True),
    Offset(70): Wait(NOW_MS, 1, RecordSet(((70, 71),)), is_rejected=True, reason="bad"),
    Offset(71): Wait(0, 2, RecordSet(((71, 80),))),
    Offset(80): Wait(NOW_MS + 1, 3, RecordSet(((80, 90),)), is_dead=True),
}
STATE = ShareState(position=Offset(90), open=90, locks=LOCKS, waits=WAITS)


def test_records_that_are_due_leave_the_share_item() -> None:
    plan = plan_bury(STATE, WITH_DEAD_LETTERS, NOW_MS)
    assert plan.burials == [
        Burial(records=RecordSet(((60, 70),)), deliveries=3, cause=BurialCause.DELIVERIES),
        Burial(records=RecordSet(((70, 71),)), deliveries=1, cause=BurialCause.REJECTED, reason="bad"),
        Burial(records=RecordSet(((0, 50),)), deliveries=3, cause=BurialCause.DELIVERIES),
    ]
    assert plan.update is not None
    after = apply(STATE, plan.update)
    assert after is not None
    check(after)
    assert after.unfinished() == ((50, 60), (71, 90))
    assert not has_burials(after, WITH_DEAD_LETTERS, NOW_MS)
    assert apply(after, plan.update) is None, "once"


def test_burials_are_bounded_and_the_rest_stays_due() -> None:
    state, buried = STATE, 0
    while has_burials(state, WITH_DEAD_LETTERS, NOW_MS):
        plan = plan_bury(state, WITH_DEAD_LETTERS, NOW_MS, records_max=7)
        count = sum(burial.records.count for burial in plan.burials)
        assert 0 < count <= 7
        buried += count
        assert plan.update is not None
        after = apply(state, plan.update)
        assert after is not None
        check(after)
        state = after
    assert (buried, state.open) == (61, 29)


def test_record_that_waits_is_not_buried_by_a_bound_that_was_lowered() -> None:
    waits = {Offset(0): Wait(0, 4, RecordSet(((0, 9),))), Offset(9): Wait(0, 4, RecordSet(((9, 10),)), is_dead=True)}
    state = ShareState(position=Offset(10), open=10, waits=waits)
    plan = plan_bury(state, WITH_DEAD_LETTERS, NOW_MS)
    assert [burial.records.ranges for burial in plan.burials] == [((9, 10),)]


def test_lock_in_its_last_delivery_is_not_due_before_its_time_is_over() -> None:
    early = plan_bury(STATE, WITH_DEAD_LETTERS, NOW_MS - 1)
    assert [burial.records.ranges for burial in early.burials] == [((60, 70),)]


def test_accept_that_comes_first_keeps_a_record_from_the_dead_letter_topic() -> None:
    plan = plan_bury(STATE, WITH_DEAD_LETTERS, NOW_MS)
    accepted, _ = acknowledged(STATE, ack(AckType.ACCEPT, (0, 1)))
    assert plan.update is not None
    assert apply(accepted, plan.update) is None
    buried = apply(STATE, plan.update)
    assert buried is not None
    _, results = acknowledged(buried, ack(AckType.ACCEPT, (0, 1)))
    assert results == [(((0, 1),), AckResult.DONE)]


def test_nothing_is_due_without_a_dead_letter_topic() -> None:
    assert not has_burials(STATE, PLAIN, NOW_MS)
    assert plan_bury(STATE, PLAIN, NOW_MS).update is None
    assert plan_wait_longer(STATE, PLAIN, NOW_MS) is None


def test_records_wait_longer_when_the_dead_letter_topic_does_not_take_them() -> None:
    update = plan_wait_longer(STATE, WITH_DEAD_LETTERS, NOW_MS)
    assert update is not None
    after = apply(STATE, update)
    assert after is not None
    check(after)
    assert not has_burials(after, WITH_DEAD_LETTERS, NOW_MS)
    assert plan_bury(after, WITH_DEAD_LETTERS, NOW_MS + 600_000).burials != []
    assert after.unfinished() == STATE.unfinished()
    assert after.waits[Offset(70)].reason == "bad"
    assert {first for first, wait in after.waits.items() if wait.is_dead} == {0, 80}
