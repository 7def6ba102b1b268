import itertools
import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.groups.assignors import NOBODY
from penstock_core.groups.group import Member, parse_subscription
from penstock_core.groups.group_target import (
    EMPTY_TARGET,
    TargetAssignment,
    TargetTopic,
    decode_target,
    encode_target,
    make_target,
)
from penstock_core.groups.topic_patterns import TopicReach
from penstock_core.ids import MemberName, Partition, PartitionKey, TopicId, TopicName, new_topic_id
from penstock_core.limits import TARGET_CHUNK_BYTES
from penstock_core.log.topic import Topic

A, B = TopicId("0a" * 10), TopicId("0b" * 10)
ALL = parse_subscription([], ["*"])


def member(name: str, *topics: str, patterns: tuple[str, ...] = ()) -> Member:
    subscription = parse_subscription(topics, patterns)
    return Member(
        name=MemberName(name),
        member_id=name,
        subscription=subscription,
        sequence=1,
        session=1,
        deadline_ms=1,
        joined_at_ms=1,
    )


def topic(name: str, topic_id: TopicId, partitions: int) -> Topic:
    return Topic(name=TopicName(name), topic_id=topic_id, partitions=partitions, created_at_ms=1)


def target_of(members: list[tuple[str, bytes]], *topics: TargetTopic) -> TargetAssignment:
    return TargetAssignment(members=tuple((MemberName(name), mark) for name, mark in members), topics=topics)


@st.composite
def targets(draw: st.DrawFn) -> TargetAssignment:
    names = sorted(draw(st.sets(st.text("abcz=-.", min_size=1, max_size=100), max_size=5)))
    marks = [draw(st.binary(min_size=8, max_size=8)) for _ in names]
    ids = sorted(draw(st.sets(st.binary(min_size=10, max_size=10), max_size=4)))
    owners = st.lists(st.integers(NOBODY, len(names) - 1), max_size=20).map(tuple)
    return target_of(
        list(zip(names, marks, strict=True)),
        *[
            TargetTopic(
                topic_id=TopicId(each.hex()),
                name=TopicName(f"t{n}"),
                owners=draw(owners),
                late_from=draw(st.integers(0, 0xFFFF)),
            )
            for n, each in enumerate(ids)
        ],
    )


@given(targets())
def test_target_is_read_back_as_it_was_stored(target: TargetAssignment) -> None:
    assert decode_target(encode_target(target)) == target


def test_target_has_these_bytes() -> None:
    target = target_of(
        [("=i", b"\1" * 8), ("m", b"\2" * 8)],
        TargetTopic(topic_id=A, name=TopicName("orders"), owners=(1, NOBODY, 0), late_from=2),
    )
    [data] = encode_target(target)
    assert data.hex() == (
        "02" "0002" "02" "3d69" "0101010101010101" "01" "6d" "0202020202020202"
        "00000001" "0a0a0a0a0a0a0a0a0a0a" "0006" "6f7264657273" "0002" "0003" "0001" "ffff" "0000"
    )  # fmt: skip
    assert decode_target([data[:20], data[20:]]) == target
    first_version = data.replace(b"\2", b"\1", 1).replace(b"orders\0\2", b"orders")
    [read] = decode_target([first_version]).topics
    assert (read.owners, read.late_from) == ((1, NOBODY, 0), 0xFFFF)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\3\0\0\0\0\0\0",
        encode_target(EMPTY_TARGET)[0] + b"x",
        encode_target(target_of([("m", b"\2" * 8)], TargetTopic(topic_id=A, name=TopicName("t"), owners=(0,))))[0][:-1],
        encode_target(target_of([], TargetTopic(topic_id=A, name=TopicName("t"), owners=(0,))))[0],
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_target([data])


def test_large_target_is_cut_into_chunks_and_a_usual_one_is_not() -> None:
    many = [topic(f"topic-{n}-{'x' * 200}", new_topic_id(n.to_bytes(10, "big")), 1_000) for n in range(300)]
    chunks = encode_target(make_target("sticky", [member("m", patterns=("*",))], many, EMPTY_TARGET))
    assert len(chunks) == 3
    assert all(len(chunk) <= TARGET_CHUNK_BYTES for chunk in chunks)
    members = [member(os.urandom(18).hex(), patterns=("*",)) for _ in range(1_000)]
    usual = [topic(f"topic-{n}", new_topic_id(n.to_bytes(10, "big")), 100) for n in range(100)]
    [chunk] = encode_target(make_target("sticky", members, usual, EMPTY_TARGET))
    assert len(chunk) < 80_000


def test_members_are_given_what_they_subscribe_to() -> None:
    members = [member("all", patterns=("*",)), member("bills", "bills", "none")]
    target = make_target("sticky", members, [topic("orders", A, 2), topic("bills", B, 2)], EMPTY_TARGET)
    assert dict(target.part_of(MemberName("all"))) == {PartitionKey(A, Partition(n)): "orders" for n in range(2)}
    assert dict(target.part_of(MemberName("bills"))) == {PartitionKey(B, Partition(n)): "bills" for n in range(2)}
    assert target.owner_of(PartitionKey(B, Partition(1))) == "bills"
    assert target.owner_of(PartitionKey(B, Partition(2))) is None
    assert target.part_of(MemberName("nobody")) == {}


