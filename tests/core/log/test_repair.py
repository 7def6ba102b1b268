"""Repairs: what refs owe, and the message."""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, ZoneName
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.repair import NamedRef, Repair, decode_repair, encode_repair, repairs_due

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
            "ref": "010003000102030405060708090a0b0c0d0e0f0000000700000064000000030000000300000000000003e8",
        }
    ],
}


def test_message_is_as_documented() -> None:
    assert json.loads(encode_repair(REPAIR)) == GOLDEN
    assert decode_repair(json.dumps(GOLDEN)) == REPAIR
    without_refs = replace(REPAIR, refs=())
    assert decode_repair(encode_repair(without_refs)) == without_refs


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
    ],
)
def test_message_that_is_no_repair_is_refused(message: str) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_repair(message)
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
