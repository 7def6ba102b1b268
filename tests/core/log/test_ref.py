from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import BYTE_FORMATS
from penstock_core.ids import SegmentId
from penstock_core.log.ref import (
    REF_BYTES,
    REF_BYTES_MAX,
    REF_WITH_PRODUCER_BYTES,
    Ref,
    Tier,
    decode_ref,
    decode_refs,
    encode_ref,
    encode_refs,
    locate,
    span,
)
from penstock_core.records.producer_state import ProducerSequence

_U32 = st.integers(0, 2**32 - 1)


def _with_producer(ref: Ref, producer_id: int, epoch: int, first_sequence: int) -> Ref:
    last_sequence = first_sequence + ref.offset_span - 1
    sequence = ProducerSequence(
        producer_id=producer_id, epoch=epoch, first_sequence=first_sequence, last_sequence=last_sequence
    )
    return replace(ref, sequence=sequence)


_PLAIN_REFS = st.builds(
    Ref,
    segment_id=st.binary(min_size=16, max_size=16).map(SegmentId),
    position=_U32,
    length=_U32,
    offset_span=_U32,
    record_count=_U32,
    max_timestamp_ms=st.integers(-1, 2**63 - 1),
    zones=st.integers(0, 255),
    is_short=st.just(False),
    tier=st.sampled_from([Tier.ZONAL, Tier.ARCHIVE]),
)
_OLD_REFS = _PLAIN_REFS | st.builds(
    _with_producer, _PLAIN_REFS, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)
