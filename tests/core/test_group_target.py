import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.assignors import NOBODY
from penstock_core.group import Member, parse_subscription
from penstock_core.group_target import EMPTY_TARGET, Target, TargetTopic, decode_target, encode_target, make_target
from penstock_core.ids import MemberName, Partition, TopicId, TopicName, new_topic_id
from penstock_core.keys import PartitionKey
from penstock_core.limits import TARGET_CHUNK_BYTES
from penstock_core.topic import Topic

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


def target_of(members: list[tuple[str, bytes]], *topics: TargetTopic) -> Target:
    return Target(members=tuple((MemberName(name), mark) for name, mark in members), topics=topics)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    names = sorted(draw(st.sets(st.text("abcz=-.", min_size=1, max_size=100), max_size=5)))
    marks = [draw(st.binary(min_size=8, max_size=8)) for _ in names]
    ids = sorted(draw(st.sets(st.binary(min_size=10, max_size=10), max_size=4)))
    owners = st.lists(st.integers(NOBODY, len(names) - 1), max_size=20).map(tuple)
    return target_of(
        list(zip(names, marks, strict=True)),
        *[
            TargetTopic(topic_id=TopicId(each.hex()), name=TopicName(f"t{n}"), owners=draw(owners))
            for n, each in enumerate(ids)
        ],
    )


@given(targets())
def test_target_is_read_back_as_it_was_stored(target: Target) -> None:
    assert decode_target(encode_target(target)) == target


def test_target_has_these_bytes() -> None:
    target = target_of(
        [("=i", b"\1" * 8), ("m", b"\2" * 8)],
        TargetTopic(topic_id=A, name=TopicName("orders"), owners=(1, NOBODY, 0)),
    )
    [data] = encode_target(target)
    assert data.hex() == (
        "01" "0002" "02" "3d69" "0101010101010101" "01" "6d" "0202020202020202"
        "00000001" "0a0a0a0a0a0a0a0a0a0a" "0006" "6f7264657273" "0003" "0001" "ffff" "0000"
    )  # fmt: skip
    assert decode_target([data[:20], data[20:]]) == target


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\2\0\0\0\0\0\0",
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
