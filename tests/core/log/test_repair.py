"""Repairs: what refs owe, and the message."""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, ZoneName
from penstock_core.limits import LOOK_RANGES_MAX
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.repair import (
    Look,
    NamedRef,
    OwedRange,
    Repair,
    decode_message,
    encode_message,
    looks_due,
    owed_refs,
    repairs_due,
)

ZONES = [ZoneName(name) for name in "abc"]
SEGMENT = SegmentId(bytes(range(16)))
REF = Ref(
    segment_id=SEGMENT, position=7, length=100, offset_span=3, record_count=3, max_timestamp_ms=1_000, zones=0b011
)


def named(ref: Ref, partition: int = 0, base_offset: int = 5) -> NamedRef:
    located = LocatedRef(base_offset=Offset(base_offset), ref=ref)
    return NamedRef(key=PartitionKey(TopicId("0a" * 10), Partition(partition)), located=located)


REPAIR = Repair(segment_id=SEGMENT, zones=frozenset((ZoneName("c"), ZoneName("a"))), refs=(named(REF),))
GOLDEN: dict[str, Any] = {
    "segment": "000102030405060708090a0b0c0d0e0f",
    "zones": ["a", "c"],
    "refs": [
        {
            "partition": "0a0a0a0a0a0a0a0a0a0a#0",
            "base_offset": 5,
            "ref": "080003000102030405060708090a0b0c0d0e0f076403b98098a020",
        }
    ],
}


def test_message_is_as_documented() -> None:
    assert json.loads(encode_message(REPAIR)) == GOLDEN
    assert decode_message(json.dumps(GOLDEN)) == REPAIR
    without_refs = replace(REPAIR, refs=())
    assert decode_message(encode_message(without_refs)) == without_refs


def test_message_keeps_what_a_ref_tells_of_tags_and_delivery() -> None:
    repair = replace(REPAIR, refs=(named(replace(REF, tag_filter=7, appended_ms=8, is_delayed=True)),))
    assert decode_message(encode_message(repair)) == repair


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        json.dumps(GOLDEN | {"segment": "00"}),
        json.dumps(GOLDEN | {"segment": "x"}),
        json.dumps(GOLDEN | {"zones": None}),
        json.dumps(GOLDEN | {"refs": [{}]}),
        json.dumps(GOLDEN | {"refs": [GOLDEN["refs"][0] | {"partition": "t"}]}),
        '{"look": 7}',
        '{"look": [{"partition": "t#0", "start_offset": 1}]}',
        '{"look": [{"partition": "t", "start_offset": 1, "end_offset": 2}]}',
    ],
)
def test_message_that_is_no_repair_is_refused(message: str) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_message(message)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_repairs_due_joins_what_refs_of_one_segment_owe() -> None:
    other = replace(REF, segment_id=SegmentId(b"x" * 16), zones=0b100)
    first, second = named(replace(REF, zones=0b110)), named(REF, partition=1)
    assert repairs_due([first, named(other), second], ZONES, 0b111) == [
        Repair(segment_id=SEGMENT, zones=frozenset(map(ZoneName, "ac")), refs=(first, second)),
        Repair(segment_id=other.segment_id, zones=frozenset(map(ZoneName, "ab")), refs=(named(other),)),
    ]


def test_repairs_due_leaves_alone_what_owes_nothing() -> None:
    paid = named(replace(REF, zones=0b111))
    archived = named(replace(REF, zones=0, tier=Tier.ARCHIVE))
    assert repairs_due([paid, archived, named(REF)], ZONES, 0b011) == []


def owed(partition: int, start_offset: int, end_offset: int) -> OwedRange:
    key = PartitionKey(TopicId("0a" * 10), Partition(partition))
    return OwedRange(key=key, start_offset=Offset(start_offset), end_offset=Offset(end_offset))


def test_look_is_as_documented() -> None:
    look = Look(ranges=(owed(0, 5, 17), owed(3, 0, 1)))
    golden = {
        "look": [
            {"partition": "0a0a0a0a0a0a0a0a0a0a#0", "start_offset": 5, "end_offset": 17},
            {"partition": "0a0a0a0a0a0a0a0a0a0a#3", "start_offset": 0, "end_offset": 1},
        ]
    }
    assert json.loads(encode_message(look)) == golden
    assert decode_message(json.dumps(golden)) == look


def test_looks_due_are_one_range_for_each_partition() -> None:
    refs = [named(REF, base_offset=20), named(REF, partition=1), named(REF, base_offset=5), named(REF, base_offset=8)]
    assert looks_due(refs) == [Look(ranges=(owed(0, 5, 23), owed(1, 5, 8)))]
    assert looks_due([]) == []


def test_looks_due_have_a_bound_of_ranges() -> None:
    looks = looks_due(named(REF, partition=number) for number in range(2 * LOOK_RANGES_MAX + 1))
    assert [len(look.ranges) for look in looks] == [LOOK_RANGES_MAX, LOOK_RANGES_MAX, 1]


def test_owed_refs_lack_a_wanted_bit() -> None:
    paid, archived = named(replace(REF, zones=0b111)), named(replace(REF, zones=0, tier=Tier.ARCHIVE))
    assert owed_refs([paid, archived, named(REF)], 0b111) == [named(REF)]
    assert owed_refs([paid, archived, named(REF)], 0b011) == []
