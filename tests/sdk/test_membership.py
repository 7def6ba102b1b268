"""The member's state machine against the service in memory, on one stepped clock: nothing here waits or has threads."""

from typing import Any

import pytest

from penstock.membership import State
from penstock.retry import NEVER_MS
from penstock_broker.create_topic import create_topic
from penstock_core.errors import PenstockError
from tests.sdk.faulty_transport import answer, lost_answer, lost_request
from tests.sdk.membership_world import BEAT, BEAT_MS, POLL_MS, Driven, World, commit


@pytest.fixture
def world() -> World:
    return World()


def test_member_joins_at_its_first_poll_and_then_says_only_that_it_lives(world: World) -> None:
    member = Driven(world, "a")
    assert not member.beat()
    member.poll()
    world.settle(member, rounds=20)
    assert member.numbers == [0, 1, 2, 3, 4, 5]
    first, *others = member.sent
    assert (first["epoch"], first["subscription"]) == (0, {"topics": ["orders"], "patterns": []})
    assert [each["sequence"] for each in member.sent] == list(range(1, len(member.sent) + 1))
    assert 4 <= len(others) <= 6  # one per second of the five that have passed
    assert all("owned" not in each and "subscription" not in each for each in others)


def test_second_member_gets_half_and_the_first_keeps_the_rest_all_along(world: World) -> None:
    first = world.member("a")
    world.settle(first)
    second = world.member("b")
    world.settle(first, second)
    assert (len(first.numbers), len(second.numbers)) == (3, 3)
    assert sorted(first.numbers + second.numbers) == [0, 1, 2, 3, 4, 5]
    assert (len(first.revoked), first.lost) == (3, [])


def test_partition_is_not_given_on_before_its_owner_lets_go(world: World) -> None:
    first = world.member("a")
    world.settle(first)
    second = world.member("b")
    for _ in range(20):
        first.beat()
        second.beat()
        second.poll()
        world.step(BEAT_MS // 4)
    assert first.membership.is_changed(world.now_ms)
    assert len(first.membership.to_revoke()) == 3
    assert second.numbers == []
    assert "owned" in first.sent[-1]
    first.poll()
    assert first.membership.wake_at_ms <= world.now_ms  # the group is told at once
    world.settle(first, second)
    assert len(second.numbers) == 3


@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(503, b"{}"), answer(500, b"")])
def test_failed_heartbeats_lose_nothing_while_the_session_lasts(world: World, fault: Any) -> None:
    member = world.member("a")
    world.settle(member)
    leases = dict(member.membership.owned)
    world.transport.faults[BEAT] = [fault] * 3
    world.settle(member, rounds=16)
    assert not world.transport.faults[BEAT]
    assert (member.membership.owned, member.lost) == (leases, [])


def test_join_whose_answer_is_lost_is_made_up_for(world: World) -> None:
    member = Driven(world, "a")
    world.transport.faults[BEAT] = [lost_answer]
    member.poll()
    world.settle(member, rounds=20)
    assert member.numbers == [0, 1, 2, 3, 4, 5]
    assert commit(world, member, member.membership.owned) == {}


def test_throttled_heartbeat_waits_as_long_as_it_is_told(world: World) -> None:
    member = world.member("a")
    world.settle(member, rounds=8)
    world.transport.faults[BEAT] = [answer(429, b"{}", {"Retry-After": "3"})]
    while not member.beat():
        world.step(100)
    throttled_ms = world.now_ms
    while not member.beat():
        world.step(100)
    assert 3_000 <= world.now_ms - throttled_ms <= 3_000 + 200
    member.poll()
    assert len(member.numbers) == 6
    assert member.lost == []


