"""What every SegmentStore does, in memory and on S3."""

import crc32c
import pytest

from penstock_broker.ports import DELETE_MAX
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.keys import parse_segment_key, segment_key, segment_prefix
from tests.contract.conftest import Ports

ID = SegmentId(bytes(range(16)))
BODY = bytes(range(256)) * 4


def test_get_answers_exactly_the_range(ports: Ports) -> None:
    ports.segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert ports.segments.get(ID, 0, len(BODY)) == BODY
    assert ports.segments.get(ID, 10, 5) == BODY[10:15]
    assert ports.segments.get(ID, len(BODY) - 1, 1) == BODY[-1:]


def test_put_of_the_same_segment_again_is_no_error(ports: Ports) -> None:
    for _ in range(2):
        ports.segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert ports.segments.get(ID, 0, len(BODY)) == BODY


def test_get_fails_when_the_zone_does_not_have_it(ports: Ports) -> None:
    with pytest.raises(PenstockError):
        ports.segments.get(ID, 0, 10)


def test_get_fails_when_the_range_is_not_whole(ports: Ports) -> None:
    ports.segments.put(ID, BODY, crc32c.crc32c(BODY))
    with pytest.raises(PenstockError):
        ports.segments.get(ID, len(BODY) - 5, 10)


def test_get_whole_answers_the_object_or_none(ports: Ports) -> None:
    assert ports.segments.get_whole(ID) is None
    ports.segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert ports.segments.get_whole(ID) == BODY


def test_put_keeps_and_overwrite_replaces_what_is_there(ports: Ports) -> None:
    bad = BODY[:100]
    ports.segments.overwrite(ID, bad, crc32c.crc32c(bad))
    assert ports.segments.get_whole(ID) == bad
    ports.segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert ports.segments.get_whole(ID) == bad
    ports.segments.overwrite(ID, BODY, crc32c.crc32c(BODY))
    assert ports.segments.get_whole(ID) == BODY


def put_many(ports: Ports, count: int, prefix: int) -> list[SegmentId]:
    ids = [SegmentId(bytes(12) + number.to_bytes(3, "big") + bytes([prefix])) for number in range(count)]
    for segment_id in ids:
        ports.segments.put(segment_id, b"x", crc32c.crc32c(b"x"))
    return ids


def listed(ports: Ports, prefix: int) -> list[list[str]]:
    parts, token = [], None
    while True:
        part = ports.segments.list_keys(segment_prefix(prefix), token)
        parts.append(list(part.keys))
        token = part.next_token
        if token is None:
            return parts


def test_list_keys_answers_every_key_of_the_prefix_once_in_parts(ports: Ports) -> None:
    ids = put_many(ports, 1_203, 0xAB)
    others = put_many(ports, 2, 0xAC)
    parts = listed(ports, 0xAB)
    assert [len(part) for part in parts] == [1_000, 203]
    assert sorted(key for part in parts for key in part) == sorted(map(segment_key, ids))
    assert listed(ports, 0xAC) == [sorted(map(segment_key, others))]
    assert listed(ports, 0x00) == [[]]


def test_list_keys_goes_on_when_what_was_listed_has_been_deleted(ports: Ports) -> None:
    ids = put_many(ports, 1_203, 0)
    first = ports.segments.list_keys(segment_prefix(0), None)
    gone = [found for key in first.keys if (found := parse_segment_key(key))]
    ports.segments.delete(gone)
    second = ports.segments.list_keys(segment_prefix(0), first.next_token)
    assert {*first.keys, *second.keys} == set(map(segment_key, ids))


def test_delete_removes_what_is_named_only_and_twice_is_no_error(ports: Ports) -> None:
    ids = put_many(ports, DELETE_MAX + 1, 7)
    for _ in range(2):
        ports.segments.delete(ids[:DELETE_MAX])
        assert listed(ports, 7) == [[segment_key(ids[DELETE_MAX])]]
    with pytest.raises(PenstockError):
        ports.segments.get(ids[0], 0, 1)
