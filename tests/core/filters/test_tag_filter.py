"""The Bloom filter of tags never hides a record that matches, and its bits are those that clients of others make."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.filters.filter import matches
from penstock_core.filters.policy import parse_filter
from penstock_core.filters.tag_filter import may_match_ref, tag_mask, tags_of
from tests.core.filters.oracle import HEADERS, POLICIES, Headers
from tests.support.refs import ref_at

GOLDEN = {
    b"": 0x1,
    b"order": 0x100020000000001,
    b"tag-1": 0x2008000020000000,
    "ü".encode(): 0x2200400000,
}


@pytest.mark.parametrize("value", GOLDEN)
def test_bits_of_a_tag_are_what_is_stored_today(value: bytes) -> None:
    assert tag_mask(value) == GOLDEN[value]


def test_tags_of_headers_are_those_of_the_header_tag_with_a_value() -> None:
    assert tags_of([]) == 0
    assert tags_of([("Tag", b"order"), ("tag", None), ("type", b"order")]) == 0
    assert tags_of([("tag", b"order"), ("tag", b"tag-1")]) == GOLDEN[b"order"] | GOLDEN[b"tag-1"]


@given(POLICIES, st.lists(HEADERS, max_size=3))
def test_ref_is_never_skipped_if_one_of_its_records_matches(policy: dict[str, Any], records: list[Headers]) -> None:
    wanted = parse_filter(policy)
    bits = 0
    for headers in records:
        bits |= tags_of(headers)
    if any(matches(wanted, headers) for headers in records):
        assert may_match_ref(wanted, replace(ref_at(0), tag_filter=bits))
    assert may_match_ref(wanted, ref_at(0)), "a ref that does not tell its tags may match"


@pytest.mark.parametrize(
    ("policy", "is_skipping"),
    [
        ({"tag": ["a", "b"]}, True),
        ({"tag": ["a"], "type": ["x"]}, True),
        ({"$or": [{"tag": ["a"]}, {"tag": ["b"], "n": [1]}]}, True),
        ({"n": [1], "$or": [{"tag": ["a"]}, {"$or": [{"tag": ["b"]}, {"tag": ["c"]}]}]}, True),
        ({"$or": [{"tag": ["a"]}, {"type": ["b"]}]}, False),
        ({"type": ["a"]}, False),
        ({"tag": [{"prefix": "a"}]}, False),
        ({"tag": [{"anything-but": "a"}]}, False),
        ({"tag": ["a", {"exists": False}]}, False),
        ({"tag": ["a", 1]}, False),  # 1 and 1.0 are the same number and other bytes
        ({"tag": [None]}, False),
    ],
)
def test_ref_without_tags_is_skipped_only_if_every_match_needs_one(policy: dict[str, Any], is_skipping: bool) -> None:
    wanted = parse_filter(policy)
    assert may_match_ref(wanted, replace(ref_at(0), tag_filter=0)) is not is_skipping
    assert may_match_ref(wanted, replace(ref_at(0), tag_filter=2**64 - 1))


def test_ref_of_another_tag_is_skipped() -> None:
    wanted = parse_filter({"tag": ["order"]})
    assert may_match_ref(wanted, replace(ref_at(0), tag_filter=GOLDEN[b"order"] | GOLDEN[b"tag-1"]))
    assert not may_match_ref(wanted, replace(ref_at(0), tag_filter=GOLDEN[b"tag-1"]))
