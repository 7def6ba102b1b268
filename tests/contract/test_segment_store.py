"""The contract of SegmentStore, of a zone, the archive and the log table, in memory, in SQLite, and on AWS."""

import os
from collections.abc import Iterator

import crc32c
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import ARCHIVE_PART_BYTES, BATCH_GET_KEYS_MAX, DELETE_SEGMENTS_MAX
from penstock_core.storage.keys import HOUR_MS, KeyLayout, folder_name, parse_segment_key, segment_folder, segment_key
from penstock_service.adapters.dynamodb import inline as dynamodb_inline
from penstock_service.adapters.memory import service as memory_segments
from penstock_service.adapters.memory.service import MemorySegmentStore
from penstock_service.adapters.sqlite import service as sqlite_segments
from penstock_service.ports.segments import SegmentStore
from tests.contract.conftest import Ports

ID = SegmentId(bytes(range(16)))
BODY = bytes(range(256)) * 4


@pytest.fixture(params=["zone", "zone by hour", "archive", "inline"])
def segments(request: pytest.FixtureRequest, ports: Ports) -> SegmentStore:
    stores = {
        "zone": ports.segments,
        "zone by hour": ports.segments_by_hour,
        "archive": ports.archive,
        "inline": ports.inline,
    }
    return stores[request.param]


def test_get_answers_exactly_the_range(segments: SegmentStore) -> None:
    segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert segments.get(ID, 0, len(BODY)) == BODY
    assert segments.get(ID, 10, 5) == BODY[10:15]
    assert segments.get(ID, len(BODY) - 1, 1) == BODY[-1:]


def test_put_of_the_same_segment_again_is_no_error(segments: SegmentStore) -> None:
    for _ in range(2):
        segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert segments.get(ID, 0, len(BODY)) == BODY


def test_get_fails_when_the_zone_does_not_have_it(segments: SegmentStore) -> None:
    with pytest.raises(PenstockError):
        segments.get(ID, 0, 10)


def test_get_fails_when_the_range_is_not_whole(segments: SegmentStore) -> None:
    segments.put(ID, BODY, crc32c.crc32c(BODY))
    with pytest.raises(PenstockError):
        segments.get(ID, len(BODY) - 5, 10)


def test_get_whole_answers_the_object_or_none(segments: SegmentStore) -> None:
    assert segments.get_whole(ID) is None
    segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert segments.get_whole(ID) == BODY


