"""Offsets of groups that a mirror is told: their text and item, what has room, and what a promotion gives."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import GroupName, Offset, Partition, PartitionKey, TopicId, TopicName
from penstock_core.limits import COMMIT_OFFSET_MAX, MIRROR_OFFSETS_BYTES
from penstock_core.mirror.group_offsets import (
    MirroredOffset,
    MirroredOffsets,
    decode_offsets,
    digest_of,
    encode_offsets,
    fitted,
)
from tests.support.refusals import refused

TOPIC = TopicId("ab" * 10)
GROUPS = st.dictionaries(
    st.text("abz019._-", min_size=1, max_size=20).filter(lambda name: name.strip(".") != "").map(GroupName),
    st.dictionaries(
        st.integers(0, 999).map(Partition),
        st.builds(MirroredOffset, offset=st.integers(0, COMMIT_OFFSET_MAX).map(Offset), metadata=st.text(max_size=9)),
        max_size=4,
    ),
    max_size=4,
)


def committed(partition: int, offset: int, at_ms: int = 1, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(
        topic=TopicName("orders"),
        partition=PartitionKey(TOPIC, Partition(partition)),
        offset=Offset(offset),
        metadata=metadata,
        committed_at_ms=at_ms,
    )


Groups = Mapping[GroupName, Mapping[Partition, MirroredOffset]]


@given(GROUPS, GROUPS)
def test_text_round_trips(groups: Groups, share_groups: Groups) -> None:
    offsets = MirroredOffsets(read_ms=5, left_out=2, groups=groups, share_groups=share_groups)
    assert decode_offsets(encode_offsets(offsets), 5, 2) == offsets


def test_text_is_that_of_the_docs() -> None:
    groups = {
        GroupName("b"): {Partition(1): MirroredOffset(offset=Offset(5), metadata="é")},
        GroupName("a"): {Partition(2): MirroredOffset(offset=Offset(7))},
    }
    share_groups = {GroupName("a"): {Partition(0): MirroredOffset(offset=Offset(3))}}
    offsets = MirroredOffsets(read_ms=0, groups=groups, share_groups=share_groups)
    assert encode_offsets(offsets) == '[["a",[[2,7]]],["b",[[1,5,"é"]]],["a",[[0,3]],"share"]]'.encode()


@pytest.mark.parametrize(
    "text",
    [
        b"\xff", b"{", b"{}1", b"5", b'[["a"]]', b'[["a", [[0]]]]', b'[["a", [[0, -1]]]]',
        b'[["a", [[1000, 1]]]]', b'[["a", [[true, 1]]]]', b'[["a", [[0, 1, 2]]]]', b'[["a", [[0, 1, "x", "y"]]]]',
        b'[["a", [[0, 9007199254740992]]]]', b'[["a", ["xy"]]]', b'[["a", [[0, 1.5]]]]', b"[1]",
        b'[["a", [], "other"]]', b'[["a", [], "share", 1]]',
        b'[["a", [[0, 1, "' + b"x" * 5_000 + b'"]]]]', b"[" + b" " * MIRROR_OFFSETS_BYTES + b"]",
    ],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: decode_offsets(text, 0, 0))


def test_name_that_no_group_has_is_refused() -> None:
    refused(ErrorCode.INVALID_NAME, lambda: decode_offsets(b'[["a b", []]]', 0, 0))


def test_groups_that_commit_have_room_before_those_that_rest() -> None:
    many = {GroupName(f"g{number}"): [committed(0, 1, at_ms=number, metadata="x" * 4_000)] for number in range(40)}
    found = fitted({**many, GroupName("none"): []}, 9, unread=3)
    assert len(encode_offsets(found)) <= MIRROR_OFFSETS_BYTES
    kept = sorted(found.groups, key=lambda name: int(name[1:]))
    assert kept == [f"g{number}" for number in range(40 - len(kept), 40)]
    assert found.left_out == 40 - len(kept) + 3
    assert found.read_ms == 9


def test_digest_tells_every_change() -> None:
    offsets = fitted({GroupName("a"): [committed(0, 1)]}, 9, unread=0)
    others = [
        fitted({GroupName("a"): [committed(0, 2)]}, 9, unread=0),
        fitted({GroupName("b"): [committed(0, 1)]}, 9, unread=0),
        replace(offsets, left_out=1),
        replace(offsets, share_groups=offsets.groups),
    ]
    assert digest_of(offsets) == digest_of(replace(offsets, read_ms=10))
    assert len({digest_of(offsets), *map(digest_of, others)}) == 5


def test_no_offset_lies_beyond_the_end_of_its_partition() -> None:
    places = {GroupName("s"): {Partition(0): MirroredOffset(offset=Offset(4))}}
    groups = {GroupName("a"): [committed(0, 5), committed(1, 2, metadata="m"), committed(2, 1)]}
    found = fitted(groups, 9, 0, places).below({Partition(0): Offset(3), Partition(1): Offset(9)})
    assert json.loads(encode_offsets(found)) == [["a", [[0, 3], [1, 2, "m"]]], ["s", [[0, 3]], "share"]]


def test_share_groups_have_room_before_groups() -> None:
    many = {GroupName(f"g{number}"): [committed(0, 1, metadata="x" * 4_000)] for number in range(40)}
    places = {GroupName("s"): {Partition(number): MirroredOffset(offset=Offset(1)) for number in range(9)}}
    found = fitted(many, 9, 2, places)
    assert found.share_groups == places
    assert found.left_out == 40 - len(found.groups) + 2
    assert len(encode_offsets(found)) <= MIRROR_OFFSETS_BYTES


def test_share_groups_leave_half_the_room_to_groups() -> None:
    places = {Partition(number): MirroredOffset(offset=Offset(1)) for number in range(1_000)}
    two = {GroupName(name): [committed(0, 1, metadata="x" * 4_000)] for name in ("g", "h")}
    found = fitted(two, 9, 0, {GroupName(f"s{number:02}"): places for number in range(40)})
    assert len(found.groups) == 2
    assert 0 < len(found.share_groups) == 40 - found.left_out