REFS = st.builds(
    lambda ref, tier, tag_filter, appended_ms, is_delayed, kept_days, may_expire, is_short, same_count: replace(
        ref,
        tier=tier,
        tag_filter=tag_filter,
        appended_ms=appended_ms,
        is_delayed=is_delayed and appended_ms is not None and not tier.is_item,
        kept_days=kept_days if tier is Tier.EXPIRING else 0,
        may_expire=may_expire,
        is_short=is_short,
        record_count=ref.offset_span if same_count else ref.record_count,
    ),
    _OLD_REFS,
    st.sampled_from(Tier),
    st.none() | st.integers(0, 2**64 - 1),
    st.none() | st.integers(0, 2**63 - 1),
    st.booleans(),
    st.integers(0, 255),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
GOLDEN = Ref(
    segment_id=SegmentId(bytes(range(16))),
    position=1,
    length=2,
    offset_span=3,
    record_count=4,
    max_timestamp_ms=5,
    zones=0b101,
    tier=Tier.ARCHIVE,
    is_short=False,
)


@given(REFS)
def test_ref_survives_a_round_trip(ref: Ref) -> None:
    data = encode_ref(ref)
    assert 24 <= len(data) <= 82 if ref.is_short else REF_BYTES <= len(data) <= REF_BYTES_MAX
    assert decode_ref(data) == ref


@given(REFS, st.data())
def test_short_ref_has_one_encoding_and_no_prefix_is_one(ref: Ref, data: st.DataObject) -> None:
    encoded = bytearray(encode_ref(replace(ref, is_short=True)))
    with pytest.raises(PenstockError):
        decode_refs(bytes(encoded[: data.draw(st.integers(1, len(encoded) - 1))]))
    place = data.draw(st.integers(1, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    try:
        changed = decode_refs(bytes(encoded))
    except PenstockError:
        return
    assert encode_refs(changed) == bytes(encoded)


@given(_OLD_REFS)
def test_ref_without_new_fields_is_one_that_the_release_before_reads(ref: Ref) -> None:
    data = encode_ref(ref)
    assert data[0] == (1 if ref.sequence is None else 2)
    assert len(data) == (REF_BYTES if ref.sequence is None else REF_WITH_PRODUCER_BYTES)


@given(st.lists(REFS, max_size=20))
def test_refs_survive_a_round_trip(refs: list[Ref]) -> None:
    assert decode_refs(encode_refs(refs)) == tuple(refs)


def test_short_ref_bytes_are_what_is_stored_today() -> None:
    segment_id = SegmentId(bytes.fromhex("019d1b2a4e00") + bytes(10))
    ref = replace(GOLDEN, is_short=True, segment_id=segment_id, position=300, max_timestamp_ms=0x019D1B2A4E00 - 2)
    numbers = "ac02" + "02" + "03"
    assert encode_ref(ref).hex() == "088105" + segment_id.hex() + numbers + "04" + "03"
    assert encode_ref(replace(ref, record_count=3)).hex() == "080105" + segment_id.hex() + numbers + "03"
    item = replace(_with_producer(ref, 6, 7, 200), record_count=3, tier=Tier.EXPIRING, kept_days=23, tag_filter=9)
    behind = "17" + "0000000000000006" + "07" + "c801" + "0000000000000009"
    assert encode_ref(item).hex() == "080f05" + segment_id.hex() + numbers + "03" + behind
    delayed = replace(ref, record_count=3, appended_ms=1, is_delayed=True, may_expire=True)
    assert encode_ref(delayed).hex() == "087105" + segment_id.hex() + numbers + "03" + "0000000000000001"


def test_ref_bytes_are_what_is_stored_today() -> None:
    assert encode_ref(GOLDEN).hex() == (
        "010105000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    )
    assert encode_ref(_with_producer(GOLDEN, 6, 7, 8)).hex() == (
        "020105000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
        "0000000000000006000700000008"
    )


@pytest.mark.parametrize(
    ("ref", "behind"),
    [
        (replace(GOLDEN, tag_filter=9), "020000000000000009"),
        (replace(GOLDEN, appended_ms=10, is_delayed=True), "04000000000000000a"),
        (replace(GOLDEN, tag_filter=0, appended_ms=10, is_delayed=True), "060000000000000000000000000000000a"),
        (
            replace(_with_producer(GOLDEN, 6, 7, 8), tag_filter=2**64 - 1),
            "030000000000000006000700000008ffffffffffffffff",
        ),
        (
            replace(_with_producer(GOLDEN, 6, 7, 8), tag_filter=9, appended_ms=10, is_delayed=True),
            "0700000000000000060007000000080000000000000009000000000000000a",
        ),
    ],
)
def test_ref_bytes_with_flags_are_what_is_stored_today(ref: Ref, behind: str) -> None:
    fixed = "030105000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    assert encode_ref(ref).hex() == fixed + behind


@pytest.mark.parametrize(
    ("ref", "behind"),
    [
        (replace(GOLDEN, appended_ms=10), "04000000000000000a"),
        (replace(GOLDEN, tag_filter=0, appended_ms=10), "060000000000000000000000000000000a"),
        (
            replace(_with_producer(GOLDEN, 6, 7, 8), tag_filter=9, appended_ms=10),
            "0700000000000000060007000000080000000000000009000000000000000a",
        ),
    ],
)
def test_ref_bytes_with_an_append_time_are_what_is_stored_today(ref: Ref, behind: str) -> None:
    fixed = "050105000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    assert encode_ref(ref).hex() == fixed + behind


@pytest.mark.parametrize(
    ("ref", "behind"),
    [
        (GOLDEN, "00"),
        (_with_producer(GOLDEN, 6, 7, 8), "010000000000000006000700000008"),
        (replace(GOLDEN, tag_filter=9), "020000000000000009"),
        (replace(GOLDEN, appended_ms=10), "04000000000000000a"),
    ],
)
def test_inline_ref_bytes_are_what_is_stored_today(ref: Ref, behind: str) -> None:
    fixed = "040200000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    assert encode_ref(replace(ref, tier=Tier.INLINE, zones=0)).hex() == fixed + behind


def test_expiring_ref_bytes_are_what_is_stored_today() -> None:
    ref = replace(GOLDEN, tier=Tier.EXPIRING, zones=0, kept_days=23)
    fixed = "060300000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    assert encode_ref(ref).hex() == fixed + "0017"
    assert encode_ref(replace(ref, tag_filter=9)).hex() == fixed + "0217" + "0000000000000009"
    assert ref.kept_until_ms == 0x000102030405 + 23 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("ref", "head", "behind"),
    [
        (GOLDEN, "070105", "00"),
        (_with_producer(GOLDEN, 6, 7, 8), "070105", "010000000000000006000700000008"),
        (replace(GOLDEN, tag_filter=9, appended_ms=10), "070105", "060000000000000009000000000000000a"),
        (replace(GOLDEN, appended_ms=10, is_delayed=True), "070105", "0c000000000000000a"),
        (replace(GOLDEN, tier=Tier.ZONAL), "070005", "00"),
        (replace(GOLDEN, tier=Tier.INLINE), "070205", "00"),
        (replace(GOLDEN, tier=Tier.EXPIRING, kept_days=23), "070305", "0017"),
    ],
)
def test_bytes_of_a_ref_that_may_expire_are_what_is_stored_today(ref: Ref, head: str, behind: str) -> None:
    fixed = "000102030405060708090a0b0c0d0e0f000000010000000200000003000000040000000000000005"
    assert encode_ref(replace(ref, may_expire=True)).hex() == head + fixed + behind


def test_release_that_knows_no_item_refuses_a_ref_to_one_by_its_version() -> None:
    for tier in (Tier.INLINE, Tier.EXPIRING):
        assert encode_ref(replace(GOLDEN, tier=tier))[0] not in BYTE_FORMATS["ref"].writes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        bytes(REF_BYTES),
        b"\x02" + bytes(REF_BYTES - 1),
        b"\x03" + bytes(REF_BYTES_MAX - 1),
        b"\x04" + bytes(REF_BYTES_MAX - 1),
        b"\x03" + bytes(REF_BYTES - 1),
        encode_ref(replace(GOLDEN, tag_filter=1))[:-1],
        b"\x03" + encode_ref(GOLDEN)[1:] + b"\x08" + bytes(8),  # an unknown flag
        b"\x03" + encode_ref(GOLDEN)[1:] + b"\x01" + bytes(14),  # a ref that has a shorter encoding
        b"\x05" + encode_ref(GOLDEN)[1:] + b"\x02" + bytes(8),  # an append time that is missing
        2 * encode_ref(GOLDEN),
        b"\x04" + encode_ref(GOLDEN)[1:] + b"\x00",  # an inline ref of the archive
        b"\x01\x02" + encode_ref(GOLDEN)[2:],  # an inline ref of an old version
        encode_ref(replace(GOLDEN, tier=Tier.INLINE))[:-1],
        encode_ref(replace(GOLDEN, tier=Tier.EXPIRING))[:-1],
        b"\x06" + encode_ref(replace(GOLDEN, tier=Tier.INLINE))[1:] + b"\x01",  # an expiring ref of another tier
        b"\x04" + encode_ref(replace(GOLDEN, tier=Tier.EXPIRING))[1:],
        encode_ref(replace(GOLDEN, tier=Tier.INLINE))[:-1] + b"\x08",
        bytes(REF_BYTES + 1),
        b"\x07" + encode_ref(GOLDEN)[1:],  # without flags
        bytes.fromhex("080005") + bytes(16) + b"\x80\x00" + b"\x02\x03\x00",  # a number with a byte too many
        bytes.fromhex("080005") + bytes(16) + b"\x80\x80\x80\x80\x10" + b"\x02\x03\x00",  # a position of 2**32
        bytes.fromhex("088005") + bytes(16) + b"\x01\x02\x03\x03\x00",  # a count that is the span
        bytes.fromhex("082005") + bytes(16) + b"\x01\x02\x03\x00",  # delayed, without a time
        bytes.fromhex("083205") + bytes(16) + b"\x01\x02\x03\x00" + bytes(8),  # a delayed item
        b"\x07" + encode_ref(GOLDEN)[1:] + b"\x08",  # delayed, without a time
        b"\x07" + encode_ref(GOLDEN)[1:] + b"\x10",  # an unknown flag
        b"\x07" + encode_ref(replace(GOLDEN, tier=Tier.INLINE))[1:-1] + b"\x0c" + bytes(8),  # a delayed item
        encode_ref(replace(GOLDEN, tier=Tier.EXPIRING, may_expire=True))[:-1],
    ],
)
def test_decode_refuses_what_is_no_ref(data: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_ref(data)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


def test_decode_refs_refuses_a_torn_list() -> None:
    with pytest.raises(PenstockError, match="byte 43 of 85"):
        decode_refs(encode_refs([GOLDEN, GOLDEN])[:-1])


@given(st.integers(0, 2**40), st.lists(REFS, max_size=20))
def test_located_refs_follow_each_other_without_gap(base: int, refs: list[Ref]) -> None:
    located = list(locate(base, refs))
    assert [item.ref for item in located] == refs
    ends = [base, *(item.end_offset for item in located)]
    assert [item.base_offset for item in located] == ends[:-1]
    assert ends[-1] == base + span(refs)