def test_session_that_ends_unheard_loses_all_until_the_service_is_heard_again(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    session_end_ms = member.membership.session_end_ms
    world.transport.faults[BEAT] = [lost_request] * 1_000
    while world.now_ms < session_end_ms:
        assert not member.membership.is_changed(world.now_ms)
        member.beat()
        world.step(50)
    member.poll()
    assert ([each.partition for each in member.lost], member.numbers) == ([0, 1, 2, 3, 4, 5], [])
    world.transport.faults[BEAT] = []
    world.settle(member)
    assert member.numbers == [0, 1, 2, 3, 4, 5]


def test_member_whose_session_the_service_has_ended_joins_anew(world: World) -> None:
    sleeper = world.member("a")
    world.settle(sleeper)
    other = world.member("b")
    leases = dict(sleeper.membership.owned)
    for _ in range(60):  # the first is paused meanwhile
        other.beat()
        other.poll()
        world.step(BEAT_MS // 4)
    assert other.numbers == [0, 1, 2, 3, 4, 5]
    sleeper.membership.session_end_ms = NEVER_MS  # its own clock stood still
    assert sleeper.beat()
    sleeper.poll()
    assert len(sleeper.lost) == 6
    assert all(each.code.name == "LEASE_FENCED" for each in commit(world, sleeper, leases).values())
    world.settle(sleeper, other)
    assert (len(sleeper.numbers), len(other.numbers)) == (3, 3)


def test_refused_commit_loses_the_partition_and_it_may_come_back(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    partition, lease = next(iter(member.membership.owned.items()))
    member.membership.fenced(partition, lease.lease_epoch + 1, world.now_ms)
    assert not member.membership.is_changed(world.now_ms)  # of another tenure
    member.membership.fenced(partition, lease.lease_epoch, world.now_ms)
    assert member.beat()
    member.poll()
    assert member.lost == [partition]
    world.settle(member)
    assert member.membership.owned[partition].lease_epoch > lease.lease_epoch


def test_answer_to_what_was_claimed_before_does_not_make_complete(world: World) -> None:
    first = world.member("a")
    world.settle(first)
    second = world.member("b")
    while not first.membership.to_revoke():
        world.step(100)
        first.beat()
        second.beat()
    partition = first.membership.to_revoke()[0]
    world.step(BEAT_MS)
    heartbeat = first.membership.next_heartbeat(world.now_ms)
    assert heartbeat is not None
    told = first.send(heartbeat)
    first.membership.release([partition], world.now_ms)
    first.finish(heartbeat, told)
    assert first.beat()  # at once, and it says what it has let go of
    [owned] = first.sent[-1]["owned"].values()
    assert partition.partition not in owned


def test_application_that_does_not_poll_leaves_and_comes_back_with_its_next_poll(world: World) -> None:
    hung, other = world.member("a"), world.member("b")
    world.settle(hung, other)
    held = hung.numbers
    for _ in range(POLL_MS // 250 + 40):
        hung.beat()
        other.beat()
        other.poll()
        world.step(250)
    assert hung.membership.state is State.OUTSIDE
    assert hung.sent[-1]["leave"]
    assert other.numbers == [0, 1, 2, 3, 4, 5]
    assert not hung.beat()
    hung.poll()
    assert [each.partition for each in hung.lost] == held
    world.settle(hung, other)
    assert (len(hung.numbers), len(other.numbers)) == (3, 3)


def test_waiting_in_a_poll_is_polling(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    member.membership.poll_began(world.now_ms)
    for _ in range(2 * POLL_MS // 250):
        member.beat()
        world.step(250)
    assert len(member.numbers) == 6


def test_poll_while_it_leaves_joins_and_a_late_answer_to_the_leave_changes_nothing(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    world.step(POLL_MS)
    member.membership.session_end_ms = NEVER_MS
    heartbeat = member.membership.next_heartbeat(world.now_ms)
    assert heartbeat is not None
    assert heartbeat.body["leave"]
    told = member.send(heartbeat)
    member.poll()
    member.finish(heartbeat, told)
    assert member.membership.state is State.JOINING
    world.settle(member)
    assert len(member.numbers) == 6


@pytest.mark.parametrize("fault", [None, lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})])
def test_closed_member_leaves_and_is_gone_at_once(world: World, fault: Any) -> None:
    first, second = world.member("a"), world.member("b")
    world.settle(first, second)
    world.transport.faults[BEAT] = [fault] if fault else []
    first.membership.close(world.now_ms, is_leaving=True)
    while first.membership.state is not State.ENDED:
        first.beat()
        world.step(50)
    world.settle(second, rounds=12)
    assert second.numbers == [0, 1, 2, 3, 4, 5]
    first.beat()
    assert first.sent[-1]["leave"]


def test_leaving_a_service_that_does_not_answer_ends_all_the_same(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    world.transport.faults[BEAT] = [lost_request] * 1_000
    start_ms = world.now_ms
    member.membership.close(world.now_ms, is_leaving=True)
    while member.membership.state is not State.ENDED:
        member.beat()
        world.step(50)
    assert world.now_ms - start_ms <= 5_200


def test_static_member_comes_back_as_another_process_and_nobody_else_notices(world: World) -> None:
    static, other = world.member("a-1", "a"), world.member("b-1", "b")
    world.settle(static, other)
    held, others = static.numbers, dict(other.membership.owned)
    static.membership.close(world.now_ms, is_leaving=False)
    assert static.membership.state is State.ENDED
    again = world.member("a-2", "a")
    world.settle(again, other, rounds=20)
    assert (again.numbers, other.membership.owned, other.revoked) == (held, others, [])


def test_static_member_whose_instance_another_process_takes_stops(world: World) -> None:
    old = world.member("a-1", "a")
    world.settle(old)
    new = world.member("a-2", "a")
    world.settle(new)
    old.beat()
    with pytest.raises(PenstockError, match="MEMBER_FENCED"):
        old.poll()
    with pytest.raises(PenstockError, match="MEMBER_FENCED"):
        old.poll()
    world.step(BEAT_MS)
    assert not old.beat()
    assert new.numbers == [0, 1, 2, 3, 4, 5]


def test_lasting_failure_is_told_once_and_tried_again(world: World) -> None:
    world.transport.faults[BEAT] = [answer(403, b"{}")]
    member = world.member("a")
    member.beat()
    with pytest.raises(PenstockError, match="ACCESS_DENIED"):
        member.poll()
    world.settle(member)
    assert len(member.numbers) == 6


def test_topic_made_again_is_released_under_its_old_id_and_owned_under_the_new(world: World) -> None:
    member = world.member("a")
    world.settle(member)
    old = {lease.topic_id for lease in member.membership.owned.values()}
    world.transport.call("DELETE", "/v1/topics/orders", {}, {}, b"")
    world.step(60_000)
    create_topic(world.broker, "orders", 2, {})
    member.membership.session_end_ms = NEVER_MS
    member.membership.polled(world.now_ms)
    world.settle(member, rounds=300)
    assert member.numbers == [0, 1]
    assert not old & {lease.topic_id for lease in member.membership.owned.values()}
