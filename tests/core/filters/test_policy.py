"""Wrong policies are told with their place, their value and the way out, whatever they hold and however large."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.outcomes import Outcomes

_NESTED: dict[str, Any] = {"a": ["b"]}
for _ in range(limits.FILTER_NESTING_MAX + 1):
    _NESTED = {"$or": [_NESTED, {"a": ["c"]}]}
_DEEP_OBJECT: Any = "x"
for _ in range(5_000):
    _DEEP_OBJECT = [_DEEP_OBJECT]


@pytest.mark.parametrize(
    ("policy", "place", "says"),
    [
        ("", "", "it is not JSON"),
        ("[" * 100_000, "", "at most 4096"),
        ("[" * 4_000, "", "nested deeper than"),
        ('{"a": ["b"], "a": ["c"]}', "", "'a' twice"),
        ('{"a": [NaN]}', "", "NaN is not a JSON number"),
        ('{"a": [1e100]}', "", "'1e100' is a number of more"),
        ("[]", "", "a policy is an object"),
        (7, "", "a policy is an object"),
        ({}, "", "names no header"),
        ({"a": []}, "a", "give a list of one value or more"),
        ({"a": "b"}, "a", "'b': give a list"),
        ({"a": {"b": ["c"]}}, "a", "headers are not nested"),
        ({"a b": [[]]}, "'a b'[0]", "a value is text"),
        ({3: ["b"]}, "3", "the name of a header is text"),
        ({"a": ["b", {"prefix": 3}]}, "a[1].prefix", "3: give text"),
        ({"a": [{"prefix": ""}]}, "a[0].prefix", "it is empty"),
        ({"a": [{"suffix": None}]}, "a[0].suffix", "give text"),
        ({"a": [{"wildcard": "*"}]}, "a[0]", "one operator: anything-but, equals-ignore-case, exists"),
        ({"a": [{"prefix": "b", "suffix": "c"}]}, "a[0]", "one operator"),
        ({"a": [{}]}, "a[0]", "one operator"),
        ({"a": [{"exists": 1}]}, "a[0].exists", "give true or false"),
        ({"a": [{"numeric": [">"]}]}, "a[0].numeric", "give a comparison"),
        ({"a": [{"numeric": ["!=", 3]}]}, "a[0].numeric[0]", "a comparison is one of"),
        ({"a": [{"numeric": [[], 3]}]}, "a[0].numeric[0]", "a comparison is one of"),
        ({"a": [{"numeric": [">", "3"]}]}, "a[0].numeric[1]", "followed by a number"),
        ({"a": [{"numeric": [">", True]}]}, "a[0].numeric[1]", "followed by a number"),
        ({"a": [{"numeric": [">", 1, ">=", 2]}]}, "a[0].numeric[2]", "one lower and one upper"),
        ({"a": [{"numeric": ["=", 1, "<", 2]}]}, "a[0].numeric[2]", "one lower and one upper"),
        ({"a": [{"numeric": [">", 5, "<", 3]}]}, "a[0].numeric", "no number lies in it"),
        ({"a": [{"numeric": [">", 5, "<=", 5]}]}, "a[0].numeric", "no number lies in it"),
        ({"a": [float("nan")]}, "a[0]", "a number has 32 characters at most"),
        ({"a": [10**40]}, "a[0]", "a number has 32 characters at most"),
        ({"a": [10**100_000]}, "a[0]", "a number has 32 characters at most"),
        ({"a": [{"anything-but": []}]}, "a[0].anything-but", "give 1 to 150 values"),
        ({"a": [{"anything-but": ["b", None]}]}, "a[0].anything-but[1]", "None: anything-but takes"),
        ({"a": [{"anything-but": {"exists": True}}]}, "a[0].anything-but", "anything-but takes"),
        ({"a": [{"anything-but": {"prefix": 1}}]}, "a[0].anything-but.prefix", "give text"),
        ({"$or": [{"a": ["b"]}]}, "$or", "two policies or more"),
        ({"$or": [{"a": ["b"]}, {"type": [{"prefix": 3}]}]}, "$or[1].type[0].prefix", "give text"),
        ({"$or": [{"a": ["b"]}, {}]}, "$or[1]", "names no header"),
        (_NESTED, "$or[0].$or[0].$or[0].$or", "3 deep at most"),
        ({"a": [_DEEP_OBJECT]}, "a[0]", "a value is text"),
        ({f"h{n}": ["a"] for n in range(17)}, "h16", "16 conditions"),
        ({"a": [str(n) for n in range(151)]}, "a[150]", "150 values"),
        ({"a": ["x"] * 100, "b": [{"anything-but": ["y"] * 51}]}, "b[0]", "150 values"),
        ({"a": [{"anything-but": ["y"] * 1_000_000}]}, "a[0].anything-but", "give 1 to 150"),
        ({"a": ["x" * 4_096]}, "", "at most 4096"),
        ({"a": ["\ud800"]}, "a[0]", "surrogate"),
        ('{"a": ["\ud800"]}', "", "surrogate"),
        ({"\ud800": ["a"]}, "'\\ud800'", "surrogate"),
    ],
)
def test_parse_filter_tells_the_place_of_what_is_wrong(policy: Any, place: str, says: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_filter(policy)
    assert caught.value.code is ErrorCode.INVALID_FILTER
    assert caught.value.facts["place"] == place
    assert says in caught.value.message
    assert len(caught.value.message) < 500
    json.dumps(caught.value.to_json())


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([">", "<=", "="]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$or", "numeric", "anything-but", "prefix", "exists", "suffix"]) | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(_JSON | st.text(max_size=40) | _JSON.map(json.dumps))
def test_parse_filter_takes_or_refuses_whatever_it_gets(policy: Any) -> None:
    found = Outcomes.collect(parse_filter, [policy])
    assert [error.code for error in found.errors] in ([], [ErrorCode.INVALID_FILTER])
    assert all(parse_filter(each.text) == each for each in found.ok)


def test_largest_policy_is_taken() -> None:
    keys = {f"h{n}": [f"v{m}" for m in range(9)] for n in range(limits.FILTER_KEYS_MAX)}
    parse_filter(keys)
    parse_filter({"h": ["x" * (limits.FILTER_BYTES_MAX - len('{"h":[""]}'))]})
