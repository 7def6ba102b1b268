import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import TransactionalId, new_segment_id
from penstock_core.storage import keys


@given(st.integers(0, 2**63 - 1))
def test_producer_name_survives_a_round_trip(producer_id: int) -> None:
    assert keys.parse_producer_name(keys.producer_name(producer_id)) == producer_id
    assert len(keys.producer_name(producer_id)) == 11


@given(st.integers(0, 253_402_300_799_999), st.binary(min_size=10, max_size=10), st.sampled_from(keys.KeyLayout))
def test_segment_key_is_parsed_back_and_lies_in_its_folder(now_ms: int, entropy: bytes, layout: keys.KeyLayout) -> None:
    segment_id = new_segment_id(now_ms, entropy)
    key = keys.segment_key(segment_id, layout)
    folder = keys.segment_folder(segment_id, layout)
    assert keys.parse_segment_key(key, layout) == segment_id
    assert key.startswith(folder)
    assert folder.index("/") == len(folder) - 1
    assert keys.parse_folder(folder) == (layout, keys.folder_number(segment_id, layout))
    assert keys.folder_name(layout, keys.folder_number(segment_id, layout)) == folder


@given(st.integers(0, 253_402_300_799_999), st.binary(min_size=10, max_size=10))
def test_key_of_one_layout_is_none_of_the_other(now_ms: int, entropy: bytes) -> None:
    segment_id = new_segment_id(now_ms, entropy)
    spread, by_hour = (keys.segment_key(segment_id, layout) for layout in keys.KeyLayout)
    assert keys.parse_segment_key(spread, keys.KeyLayout.BY_HOUR) is None
    assert keys.parse_segment_key(by_hour, keys.KeyLayout.SPREAD) is None


@pytest.mark.parametrize(
    "folder", ["", "/", "ab", "AB/", "abc/", "a/", "2026-09-21/", "2026-09-21-24/", "2026-02-30-01/", "2026-9-21-01/"]
)
def test_folder_that_no_segment_has_is_none(folder: str) -> None:
    assert keys.parse_folder(folder) is None


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


def test_segment_key_follows_from_the_id_and_the_layout_alone() -> None:
    segment_id = new_segment_id(1_790_000_000_000, bytes(range(10)))
    assert keys.segment_key(segment_id) == "09/2026-09-21-14/01a0c4506c0000010203040506070809"
    by_hour = keys.segment_key(segment_id, keys.KeyLayout.BY_HOUR)
    assert by_hour == "2026-09-21-14/01a0c4506c0000010203040506070809"


def test_spread_folders_are_256() -> None:
    folders = {keys.folder_name(keys.KeyLayout.SPREAD, number) for number in range(256)}
    assert (len(folders), {len(folder) for folder in folders}) == (256, {3})


def test_no_key_that_begins_with_a_hash_is_a_name_or_another_one() -> None:
    first = [keys.DELETED, keys.ZONES, keys.CURSORS, keys.GROUPS, keys.transactional_key(TransactionalId("pay"))]
    assert first[-1] == "#transactional#pay"
    assert len(set(first)) == len(first)
    assert all(each.startswith("#") for each in first)
