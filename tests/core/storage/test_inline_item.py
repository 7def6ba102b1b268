from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import SegmentId, segment_time_ms
from penstock_core.storage.keys import segment_key
from penstock_core.storage.page_item import (
    expiring_id,
    expiring_item,
    expiring_key,
    inline_id,
    inline_item,
    inline_key,
    inline_shards,
    parse_expiring,
    parse_inline,
)

_IDS = st.binary(min_size=16, max_size=16).map(SegmentId)


@given(_IDS, st.binary(max_size=100))
def test_inline_item_survives_a_round_trip(segment_id: SegmentId, body: bytes) -> None:
    assert parse_inline(inline_item(segment_id, body)) == (segment_id, body)


@given(_IDS)
def test_inline_key_lies_in_a_shard_and_tells_the_segment(segment_id: SegmentId) -> None:
    key = inline_key(segment_id)
    assert key["pk"]["S"] in inline_shards()
    assert inline_id(key["sk"]["S"]) == segment_id


def test_inline_item_is_what_is_stored_today() -> None:
    segment_id = SegmentId(bytes(range(16, 32)))
    assert inline_item(segment_id, b"body") == {
        "pk": {"S": "#inline#1"},
        "sk": {"S": "1f/101112131415161718191a1b1c1d1e1f"},
        "body": {"B": b"body"},
    }
    assert segment_key(segment_id).startswith("1f/")
    assert len(inline_shards()) == len({*inline_shards()}) == 16


@given(_IDS, st.binary(max_size=100), st.integers(1, 255))
def test_expiring_item_survives_a_round_trip_and_ends_behind_its_days(
    segment_id: SegmentId, body: bytes, days: int
) -> None:
    item = expiring_item(segment_id, body, days)
    assert parse_expiring(item) == (segment_id, body)
    assert int(item["expires_at_s"]["N"]) * 1_000 > segment_time_ms(segment_id) + days * 86_400_000
    assert expiring_id(expiring_key(segment_id)["pk"]["S"]) == segment_id


def test_expiring_item_is_what_is_stored_today() -> None:
    segment_id = SegmentId(bytes(range(16, 32)))
    assert expiring_item(segment_id, b"body", 23) == {
        "pk": {"S": "#ttl#EBESExQVFhcYGRobHB0eHw"},
        "sk": {"S": "s"},
        "body": {"B": b"body"},
        "expires_at_s": {"N": str(0x101112131415 // 1_000 + 23 * 86_400 + 1)},
    }
