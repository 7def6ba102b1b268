"""The member's state machine against the service in memory, on one stepped clock. No test here waits or has threads."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.group.group_calls import Look
from penstock.group.membership import MemberState
from penstock.http.http_message import Response
from penstock.retry import NEVER_MS
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_LOOK_AHEAD_MS, SDK_SAFETY_NET_MS, YOUNG_GROUP_MS, YOUNG_HEARTBEAT_MS
from penstock_service.topics.create_topic import create_topic
from tests.sdk.group.group_in_memory import BEAT, BEAT_MS, POLL_MS, SESSION_MS, DrivenMember, GroupInMemory, commit
from tests.sdk.http.faulty_transport import answer, lost_answer, lost_request


@pytest.fixture
def group() -> GroupInMemory:
    return GroupInMemory()


def test_member_joins_at_its_first_poll_and_then_says_only_that_it_lives(group: GroupInMemory) -> None:
    member = DrivenMember(group, "a")
    assert not member.beat()
    member.poll()
    group.settle(member, rounds=20)
    assert member.numbers == [0, 1, 2, 3, 4, 5]
    first, *others = member.sent
    assert (first["epoch"], first["subscription"]) == (0, {"topics": ["orders"], "patterns": []})
    assert [each["sequence"] for each in member.sent] == list(range(1, len(member.sent) + 1))
    assert all("owned" not in each and "subscription" not in each for each in others)


def _waits(group: GroupInMemory, member: DrivenMember, count: int) -> list[int]:
    """The times between the next heartbeats."""
    waits = []
    for _ in range(count):
        began_ms = group.now_ms
        while not member.beat():
            group.step(10)
        waits.append(group.now_ms - began_ms)
        member.poll()
    return waits


def test_heartbeats_of_an_idle_member_grow_to_a_third_of_its_session(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    waits = _waits(group, member, 8)
    assert waits == sorted(waits)
    assert waits[-1] == SESSION_MS / 3
    assert member.numbers == [0, 1, 2, 3, 4, 5]


def test_records_bring_an_idle_member_back_to_the_interval_of_its_group(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    _waits(group, member, 8)
    group.step(100)
    member.membership.handed_out(group.now_ms)
    assert _waits(group, member, 1) == [BEAT_MS]


def test_change_of_the_group_brings_an_idle_member_back_to_its_interval(group: GroupInMemory) -> None:
    first = group.member("a")
    group.settle(first)
    _waits(group, first, 8)
    second = group.member("b")
    group.settle(first, second)
    assert (len(first.numbers), len(second.numbers)) == (3, 3)
    assert _waits(group, first, 1)[0] < SESSION_MS / 3


def test_second_member_gets_half_and_the_first_keeps_the_rest_all_along(group: GroupInMemory) -> None:
    first = group.member("a")
    group.settle(first)
    second = group.member("b")
    group.settle(first, second)
    assert (len(first.numbers), len(second.numbers)) == (3, 3)
    assert sorted(first.numbers + second.numbers) == [0, 1, 2, 3, 4, 5]
    assert (len(first.revoked), first.lost) == (3, [])


def test_partition_is_not_given_on_before_its_owner_lets_go(group: GroupInMemory) -> None:
    first = group.member("a")
    group.settle(first)
    second = group.member("b")
    for _ in range(20):
        first.beat()
        second.beat()
        second.poll()
        group.step(BEAT_MS // 4)
    assert first.membership.is_changed(group.now_ms)
    assert len(first.membership.to_revoke()) == 3
    assert second.numbers == []
    assert "owned" in first.sent[-1]
    first.poll()
    assert first.membership.wake_at_ms <= group.now_ms  # the group is recorder at once
    group.settle(first, second)
    assert len(second.numbers) == 3


@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(503, b"{}"), answer(500, b"")])
def test_failed_heartbeats_lose_nothing_while_the_session_lasts(group: GroupInMemory, fault: Any) -> None:
    member = group.member("a")
    group.settle(member)
    leases = dict(member.membership.owned)
    group.transport.faults[BEAT] = [fault] * 3
    group.settle(member, rounds=16)
    assert not group.transport.faults[BEAT]
    assert (member.membership.owned, member.lost) == (leases, [])


def test_member_joins_when_the_answer_to_its_first_join_is_lost(group: GroupInMemory) -> None:
    member = DrivenMember(group, "a")
    group.transport.faults[BEAT] = [lost_answer]
    member.poll()
    group.settle(member, rounds=20)
    assert member.numbers == [0, 1, 2, 3, 4, 5]
    assert commit(group, member, member.membership.owned) == {}


def test_throttled_heartbeat_waits_for_retry_after(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member, rounds=8)
    group.transport.faults[BEAT] = [answer(429, b"{}", {"Retry-After": "3"})]
    while not member.beat():
        group.step(100)
    throttled_ms = group.now_ms
    while not member.beat():
        group.step(100)
    assert 3_000 <= group.now_ms - throttled_ms <= 3_000 + 200
    member.poll()
    assert len(member.numbers) == 6
    assert member.lost == []


def test_session_that_ends_unheard_loses_all_until_the_service_is_heard_again(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    session_end_ms = member.membership.session_end_ms
    group.transport.faults[BEAT] = [lost_request] * 1_000
    while group.now_ms < session_end_ms:
        assert not member.membership.is_changed(group.now_ms)
        member.beat()
        group.step(50)
    member.poll()
    assert ([each.partition for each in member.lost], member.numbers) == ([0, 1, 2, 3, 4, 5], [])
    group.transport.faults[BEAT] = []
    group.settle(member)
    assert member.numbers == [0, 1, 2, 3, 4, 5]


def test_member_joins_again_when_the_service_has_ended_its_session(group: GroupInMemory) -> None:
    sleeper = group.member("a")
    group.settle(sleeper)
    other = group.member("b")
    leases = dict(sleeper.membership.owned)
    for _ in range(60):  # the first is paused meanwhile
        other.beat()
        other.poll()
        group.step(BEAT_MS // 4)
    assert other.numbers == [0, 1, 2, 3, 4, 5]
    sleeper.membership.session_end_ms = NEVER_MS  # its own clock stood still
    assert sleeper.beat()
    sleeper.poll()
    assert len(sleeper.lost) == 6
    assert all(each.code.name == "LEASE_FENCED" for each in commit(group, sleeper, leases).values())
    group.settle(sleeper, other)
    assert (len(sleeper.numbers), len(other.numbers)) == (3, 3)


def test_refused_commit_loses_the_partition_and_it_may_come_back(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    partition, lease = next(iter(member.membership.owned.items()))
    member.membership.fenced(partition, lease.lease_epoch + 1, group.now_ms)
    assert not member.membership.is_changed(group.now_ms)  # of another tenure
    member.membership.fenced(partition, lease.lease_epoch, group.now_ms)
    assert member.beat()
    member.poll()
    assert member.lost == [partition]
    group.settle(member)
    assert member.membership.owned[partition].lease_epoch > lease.lease_epoch


def test_member_is_not_complete_when_the_answer_is_to_older_claims(group: GroupInMemory) -> None:
    first = group.member("a")
    group.settle(first)
    second = group.member("b")
    while not first.membership.to_revoke():
        group.step(100)
        first.beat()
        second.beat()
    partition = first.membership.to_revoke()[0]
    group.step(BEAT_MS)
    heartbeat = first.membership.next_heartbeat(group.now_ms)
    assert heartbeat is not None
    recorder = first.send(heartbeat)
    first.membership.release([partition], group.now_ms)
    first.finish(heartbeat, recorder)
    assert first.beat()  # at once: the heartbeat says that it released the partitions
    [owned] = first.sent[-1]["owned"].values()
    assert partition.partition not in owned


def test_application_that_does_not_poll_leaves_and_comes_back_with_its_next_poll(group: GroupInMemory) -> None:
    hung, other = group.member("a"), group.member("b")
    group.settle(hung, other)
    held = hung.numbers
    for _ in range(POLL_MS // 250 + 40):
        hung.beat()
        other.beat()
        other.poll()
        group.step(250)
    assert hung.membership.state is MemberState.OUTSIDE
    assert hung.sent[-1]["leave"]
    assert other.numbers == [0, 1, 2, 3, 4, 5]
    assert not hung.beat()
    hung.poll()
    assert [each.partition for each in hung.lost] == held
    group.settle(hung, other)
    assert (len(hung.numbers), len(other.numbers)) == (3, 3)


def test_waiting_in_a_poll_is_polling(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    member.membership.poll_began(group.now_ms)
    for _ in range(2 * POLL_MS // 250):
        member.beat()
        group.step(250)
    assert len(member.numbers) == 6


def test_poll_while_it_leaves_joins_and_a_late_answer_to_the_leave_changes_nothing(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    group.step(POLL_MS)
    member.membership.session_end_ms = NEVER_MS
    heartbeat = member.membership.next_heartbeat(group.now_ms)
    assert heartbeat is not None
    assert heartbeat.body["leave"]
    recorder = member.send(heartbeat)
    member.poll()
    member.finish(heartbeat, recorder)
    assert member.membership.state is MemberState.JOINING
    group.settle(member)
    assert len(member.numbers) == 6


@pytest.mark.parametrize("fault", [None, lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})])
def test_closed_member_leaves_and_is_gone_at_once(group: GroupInMemory, fault: Any) -> None:
    first, second = group.member("a"), group.member("b")
    group.settle(first, second)
    group.transport.faults[BEAT] = [fault] if fault else []
    first.membership.close(group.now_ms, is_leaving=True)
    while first.membership.state is not MemberState.ENDED:
        first.beat()
        group.step(50)
    group.settle(second, rounds=12)
    assert second.numbers == [0, 1, 2, 3, 4, 5]
    first.beat()
    assert first.sent[-1]["leave"]


def test_leaving_a_service_that_does_not_answer_ends_all_the_same(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    group.transport.faults[BEAT] = [lost_request] * 1_000
    start_ms = group.now_ms
    member.membership.close(group.now_ms, is_leaving=True)
    while member.membership.state is not MemberState.ENDED:
        member.beat()
        group.step(50)
    assert group.now_ms - start_ms <= 5_200


def test_static_member_comes_back_as_another_process_without_a_rebalance(group: GroupInMemory) -> None:
    static, other = group.member("a-1", "a"), group.member("b-1", "b")
    group.settle(static, other)
    held, others = static.numbers, dict(other.membership.owned)
    static.membership.close(group.now_ms, is_leaving=False)
    assert static.membership.state is MemberState.ENDED
    again = group.member("a-2", "a")
    group.settle(again, other, rounds=20)
    assert (again.numbers, other.membership.owned, other.revoked) == (held, others, [])


def test_static_member_stops_when_another_process_takes_its_instance_id(group: GroupInMemory) -> None:
    old = group.member("a-1", "a")
    group.settle(old)
    new = group.member("a-2", "a")
    group.settle(new)
    old.beat()
    with pytest.raises(PenstockError, match="MEMBER_FENCED"):
        old.poll()
    with pytest.raises(PenstockError, match="MEMBER_FENCED"):
        old.poll()
    group.step(BEAT_MS)
    assert not old.beat()
    assert new.numbers == [0, 1, 2, 3, 4, 5]


def test_lasting_failure_is_raised_once_and_tried_again(group: GroupInMemory) -> None:
    group.transport.faults[BEAT] = [answer(403, b"{}")]
    member = group.member("a")
    member.beat()
    with pytest.raises(PenstockError, match="ACCESS_DENIED"):
        member.poll()
    group.settle(member)
    assert len(member.numbers) == 6


def test_topic_made_again_is_released_under_its_old_id_and_owned_under_the_new(group: GroupInMemory) -> None:
    member = group.member("a")
    group.settle(member)
    old = {lease.topic_id for lease in member.membership.owned.values()}
    group.transport.call("DELETE", "/v1/topics/orders", {}, {}, b"")
    group.step(60_000)
    create_topic(group.instance, "orders", 2, {})
    member.membership.session_end_ms = NEVER_MS
    member.membership.polled(group.now_ms)
    group.settle(member, rounds=300)
    assert member.numbers == [0, 1]
    assert not old & {lease.topic_id for lease in member.membership.owned.values()}


class Asleep:
    """Partition 3 of the topic sleeps at offset 7, and its safety net ends at `ends_ms`."""

    def __init__(self, group: GroupInMemory, ends_ms: int) -> None:
        self.look = Look(group.instance.topic_cache.get("orders").topic_id, 3, 7, 1)
        self.ends_ms = ends_ms
        self.armed: list[frozenset[tuple[str, int]]] = []

    def to_look_at(self, until_ms: int) -> list[Look]:
        return [self.look] if self.ends_ms <= until_ms else []

    def looked(self, looks: Sequence[Look], armed: frozenset[tuple[str, int]], _now_ms: int, _chance: float) -> None:
        assert list(looks) == [self.look]
        self.armed.append(armed)
        self.ends_ms += SDK_SAFETY_NET_MS


def test_heartbeat_looks_at_partitions_whose_safety_net_ends_before_the_next_one(group: GroupInMemory) -> None:
    asleep = Asleep(group, group.now_ms + SDK_SAFETY_NET_MS)
    member = DrivenMember(group, "a", sleepers=asleep)
    member.poll()
    group.settle(member)
    until_ms = group.now_ms + 4 * SDK_SAFETY_NET_MS
    looks = []
    while group.now_ms < until_ms:
        if member.beat() and "watched" in member.sent[-1]:
            looks.append(asleep.ends_ms - SDK_SAFETY_NET_MS - group.now_ms)
            assert member.sent[-1]["watched"] == [{"topic_id": asleep.look.topic_id, "partition": 3, "offset": 7}]
        member.poll()
        group.step(100)
    assert len(looks) == 4
    assert all(0 <= each <= SESSION_MS / 3 + SDK_LOOK_AHEAD_MS for each in looks)
    assert asleep.armed == [frozenset()] * 4  # the service in memory has no wake-ups


def test_member_that_may_hold_more_looks_at_nothing(group: GroupInMemory) -> None:
    member = DrivenMember(group, "a", sleepers=Asleep(group, group.now_ms))
    member.poll()
    member.beat()
    assert "watched" not in member.sent[0]


def test_heartbeats_of_a_long_session_grow_to_the_safety_net(group: GroupInMemory) -> None:
    member = DrivenMember(group, "a", session_ms=1_000_000)
    member.poll()
    group.settle(member)
    sent_ms = [group.now_ms]
    while len(sent_ms) < 20:
        member.poll()
        group.step(1_000)
        if member.beat():
            sent_ms.append(group.now_ms)
    assert sent_ms[-1] - sent_ms[-2] == SDK_SAFETY_NET_MS


def _young(group: GroupInMemory, name: str) -> DrivenMember:
    """A member of a group whose settings are the defaults."""
    member = DrivenMember(group, name, session_ms=45_000, interval_ms=None)
    member.poll()
    return member


def test_heartbeats_of_a_member_of_a_young_group_do_not_grow(group: GroupInMemory) -> None:
    member = _young(group, "a")
    member.beat()
    member.poll()
    waits = _waits(group, member, YOUNG_GROUP_MS // YOUNG_HEARTBEAT_MS - 2)
    assert set(waits[1:]) == {YOUNG_HEARTBEAT_MS}
    assert _waits(group, member, 4)[-1] > 5 * YOUNG_HEARTBEAT_MS


def test_service_of_an_earlier_release_says_nothing_of_young_groups_and_heartbeats_grow(group: GroupInMemory) -> None:
    member = _young(group, "a")

    def earlier(send: Callable[[], Response]) -> Response:
        answered = send()
        told = json.loads(answered.body)
        del told["is_young"]
        return answered._replace(body=json.dumps(told).encode())

    group.transport.faults[BEAT] = [earlier] * 60
    member.beat()
    member.poll()
    assert _waits(group, member, 12)[-1] > 5 * YOUNG_HEARTBEAT_MS


def test_second_member_of_a_young_group_has_its_part_within_a_second(group: GroupInMemory) -> None:
    first = _young(group, "a")
    _waits(group, first, 40)  # it is idle meanwhile
    group.step(10)
    began_ms = group.now_ms
    second = _young(group, "b")
    while len(second.numbers) < 3:
        for each in (first, second):
            each.beat()
            each.poll()
        group.step(10)
    assert group.now_ms - began_ms <= 2 * YOUNG_HEARTBEAT_MS + 2 * 10  # and two steps of the clock


def test_member_of_a_young_group_backs_off_as_one_of_an_old_group_does(group: GroupInMemory) -> None:
    member = _young(group, "a")
    member.beat()
    member.poll()
    group.transport.faults[BEAT] = [lost_request] * 60
    assert max(_waits(group, member, 12)) == 500  # half of the longest pause between tries


def test_interval_of_the_members_own_grows_also_when_it_is_that_of_a_young_group(group: GroupInMemory) -> None:
    member = DrivenMember(group, "a", session_ms=45_000, interval_ms=YOUNG_HEARTBEAT_MS)
    member.poll()
    member.beat()
    member.poll()
    assert _waits(group, member, 12)[-1] > 2 * YOUNG_HEARTBEAT_MS
