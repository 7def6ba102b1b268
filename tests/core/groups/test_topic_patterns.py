import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.topic_patterns import check_pattern, matches
from penstock_core.ids import parse_topic_name


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("*", "", True),
        ("*", "x", True),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("*.eu", "orders.eu", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-c-b-c", True),
        ("a*b*c", "a-c-c", False),
        ("a**c", "ac", True),
        ("*ab*ab*", "abxab", True),
        ("*ab*ab*", "abab", True),
        ("*ab*ab*", "aba", False),
    ],
)
def test_pattern_matches(pattern: str, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.lists(st.text("ab", max_size=3), max_size=5))
def test_pattern_matches_what_it_was_made_from(parts: list[str], fill: list[str]) -> None:
    name = "".join(a + b for a, b in itertools.zip_longest(parts, fill[: len(parts) - 1], fillvalue=""))
    assert matches("*".join(parts), name)


@pytest.mark.parametrize("pattern", ["", "a?", "a b", "^a", "a#", "x" * 250])
def test_pattern_that_no_topic_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check_pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_NAME


@given(st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_pattern_matches_as_the_regular_expression_that_it_stands_for(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, name) == bool(re.fullmatch(expression, name))


@given(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", "..")))
def test_every_topic_name_is_a_pattern_of_itself(name: str) -> None:
    check_pattern(parse_topic_name(name))
    assert matches(name, name)


def test_pattern_of_many_stars_is_evaluated_in_linear_time() -> None:
    assert not matches("a*" * 100 + "b", "a" * 249)