def test_a_topic_created_again_and_one_that_grows_keep_no_owner_they_have_not_had() -> None:
    members = [member("a", patterns=("*",)), member("b", patterns=("*",))]
    first = make_target("sticky", members, [topic("orders", A, 2)], EMPTY_TARGET)
    grown = make_target("sticky", members, [topic("orders", A, 4)], first)
    assert [grown.topics[0].owners[n] for n in range(2)] == [*first.topics[0].owners]
    again = make_target("sticky", members, [topic("orders", B, 2)], grown)
    assert again.owner_of(PartitionKey(A, Partition(0))) is None
    assert {again.owner_of(PartitionKey(B, Partition(n))) for n in range(2)} == {"a", "b"}


def test_sticky_target_follows_members_by_name_when_others_come_before_them() -> None:
    first = make_target("sticky", [member("m", patterns=("*",))], [topic("orders", A, 3)], EMPTY_TARGET)
    second = make_target("sticky", [member(n, patterns=("*",)) for n in "am"], [topic("orders", A, 3)], first)
    kept = [key for key in second.part_of(MemberName("m")) if key in first.part_of(MemberName("m"))]
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("members", "topics"),
    [
        ([member("a", "orders")], [topic("orders", A, 2)]),
        ([member("a", "orders"), member("b", "orders", "x")], [topic("orders", A, 2)]),
        ([member("a", "orders"), member("b", "orders")], [topic("orders", A, 3)]),
        ([member("a", "orders"), member("b", "orders")], [topic("orders", B, 2)]),
        ([member("a", "orders"), member("b", "orders")], []),
    ],
)
def test_target_fits_no_longer_when_members_subscriptions_or_topics_change(
    members: list[Member], topics: list[Topic]
) -> None:
    before = [member("a", "orders"), member("b", "orders")], [topic("orders", A, 2)]
    target = make_target("range", *before, EMPTY_TARGET)
    assert target.fits(*before)
    assert not target.fits(members, topics)


def test_target_includes_a_member_with_the_subscription_that_it_was_made_for() -> None:
    target = make_target("range", [member("a", "orders")], [], EMPTY_TARGET)
    assert target.includes(member("a", "orders"))
    assert not target.includes(member("a", patterns=("orders",)))
    assert not target.includes(member("b", "orders"))


def test_fingerprints_tell_names_from_patterns_and_from_each_other() -> None:
    texts = [("a", "b"), ("ab",), ("a",), (), ("a", "b", "c")]
    marks = [parse_subscription(*each).fingerprint() for text in texts for each in ((text, ()), ((), text))]
    assert len(set(marks)) == len(marks) - 1  # () and () are the same
    assert all(len(mark) == 8 for mark, _ in itertools.pairwise(marks))


def test_partitions_are_late_when_they_come_after_the_group_has_begun_to_read() -> None:
    members = [member("m", "orders", patterns=("b*",))]
    first = make_target("sticky", members, [topic("orders", A, 2)], EMPTY_TARGET)
    assert not any(first.is_late(PartitionKey(A, Partition(number))) for number in range(2))
    grown = make_target("sticky", members, [topic("orders", A, 4), topic("bills", B, 2)], first)
    again = make_target("sticky", members, [topic("orders", A, 4), topic("bills", B, 2)], grown)
    for target in (grown, again):
        assert [target.is_late(PartitionKey(A, Partition(number))) for number in range(4)] == [False, False, True, True]
        assert all(target.is_late(PartitionKey(B, Partition(number))) for number in range(2)), "a topic that came later"


def test_topic_is_not_late_when_a_subscription_comes_later() -> None:
    first = make_target("sticky", [member("m", "orders")], [topic("orders", A, 2)], EMPTY_TARGET)
    wider = [member("m", "orders", "bills")]
    for members in (wider, [member("m", "orders"), member("n", "bills")]):
        target = make_target("sticky", members, [topic("orders", A, 2), topic("bills", B, 2)], first)
        assert not target.is_late(PartitionKey(B, Partition(0)))


@pytest.mark.parametrize("assignor", ["range", "round_robin", "sticky"])
def test_members_share_the_newest_generation_evenly(assignor: str) -> None:
    turned = replace(topic("orders", A, 10), generations=(0, 6))
    members = [member(name, "orders") for name in "ab"]
    older = {turned.topic_id: TopicReach(start=0, end=6)}
    first = make_target(assignor, members[:1], [turned], EMPTY_TARGET, older)
    both = make_target(assignor, members, [turned], first, {turned.topic_id: TopicReach(start=6, end=10)})
    for each in members:
        part = both.part_of(each.name)
        assert Counter(key.partition >= 6 for key in part) == {False: 3, True: 2}
