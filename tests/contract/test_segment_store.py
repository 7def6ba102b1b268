"""What every SegmentStore does, in memory and on S3."""

import crc32c
import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
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
