from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import SegmentId
from penstock_core.storage.keys import segment_key
from penstock_core.storage.page_item import inline_id, inline_item, inline_key, inline_shards, parse_inline

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
