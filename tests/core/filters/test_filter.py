"""Filters match what a naive oracle says, and the policies of AWS's pages mean here what they mean there.

Which bytes of a header are a number, and which number.

The Bloom filter of tags never hides a record that matches, and its bits are those that clients of others make.
"""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.filters.filter import matches, may_match_ref, read_number, tag_mask, tags_of
from penstock_core.filters.policy import parse_filter
from penstock_core.limits import FILTER_NUMBER_BYTES_MAX
from tests.core.filters.oracle import HEADERS, POLICIES, Headers, is_match, number_of
from tests.support.refs import ref_at

GOLDEN = {
    b"": 0x1,
    b"order": 0x100020000000001,
    b"tag-1": 0x2008000020000000,
    "ü".encode(): 0x2200400000,
}


@given(POLICIES, HEADERS)
def test_filter_matches_what_the_oracle_says(policy: dict[str, Any], headers: Headers) -> None:
    assert matches(parse_filter(policy), headers) == is_match(policy, headers)


@given(POLICIES, HEADERS)
def test_filter_of_text_equals_that_of_the_object(policy: dict[str, Any], headers: Headers) -> None:
    of_object, of_text = parse_filter(policy), parse_filter(json.dumps(policy))
    assert of_object.root == of_text.root
    assert parse_filter(of_object.text) == of_object
    assert parse_filter(of_text.text) == of_text


@pytest.mark.parametrize(
    ("policy", "headers", "is_matching"),
    [
        ({"type": ["order"]}, [("type", b"order")], True),
        ({"type": ["order"]}, [("type", b"Order")], False),
        ({"type": ["order"]}, [("type", b"refund"), ("type", b"order")], True),  # any of the headers of a name
        ({"type": ["order"]}, [], False),
        ({"type": ["order"], "price": [{"numeric": [">", 100]}]}, [("type", b"order"), ("price", b"100.01")], True),
        ({"type": ["order"], "price": [{"numeric": [">", 100]}]}, [("type", b"order"), ("price", b"1e2")], False),
        ({"price": [{"numeric": ["=", 301.5]}]}, [("price", b"3.015e2")], True),
        ({"price": [{"numeric": [">", 0, "<=", 150]}]}, [("price", b"150")], True),
        ({"price": [{"numeric": [">", 0]}]}, [("price", b"much")], False),
        ({"price": [100]}, [("price", b"1e2")], True),
        ({"price": ["100"]}, [("price", b"1e2")], False),
        ({"price": [{"anything-but": [100, 500]}]}, [("price", b"101")], True),
        ({"price": [{"anything-but": [100, 500]}]}, [("price", b"1e2")], False),
        ({"interest": [{"anything-but": ["rugby", "tennis"]}]}, [("interest", b"rugby"), ("interest", b"chess")], True),
        ({"interest": [{"anything-but": ["rugby", "tennis"]}]}, [], False),
        ({"event": [{"anything-but": {"prefix": "order-"}}]}, [("event", b"order-1")], False),
        ({"event": [{"anything-but": {"suffix": "ball"}}]}, [("event", b"rugby")], True),
        ({"interest": [{"equals-ignore-case": "Tennis"}]}, [("interest", b"TENNIS")], True),
        ({"store": [{"exists": True}]}, [("store", b"")], True),
        ({"store": [{"exists": False}]}, [("type", b"order")], True),
        ({"store": [{"exists": False}]}, [], True),  # SNS does not match a message without attributes here
        ({"store": [{"exists": False}, "fan"]}, [("store", b"fan")], True),
        ({"flag": [None]}, [("flag", None)], True),
        ({"flag": [{"anything-but": "a"}]}, [("flag", None)], False),
        ({"flag": [True]}, [("flag", b"true")], True),
        ({"type": [{"prefix": "é"}]}, [("type", "école".encode())], True),
        ({"type": [{"prefix": "a"}]}, [("type", b"a\xff")], True),
        ({"type": [{"equals-ignore-case": "a"}]}, [("type", b"\xff")], False),
        ({"source": ["x"], "$or": [{"a": [1]}, {"b": [1]}]}, [("source", b"x"), ("b", b"1")], True),
        ({"source": ["x"], "$or": [{"a": [1]}, {"b": [1]}]}, [("source", b"x"), ("c", b"1")], False),
    ],
)
def test_filter_means_what_aws_says_of_it(policy: dict[str, Any], headers: Headers, is_matching: bool) -> None:
    assert matches(parse_filter(policy), headers) is is_matching


@given(st.one_of(st.binary(max_size=34), st.text("0123456789+-.eE_ nNaA", max_size=34).map(str.encode)))
def test_number_is_what_the_grammar_says(value: bytes) -> None:
    found, expected = read_number(value), number_of(value)
    if found is None or found == 0:  # of zeros, those with a large exponent are no numbers
        assert expected in (found, 0)
    else:
        assert found == expected


def test_numbers_are_compared_exactly() -> None:
    wanted = parse_filter('{"n": [{"numeric": ["=", 0.10000000000000000000000001]}]}')
    assert matches(wanted, [("n", b"0.10000000000000000000000001")])
    assert not matches(wanted, [("n", b"0.1")])


def test_each_value_is_read_as_a_number_once_whatever_the_policy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def counted(text: bytes) -> Decimal | None:
        read.append(text)
        return read_number(text)

    monkeypatch.setattr("penstock_core.filters.filter.read_number", counted)
    policy = {"n": [{"anything-but": [7, 100 + number]} for number in range(60)] + [{"numeric": ["=", 8]}, 9]}
    assert not matches(parse_filter(policy), [("n", b"7")] * 20 + [("other", b"7")])
    assert read == [b"7"] * 20


def test_match_takes_time_linear_in_the_headers() -> None:
    """Counted, not timed: each value is looked at once for each condition of its name."""

    class Headers(list[tuple[str, bytes | None]]):
        looks = 0

        def __iter__(self) -> Any:
            for each in super().__iter__():
                self.looks += 1
                yield each

    wanted = parse_filter({"$or": [{f"h{n}": [{"prefix": "a" * 20}], "x": ["y"]} for n in range(8)]})
    headers = Headers((f"h{n % 8}", b"a" * 19 + b"b") for n in range(1_000))
    assert not matches(wanted, headers)
    assert headers.looks <= 16 * 1_000


@pytest.mark.parametrize(
    ("text", "number"), [(b"100", 100), (b"1e2", 100), (b"-0.5", Decimal("-0.5")), (b"+7", 7), (b"100.0", 100)]
)
def test_decimal_text_is_its_number(text: bytes, number: Decimal | int) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1_000", b"NaN", b"Infinity", b"0x10", b"1e100", b"1e-100", "١".encode()]
)
def test_other_text_is_no_number(text: bytes) -> None:
    assert read_number(text) is None


@given(st.binary(max_size=2 * FILTER_NUMBER_BYTES_MAX))
def test_any_bytes_are_a_number_of_bounded_length_or_none(text: bytes) -> None:
    number = read_number(text)
    assert number is None or (number.is_finite() and len(text) <= FILTER_NUMBER_BYTES_MAX)


@given(st.integers(min_value=-(10**20), max_value=10**20))
def test_whole_numbers_are_read_exactly(number: int) -> None:
    assert read_number(str(number).encode()) == number


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
