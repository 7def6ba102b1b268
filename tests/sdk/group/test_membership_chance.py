"""The member's state machine under random events, by seeds: one owner per partition, and in the end one for each."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.group.group_calls import HeartbeatRequest
from penstock_core.groups.group import Subscription
from penstock_service.topics.create_topic import create_topic
from tests.sdk.group.group_in_memory import BEAT, DrivenMember, GroupInMemory, commit
from tests.sdk.http.faulty_transport import answer, lost_answer, lost_request


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_each_partition_has_one_owner_in_the_end_when_requests_and_answers_get_lost(seed: int) -> None:
    """Members come, close, crash and are slow to poll, and requests and answers get lost.

    Sessions last long enough that only a member that crashed or closed loses its session.
    """
    chance = random.Random(seed)
    group = GroupInMemory()
    alive: list[DrivenMember] = []
    for number in range(120):
        event = chance.random()
        if event < 0.06 and len(alive) < 4:
            alive.append(group.member(f"m{number}"))
        elif event < 0.08 and alive:
            alive.remove(chance.choice(alive))  # crashed
        elif event < 0.10 and alive:
            closing = alive.pop(chance.randrange(len(alive)))
            closing.poll()
            closing.membership.close(group.now_ms, is_leaving=True)
            closing.beat()
        for member in chance.sample(alive, len(alive)):
            faults = [lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})]
            may_fail = member.unheard < 2  # three in a row and their waits may outlast the session
            group.transport.faults[BEAT] = [chance.choice(faults)] if may_fail and chance.random() < 0.2 else []
            member.beat()
            if chance.random() < 0.6:
                member.poll()
        group.transport.faults[BEAT] = []
        owners = [each for member in alive for each in member.membership.owned]
        assert len(owners) == len(set(owners)), f"seed {seed}: two own one partition"
        group.step(chance.choice([50, 200, 500]))
    assert [each.lost for each in alive] == [[] for _ in alive], f"seed {seed}"
    if alive:
        group.settle(*alive, rounds=100)
        owned = sorted(number for member in alive for number in member.numbers)
        assert owned == [0, 1, 2, 3, 4, 5], f"seed {seed}"
        for member in alive:
            assert commit(group, member, member.membership.owned) == {}


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_each_member_owns_only_its_subscription_in_the_end(seed: int) -> None:
    """Members change their topics, leave and come back at any time, also while a heartbeat is on its way."""
    chance = random.Random(seed)
    group = GroupInMemory()
    create_topic(group.instance, "bills", 3, {})
    both = Subscription(topics=("bills", "orders"))
    choices = [Subscription(topics=("bills",)), both, Subscription(patterns=("or*",))]
    members = [group.member(f"m{number}") for number in range(3)]
    on_their_way: list[tuple[DrivenMember, HeartbeatRequest, Any]] = []
    for _ in range(100):
        member = chance.choice(members)
        event = chance.random()
        if event < 0.15:
            member.membership.subscribe(chance.choice(choices), group.now_ms)
        elif event < 0.18:
            member.membership.take_lost(group.now_ms)
            member.membership.leave(group.now_ms)
        heartbeat = member.membership.next_heartbeat(group.now_ms)
        if heartbeat is not None:
            on_their_way.append((member, heartbeat, member.send(heartbeat)))
        if on_their_way and chance.random() < 0.6:
            answered, heartbeat, outcome = on_their_way.pop(chance.randrange(len(on_their_way)))
            answered.finish(heartbeat, outcome)
        if chance.random() < 0.6:
            polling = chance.choice(members)
            polling.poll()
            held = polling.membership
            assert all(held.subscription.selects(each.topic) for each in held.owned), f"seed {seed}"
        owners = [each for one in members for each in one.membership.owned]
        assert len(owners) == len(set(owners)), f"seed {seed}: two own one partition"
        group.step(chance.choice([10, 50, 200]))
    for answered, heartbeat, outcome in on_their_way:
        answered.finish(heartbeat, outcome)
    for member, subscription in zip(members, choices, strict=True):
        member.membership.subscribe(subscription, group.now_ms)
    group.settle(*members, rounds=100)
    owned = [[each.topic for each in member.membership.owned] for member in members]
    assert (set(owned[0]), set(owned[2])) == ({"bills"}, {"orders"}), f"seed {seed}"
    assert sorted(topic for each in owned for topic in each) == ["bills"] * 3 + ["orders"] * 6, f"seed {seed}"
    for member in members:
        assert commit(group, member, member.membership.owned) == {}
