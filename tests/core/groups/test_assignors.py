"""Assignors: every partition has one owner that subscribes to it, loads are level, and the sticky one moves the
fewest."""

import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.groups.assignors import NOBODY, AssignableTopic, Owners, assign
from penstock_core.groups.group import ASSIGNORS

SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=5)


def topics_of(
    sizes: Sequence[int], members: Sequence[Sequence[int]], owners: Owners | None = None
) -> list[AssignableTopic]:
    return [
        AssignableTopic(
            members=tuple(sorted(members[index])), owners=tuple(owners[index] if owners else [NOBODY] * size)
        )
        for index, size in enumerate(sizes)
    ]


def loads_of(owners: Owners, members: Sequence[int]) -> list[int]:
    counted = Counter(owner for each in owners for owner in each)
    return [counted[member] for member in members]


@st.composite
def any_subscriptions(draw: st.DrawFn) -> tuple[list[AssignableTopic], int]:
    """Topics, each with subscribers and owners of its own; some owners are no subscribers."""
    count = draw(st.integers(1, 6))
    sizes = draw(SIZES)
    members = [draw(st.sets(st.integers(0, count - 1))) for _ in sizes]
    owners = [[draw(st.integers(NOBODY, count - 1)) for _ in range(size)] for size in sizes]
    return topics_of(sizes, [sorted(each) for each in members], owners), count


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(any_subscriptions())
def test_every_partition_has_one_owner_that_subscribes_if_anybody_does(
    assignor: str, given_topics: tuple[list[AssignableTopic], int]
) -> None:
    topics, count = given_topics
    for topic, owners in zip(topics, assign(assignor, topics, count), strict=True):
        assert len(owners) == topic.partitions
        assert set(owners) <= set(topic.members or [NOBODY])


@pytest.mark.parametrize("assignor", ["round_robin", "sticky"])
@given(SIZES, st.integers(1, 7), st.randoms())
def test_members_with_equal_subscriptions_are_one_partition_apart_at_most(
    assignor: str, sizes: list[int], count: int, random: object
) -> None:
    before = [[random.randint(NOBODY, count - 1) for _ in range(size)] for size in sizes]  # type: ignore[attr-defined]
    topics = topics_of(sizes, [range(count)] * len(sizes), before)
    loads = loads_of(assign(assignor, topics, count), range(count))
    assert max(loads) - min(loads) <= 1


@given(SIZES, st.integers(1, 7))
def test_range_gives_each_member_one_range_of_each_topic(sizes: list[int], count: int) -> None:
    for owners in assign("range", topics_of(sizes, [range(count)] * len(sizes)), count):
        assert owners == sorted(owners)
        loads = loads_of([owners], range(count))
        assert max(loads) - min(loads) <= 1


@given(SIZES, st.integers(1, 7), st.data())
def test_sticky_moves_no_more_than_a_balance_needs_when_subscriptions_are_equal(
    sizes: list[int], count: int, data: st.DataObject
) -> None:
    before = [[data.draw(st.integers(NOBODY, count - 1)) for _ in range(size)] for size in sizes]
    topics = topics_of(sizes, [range(count)] * len(sizes), before)
    after = assign("sticky", topics, count)
    moved = sum(
        old not in (NOBODY, new)
        for olds, news in zip(before, after, strict=True)
        for old, new in zip(olds, news, strict=True)
    )
    each, more = divmod(sum(sizes), count)
    # The member with most keeps most: the larger shares go to the larger loads.
    shares = [each + (place < more) for place in range(count)]
    needed = sum(
        max(0, load - share)
        for load, share in zip(sorted(loads_of(before, range(count)), reverse=True), shares, strict=True)
    )
    assert moved == needed


@given(any_subscriptions())
def test_sticky_leaves_no_single_move_that_would_help(given_topics: tuple[list[AssignableTopic], int]) -> None:
    topics, count = given_topics
    owners = assign("sticky", topics, count)
    loads = loads_of(owners, range(count))
    for topic, chosen in zip(topics, owners, strict=True):
        for owner in set(chosen) - {NOBODY}:
            assert loads[owner] - min(loads[member] for member in topic.members) <= 1


@given(any_subscriptions())
def test_sticky_changes_nothing_the_second_time(given_topics: tuple[list[AssignableTopic], int]) -> None:
    topics, count = given_topics
    first = assign("sticky", topics, count)
    again = [
        AssignableTopic(members=topic.members, owners=tuple(own)) for topic, own in zip(topics, first, strict=True)
    ]
    assert assign("sticky", again, count) == first


def test_sticky_moves_only_the_share_of_a_member_that_joins() -> None:
    first = assign("sticky", topics_of([12], [range(3)]), 3)
    second = assign("sticky", topics_of([12], [range(4)], first), 4)
    assert loads_of(second, range(4)) == [3, 3, 3, 3]
    assert sum(old != new for old, new in zip(first[0], second[0], strict=True)) == 3


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_thousand_members_of_ten_thousand_partitions_are_assigned_within_a_second(assignor: str) -> None:
    sizes = [100] * 100
    topics = topics_of(sizes, [range(1_000)] * 100, assign("sticky", topics_of(sizes, [range(999)] * 100), 999))
    began_s = time.process_time()
    owners = assign(assignor, topics, 1_000)
    assert time.process_time() - began_s < 1.0
    assert sum(map(len, owners)) == 10_000
