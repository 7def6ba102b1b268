"""The record that a dead letter is."""

from penstock_core.ids import parse_group_name, parse_topic_name
from penstock_core.limits import DEAD_LETTER_BURIALS_MAX
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.share.dead_letter import (
    DeadLetterOrigin,
    burials_of,
    dead_letter,
    own_headers,
    too_large_letter,
    undecodable_letter,
)

_ORIGIN = DeadLetterOrigin(
    topic=parse_topic_name("orders"),
    partition=3,
    offset=42,
    group=parse_group_name("workers"),
    reason="no such customer",
    deliveries=5,
    time_ms=9_000,
)
_OURS = [
    ("penstock.dead-letter.topic", b"orders"),
    ("penstock.dead-letter.partition", b"3"),
    ("penstock.dead-letter.offset", b"42"),
    ("penstock.dead-letter.group", b"workers"),
    ("penstock.dead-letter.reason", b"no such customer"),
    ("penstock.dead-letter.deliveries", b"5"),
    ("penstock.dead-letter.time_ms", b"9000"),
]


def test_dead_letter_has_the_record_and_tells_its_way() -> None:
    [record] = decode(encode([NewRecord(1_234, b"k", b"v", [("type", b"order"), ("none", None)])]))
    letter = dead_letter(record, _ORIGIN)
    assert letter is not None
    assert (letter.timestamp_ms, letter.key, letter.value) == (1_234, b"k", b"v")
    assert list(letter.headers) == [("type", b"order"), ("none", None), *_OURS]


def test_headers_of_dead_letters_that_came_with_the_record_are_dropped() -> None:
    forged = [("penstock.dead-letter.topic", b"payroll"), ("type", b"order"), ("penstock.dead-letter.extra", b"")]
    [record] = decode(encode([NewRecord(0, None, b"v", forged)]))
    letter = dead_letter(record, _ORIGIN)
    assert letter is not None
    assert list(letter.headers) == [("type", b"order"), *_OURS, ("penstock.dead-letter.burials", b"2")]
    assert list(own_headers(record.headers)) == [("type", b"order")]


def test_undecodable_batch_is_the_value_of_its_letter() -> None:
    letter = undecodable_letter(b"\x00garbage", _ORIGIN)
    assert (letter.timestamp_ms, letter.key, letter.value) == (9_000, None, b"\x00garbage")
    assert list(letter.headers) == _OURS


def test_record_that_no_batch_holds_is_named() -> None:
    letter = too_large_letter(_ORIGIN)
    assert (letter.timestamp_ms, letter.key, letter.value) == (9_000, None, None)
    assert dict(letter.headers) == {**dict(_OURS), "penstock.dead-letter.reason": b"too_large"}


def test_circle_of_burials_ends() -> None:
    found: list[int] = []
    letter: NewRecord | None = NewRecord(0, None, b"v")
    while letter is not None:
        [record] = decode(encode([letter]))
        found.append(burials_of(record.headers))
        letter = dead_letter(record, _ORIGIN)
    assert found == [*range(DEAD_LETTER_BURIALS_MAX + 1)]
    assert burials_of(own_headers(record.headers)) == 0, "a redrive begins anew"


def test_time_of_a_record_is_kept_under_the_name_of_dead_letters_and_never_twice() -> None:
    own = ("penstock-expires-at", b"1790000000000")
    told = ("penstock.dead-letter.expires-at", b"1790000000000")
    older = ("penstock.dead-letter.expires-at", b"1700000000000")
    assert list(own_headers([own])) == [told]
    assert list(own_headers([older, ("a", b"b")])) == [older, ("a", b"b")]
    assert list(own_headers([older, own])) == [told], "it was sent anew, with a time of its own"
