import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import TransactionalId, new_segment_id
from penstock_core.storage import keys


@given(st.integers(0, 2**63 - 1))
def test_producer_name_survives_a_round_trip(producer_id: int) -> None:
    assert keys.parse_producer_name(keys.producer_name(producer_id)) == producer_id
    assert len(keys.producer_name(producer_id)) == 11


@given(st.integers(0, 253_402_300_799_999), st.binary(min_size=10, max_size=10))
def test_segment_key_is_parsed_back_and_has_one_of_the_prefixes(now_ms: int, entropy: bytes) -> None:
    segment_id = new_segment_id(now_ms, entropy)
    key = keys.segment_key(segment_id)
    assert keys.parse_segment_key(key) == segment_id
    assert key.startswith(keys.segment_prefix(keys.prefix_number(segment_id)))
    assert 0 <= keys.prefix_number(segment_id) < keys.SEGMENT_PREFIXES


@pytest.mark.parametrize(
    "key",
    [
        "",
        "probe/a",
        "01a0c4506c0000010203040506070809",
        "09/2026-09-21-14/01A0C4506C0000010203040506070809",
        "09/2026-09-21-15/01a0c4506c0000010203040506070809",
        "08/2026-09-21-14/01a0c4506c0000010203040506070809",
        "x/09/2026-09-21-14/01a0c4506c0000010203040506070809",
        "09/2026-09-21-14/01a0c4506c00000102030405060708",
        "09/2026-09-21-14/01a0c4506c0000010203040506070809/",
        "09/2026-09-21-14/01a0c4506c0000010203040506070809\n",
        "ff/9999-99-99-99/" + "f" * 32,
    ],
)
def test_parse_segment_key_knows_only_what_segment_key_makes(key: str) -> None:
    assert keys.parse_segment_key(key) is None


def test_segment_key_follows_from_the_id_alone() -> None:
    segment_id = new_segment_id(1_790_000_000_000, bytes(range(10)))
    assert keys.segment_key(segment_id) == "09/2026-09-21-14/01a0c4506c0000010203040506070809"


def test_segment_prefixes_are_all_there_are() -> None:
    prefixes = {keys.segment_prefix(number) for number in range(keys.SEGMENT_PREFIXES)}
    assert len(prefixes) == keys.SEGMENT_PREFIXES == 256
    assert {len(prefix) for prefix in prefixes} == {3}


def test_no_key_that_begins_with_a_hash_is_a_name_or_another_one() -> None:
    first = [keys.DELETED, keys.ZONES, keys.CURSORS, keys.GROUPS, keys.transactional_key(TransactionalId("pay"))]
    assert first[-1] == "#transactional#pay"
    assert len(set(first)) == len(first)
    assert all(each.startswith("#") for each in first)