def test_put_keeps_and_overwrite_replaces_what_is_there(segments: SegmentStore) -> None:
    bad = BODY[:100]
    segments.overwrite(ID, bad, crc32c.crc32c(bad))
    assert segments.get_whole(ID) == bad
    segments.put(ID, BODY, crc32c.crc32c(BODY))
    assert segments.get_whole(ID) == bad
    segments.overwrite(ID, BODY, crc32c.crc32c(BODY))
    assert segments.get_whole(ID) == BODY


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every store lists so many keys or folders at once, where S3 lists LIST_KEYS_MAX."""
    for module in (memory_segments, sqlite_segments, dynamodb_inline):
        monkeypatch.setattr(module, "LIST_KEYS_MAX", 10)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    return 10


def segment_of(segments: SegmentStore, each: int, number: int) -> SegmentId:
    """A segment of the folder with that number: by the last byte, or by the hour since 1970."""
    if segments.layout is KeyLayout.SPREAD:
        return SegmentId(bytes(12) + each.to_bytes(3, "big") + bytes([number]))
    return SegmentId((number * HOUR_MS).to_bytes(6, "big") + each.to_bytes(10, "big"))


def put_many(segments: SegmentStore, count: int, number: int) -> list[SegmentId]:
    """Puts so many segments of one folder."""
    ids = [segment_of(segments, each, number) for each in range(count)]
    for segment_id in ids:
        segments.put(segment_id, b"x", crc32c.crc32c(b"x"))
    return ids


def key_of(segments: SegmentStore, segment_id: SegmentId) -> str:
    return segment_key(segment_id, segments.layout)


def listed(segments: SegmentStore, number: int) -> list[list[str]]:
    parts, token = [], None
    while True:
        part = segments.list_keys(folder_name(segments.layout, number), token)
        parts.append(list(part.keys))
        token = part.next_token
        if token is None:
            return parts


def test_list_keys_answers_every_key_of_the_prefix_once_in_parts(segments: SegmentStore, short_lists: int) -> None:
    ids = put_many(segments, 2 * short_lists + 3, 0xAB)
    others = put_many(segments, 2, 0xAC)
    parts = listed(segments, 0xAB)
    assert [len(part) for part in parts] == [short_lists, short_lists, 3]
    assert sorted(key for part in parts for key in part) == sorted(key_of(segments, each) for each in ids)
    assert listed(segments, 0xAC) == [sorted(key_of(segments, each) for each in others)]
    assert listed(segments, 0x00) == [[]]


@pytest.mark.parametrize("layout", KeyLayout)
def test_part_of_a_list_in_memory_is_as_long_as_in_s3(layout: KeyLayout) -> None:
    segments = MemorySegmentStore("a", layout)
    put_many(segments, 1_203, 0xAB)
    assert [len(part) for part in listed(segments, 0xAB)] == [1_000, 203]


def test_list_folders_answers_each_folder_that_has_objects_once(segments: SegmentStore) -> None:
    assert list(segments.list_folders()) == []
    ids = [*put_many(segments, 3, 0xAB), *put_many(segments, 1, 7)]
    wanted = sorted({segment_folder(each, segments.layout) for each in ids})
    assert (sorted(segments.list_folders()), len(wanted)) == (wanted, 2)
    segments.delete(ids[3:])
    assert list(segments.list_folders()) == [segment_folder(ids[0], segments.layout)]


def test_list_folders_goes_on_behind_the_first_part(segments: SegmentStore, short_lists: int) -> None:
    ids = [put_many(segments, 1, number)[0] for number in range(2 * short_lists + 3)]
    assert sorted(segments.list_folders()) == sorted(segment_folder(each, segments.layout) for each in ids)


def test_zone_by_hour_finds_what_an_earlier_release_stored(ports: Ports) -> None:
    zone = ports.segments_by_hour
    earlier = zone.earlier
    assert earlier is not None
    earlier.put(ID, BODY, crc32c.crc32c(BODY))
    assert zone.get(ID, 10, 5) == BODY[10:15]
    assert zone.get_whole(ID) == BODY
    assert earlier.list_keys("0f/", None).keys == [segment_key(ID, KeyLayout.SPREAD)]
    zone.delete([ID])
    assert zone.get_whole(ID) == BODY, "each layout removes its own keys"
    zone.overwrite(ID, BODY[:9], crc32c.crc32c(BODY[:9]))
    assert zone.get_whole(ID) == BODY[:9], "the new key comes first"
    earlier.delete([ID])
    zone.delete([ID])
    with pytest.raises(PenstockError) as caught:
        zone.get(ID, 0, 1)
    assert caught.value.facts["is_missing"]


def test_list_keys_goes_on_when_what_was_listed_has_been_deleted(segments: SegmentStore, short_lists: int) -> None:
    ids = put_many(segments, short_lists + 3, 0)
    folder = folder_name(segments.layout, 0)
    first = segments.list_keys(folder, None)
    gone = [found for key in first.keys if (found := parse_segment_key(key, segments.layout))]
    segments.delete(gone)
    second = segments.list_keys(folder, first.next_token)
    assert {*first.keys, *second.keys} == {key_of(segments, each) for each in ids}


def test_delete_removes_what_is_named_only_and_what_is_not_there_is_no_error(segments: SegmentStore) -> None:
    ids = [segment_of(segments, each, 7) for each in range(DELETE_SEGMENTS_MAX + 1)]
    for each in (ids[0], ids[-2], ids[-1]):
        segments.put(each, BODY, crc32c.crc32c(BODY))
    for _ in range(2):
        segments.delete(ids[:DELETE_SEGMENTS_MAX])
        assert listed(segments, 7) == [[key_of(segments, ids[DELETE_SEGMENTS_MAX])]]
    with pytest.raises(PenstockError):
        segments.get(ids[0], 0, 1)


@pytest.mark.parametrize("size", [0, 100, ARCHIVE_PART_BYTES, ARCHIVE_PART_BYTES + 1, 3 * ARCHIVE_PART_BYTES - 5])
def test_upload_stores_what_its_chunks_make_together(ports: Ports, size: int) -> None:
    body = os.urandom(size)
    ports.archive.upload(ID, (body[at : at + 3_000_000] for at in range(0, size, 3_000_000)))
    assert ports.archive.get_whole(ID) == body
    assert ports.archive.zone == "archive"


def test_upload_whose_chunks_fail_leaves_no_segment(ports: Ports) -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(3 * ARCHIVE_PART_BYTES)
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no zone answers")

    with pytest.raises(PenstockError, match="no zone answers"):
        ports.archive.upload(ID, chunks())
    assert ports.archive.get_whole(ID) is None


def test_get_wholes_answers_those_that_are_there_across_calls(ports: Ports) -> None:
    ids = [segment_of(ports.inline, each, each % 256) for each in range(BATCH_GET_KEYS_MAX + 5)]
    for each in ids[1:]:
        ports.inline.put(each, each + BODY, 0)
    assert ports.inline.get_wholes(ids) == {each: each + BODY for each in ids[1:]}
    assert ports.inline.get_wholes([]) == {}
    assert ports.inline.zone == "inline"


def test_expiring_segments_are_in_no_list_and_answer_until_they_are_gone_or_from_their_copies(ports: Ports) -> None:
    there, copied, gone = (segment_of(ports.inline, each, each) for each in (1, 2, 3))
    for each in (there, there):  # a repeat changes nothing
        ports.inline.put_expiring(each, BODY, 23)
    ports.inline.overwrite(copied, BODY, 0)
    assert ports.inline.get_expiring([there, copied, gone]) == {there: BODY, copied: BODY}
    assert ports.inline.get_expiring([]) == {}
    assert ports.inline.get_wholes([there]) == {}
    keys = [key for folder in ports.inline.list_folders() for key in ports.inline.list_keys(folder, None).keys]
    assert [parse_segment_key(key) for key in keys] == [copied]
    ports.inline.delete([there, copied])
    assert ports.inline.get_expiring([there, copied]) == {there: BODY}
