"""Filters match what a naive oracle says, and the policies of AWS's pages mean here what they mean there."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.filters.filter import matches
from penstock_core.filters.numbers import read_number
from penstock_core.filters.policy import parse_filter
from tests.core.filters.oracle import HEADERS, POLICIES, Headers, is_match, number_of


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
