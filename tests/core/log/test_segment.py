import contextlib

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicId
from penstock_core.log.segment import (
    SEGMENT_FOOTER_BYTES,
    SEGMENT_TAIL_BYTES,
    SegmentPart,
    TocEntry,
    build_segment,
    parse_footer,
    parse_toc,
)

without_deadline = settings(deadline=None)

data_strategy = st.one_of(st.binary(max_size=30), st.binary(max_size=30).map(lambda data: memoryview(data)))
parts_strategy = st.lists(
    st.builds(
        SegmentPart,
        topic_id=st.binary(min_size=10, max_size=10).map(lambda chance: TopicId(chance.hex())),
        partition=st.integers(0, 2**32 - 1).map(Partition),
        data=st.lists(data_strategy, max_size=3),
        offset_span=st.integers(0, 2**64 - 1),
        max_timestamp_ms=st.integers(-1, 2**63 - 1),
    ),
    max_size=6,
)


def make_part(index: int, *data: bytes | memoryview) -> SegmentPart:
    return SegmentPart(
        topic_id=TopicId(f"{index:020x}"),
        partition=Partition(index),
        data=data,
        offset_span=index + 1,
        max_timestamp_ms=1_790_000_000_000 + index,
    )


GOLDEN = b"onetwothree" + bytes.fromhex(
    "00000000000000000000 00000000 00000000 00000006 0000000000000001 000001a0c4506c00"
    "00000000000000000001 00000001 00000006 00000005 0000000000000002 000001a0c4506c01"
    "0000000b 0000004c c8a45338 0001 504e5354434b"
)


def test_build_segment_writes_golden_bytes() -> None:
    segment = build_segment([make_part(0, b"one", b"two"), make_part(1, memoryview(b"three"))])
    assert segment.body == GOLDEN
    assert parse_toc(GOLDEN, parse_footer(GOLDEN)) == segment.toc


@given(parts_strategy)
@without_deadline
def test_a_segments_end_is_enough_to_read_its_toc(parts: list[SegmentPart]) -> None:
    segment = build_segment(parts)
    footer = parse_footer(segment.body[-SEGMENT_FOOTER_BYTES:])
    assert parse_toc(segment.body[-footer.tail_bytes :], footer) == parse_toc(segment.body, footer) == segment.toc
    assert footer.toc_position + footer.tail_bytes == len(segment.body)


@given(parts_strategy)
@without_deadline
def test_every_part_lies_where_its_entry_says(parts: list[SegmentPart]) -> None:
    segment = build_segment(parts)
    for part, entry in zip(parts, segment.toc, strict=True):
        joined = b"".join(part.data)
        assert segment.body[entry.position : entry.position + entry.length] == joined
        assert entry == TocEntry(
            topic_id=part.topic_id,
            partition=part.partition,
            position=entry.position,
            length=len(joined),
            offset_span=part.offset_span,
            max_timestamp_ms=part.max_timestamp_ms,
        )
    assert segment.crc32c == crc32c(segment.body)


def test_a_toc_longer_than_the_first_read_asks_for_a_second() -> None:
    segment = build_segment([make_part(index, b"x" * 40) for index in range(1_000)])
    footer = parse_footer(segment.body[-SEGMENT_TAIL_BYTES:])
    assert footer.tail_bytes > SEGMENT_TAIL_BYTES
    with pytest.raises(PenstockError, match=f"its table of contents takes {footer.tail_bytes}"):
        parse_toc(segment.body[-SEGMENT_TAIL_BYTES:], footer)
    assert len(parse_toc(memoryview(segment.body)[-footer.tail_bytes :], footer)) == 1_000


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (b"", "0 bytes are not a segment's end"),
        (bytes(SEGMENT_FOOTER_BYTES - 1), "19 bytes are not a segment's end"),
        (bytes(SEGMENT_FOOTER_BYTES), "this is no segment"),
    ],
)
def test_parse_footer_refuses_what_is_no_segment(tail: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        parse_footer(tail)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


def test_parse_footer_refuses_a_version_it_does_not_know() -> None:
    body = bytearray(build_segment([make_part(0, b"one")]).body)
    body[-7] = 2
    with pytest.raises(PenstockError, match="segment of format 2, this release reads 1") as caught:
        parse_footer(body)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


@given(st.data())
@without_deadline
def test_any_changed_bit_of_toc_or_footer_is_found(data: st.DataObject) -> None:
    segment = build_segment([make_part(0, b"one", b"two"), make_part(1, b"three")])
    tail = bytearray(segment.body[parse_footer(segment.body).toc_position :])
    tail[data.draw(st.integers(0, len(tail) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(PenstockError) as caught:
        parse_toc(tail, parse_footer(tail))
    assert caught.value.code in (ErrorCode.CORRUPT_SEGMENT, ErrorCode.UNSUPPORTED_FORMAT)


def _sealed(toc: bytes, toc_position: int) -> bytes:
    bounds = toc_position.to_bytes(4, "big") + len(toc).to_bytes(4, "big")
    return toc + bounds + crc32c(toc + bounds).to_bytes(4, "big") + b"\0\1PNSTCK"


@given(st.binary(max_size=120).flatmap(lambda toc: st.tuples(st.just(toc), st.integers(0, 2**32 - 1))), st.booleans())
@without_deadline
def test_only_penstock_errors_come_out_of_a_toc_of_garbage(toc: tuple[bytes, int], is_sealed: bool) -> None:
    tail = _sealed(*toc) if is_sealed else toc[0]
    with contextlib.suppress(PenstockError):
        parse_toc(tail, parse_footer(tail))


@pytest.mark.parametrize(
    ("positions", "toc_position", "message"),
    [((0, 7), 11, "a part at byte 7, the one before it ends at 6"), ((0, 6), 12, "the parts end at byte 11")],
)
def test_parse_toc_refuses_parts_that_do_not_fill_the_segment(
    positions: tuple[int, int], toc_position: int, message: str
) -> None:
    entries = b"".join(
        bytes(14) + position.to_bytes(4, "big") + length.to_bytes(4, "big") + bytes(16)
        for position, length in zip(positions, (6, 5), strict=True)
    )
    tail = _sealed(entries, toc_position)
    with pytest.raises(PenstockError, match=message) as caught:
        parse_toc(tail, parse_footer(tail))
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
