"""The member's state machine under whatever chance brings, by seeds: who owns what, and in the end all of it."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.membership import Heartbeat
from penstock_broker.create_topic import create_topic
from penstock_core.group import Subscription
from tests.sdk.faulty_transport import answer, lost_answer, lost_request
from tests.sdk.membership_world import BEAT, Driven, World, commit


@settings(max_examples=60)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_whatever_gets_lost_no_two_own_a_partition_and_all_are_owned_in_the_end(seed: int) -> None:
    """Members come, close, crash and are slow to poll, and requests and answers get lost; sessions last long enough
    for that, so that only who has crashed or closed is taken for dead."""
    chance = random.Random(seed)
    world = World()
    alive: list[Driven] = []
    for number in range(120):
        event = chance.random()
        if event < 0.06 and len(alive) < 4:
            alive.append(world.member(f"m{number}"))
        elif event < 0.08 and alive:
            alive.remove(chance.choice(alive))  # crashed
        elif event < 0.10 and alive:
            closing = alive.pop(chance.randrange(len(alive)))
            closing.poll()
            closing.membership.close(world.now_ms, is_leaving=True)
            closing.beat()
        for member in chance.sample(alive, len(alive)):
            faults = [lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})]
            may_fail = member.unheard < 2  # three in a row and their waits may outlast the session
            world.transport.faults[BEAT] = [chance.choice(faults)] if may_fail and chance.random() < 0.2 else []
            member.beat()
            if chance.random() < 0.6:
                member.poll()
        world.transport.faults[BEAT] = []
        owners = [each for member in alive for each in member.membership.owned]
        assert len(owners) == len(set(owners)), f"seed {seed}: two own one partition"
        world.step(chance.choice([50, 200, 500]))
    assert [each.lost for each in alive] == [[] for _ in alive], f"seed {seed}"
    if alive:
        world.settle(*alive, rounds=100)
        owned = sorted(number for member in alive for number in member.numbers)
        assert owned == [0, 1, 2, 3, 4, 5], f"seed {seed}"
        for member in alive:
            assert commit(world, member, member.membership.owned) == {}


@settings(max_examples=60)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_whoever_subscribes_to_what_owns_that_and_nothing_else_in_the_end(seed: int) -> None:
    """Members change their topics, leave and come back at any moment, also while heartbeats are on their way."""
    chance = random.Random(seed)
    world = World()
    create_topic(world.broker, "bills", 3, {})
    both = Subscription(topics=("bills", "orders"))
    choices = [Subscription(topics=("bills",)), both, Subscription(patterns=("or*",))]
    members = [world.member(f"m{number}") for number in range(3)]
    on_their_way: list[tuple[Driven, Heartbeat, Any]] = []
    for _ in range(100):
        member = chance.choice(members)
        event = chance.random()
        if event < 0.15:
            member.membership.subscribe(chance.choice(choices), world.now_ms)
        elif event < 0.18:
            member.membership.take_lost(world.now_ms)
            member.membership.leave(world.now_ms)
        heartbeat = member.membership.next_heartbeat(world.now_ms)
        if heartbeat is not None:
            on_their_way.append((member, heartbeat, member.send(heartbeat)))
        if on_their_way and chance.random() < 0.6:
            answered, heartbeat, told = on_their_way.pop(chance.randrange(len(on_their_way)))
            answered.finish(heartbeat, told)
        if chance.random() < 0.6:
            polling = chance.choice(members)
            polling.poll()
            held = polling.membership
            assert all(held.subscription.selects(each.topic) for each in held.owned), f"seed {seed}"
        owners = [each for each in members for each in each.membership.owned]
        assert len(owners) == len(set(owners)), f"seed {seed}: two own one partition"
        world.step(chance.choice([10, 50, 200]))
    for answered, heartbeat, told in on_their_way:
        answered.finish(heartbeat, told)
    for member, subscription in zip(members, choices, strict=True):
        member.membership.subscribe(subscription, world.now_ms)
    world.settle(*members, rounds=100)
    owned = [[each.topic for each in member.membership.owned] for member in members]
    assert (set(owned[0]), set(owned[2])) == ({"bills"}, {"orders"}), f"seed {seed}"
    assert sorted(topic for each in owned for topic in each) == ["bills"] * 3 + ["orders"] * 6, f"seed {seed}"
    for member in members:
        assert commit(world, member, member.membership.owned) == {}
