from hypothesis import given
from hypothesis import strategies as st

from penstock_core.acls.rule import NamePattern, NamePatterns, parse_name_pattern

NAMES = st.text("ab*", max_size=4)
PATTERNS = st.builds(NamePattern, st.text("ab", max_size=3), st.booleans())


@given(st.lists(PATTERNS, max_size=5), NAMES)
def test_patterns_match_as_each_of_them_would(patterns: list[NamePattern], name: str) -> None:
    expected = any(name.startswith(each.text) if each.is_prefix else name == each.text for each in patterns)
    assert NamePatterns(patterns).match(name) is expected


@given(PATTERNS)
def test_pattern_survives_a_round_trip(pattern: NamePattern) -> None:
    assert parse_name_pattern(str(pattern)) == pattern


def test_star_matches_every_name() -> None:
    assert NamePatterns([parse_name_pattern("*")]).match("anything")


@given(PATTERNS, NAMES)
def test_pattern_matches_as_a_set_of_one_does(pattern: NamePattern, name: str) -> None:
    assert pattern.matches(name) is (bool(name) and NamePatterns([pattern]).match(name))
