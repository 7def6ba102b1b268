"""The values of one header in a policy: what they become, and the place that an error names."""

import re
from decimal import Decimal
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.condition_values import ConditionParts, as_number, as_text
from penstock_core.filters.filter import NumberRange


def test_operators_gather_into_one_condition() -> None:
    parts = ConditionParts()
    parts.add_operator({"prefix": "eu-"}, "region[0]")
    parts.add_operator({"suffix": "-1"}, "region[1]")
    parts.add_operator({"equals-ignore-case": "MARS"}, "region[2]")
    parts.add_operator({"exists": False}, "region[3]")
    condition = parts.condition("region")
    assert condition.name == "region"
    assert (condition.values.prefixes, condition.values.suffixes) == ((b"eu-",), (b"-1",))
    assert condition.caseless == {"mars"}
    assert (condition.takes_absent, condition.takes_present) == (True, False)


def test_numeric_range_has_the_bounds_that_it_includes() -> None:
    parts = ConditionParts()
    parts.add_operator({"numeric": [">=", 0, "<", 100]}, "amount[0]")
    [found] = parts.condition("amount").ranges
    assert found == NumberRange(low=Decimal(0), high=Decimal(100), has_low=True, has_high=False)


@pytest.mark.parametrize(
    ("operator", "place"),
    [
        ({"numeric": ["~", 1]}, "amount[0].numeric[0]"),
        ({"numeric": [">", "1"]}, "amount[0].numeric[1]"),
        ({"numeric": [">", 5, "<", 1]}, "amount[0].numeric"),
        ({"prefix": ""}, "amount[0].prefix"),
        ({"exists": "yes"}, "amount[0].exists"),
        ({"anything-but": []}, "amount[0].anything-but"),
        ({"anything-but": ["a", None]}, "amount[0].anything-but[1]"),
        ({"like": "a%"}, "amount[0]"),
        ({"prefix": "a", "suffix": "b"}, "amount[0]"),
    ],
)
def test_wrong_operator_is_refused_with_its_place(operator: dict[str, Any], place: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(f"filter at {place}: ")) as refusal:
        ConditionParts().add_operator(operator, "amount[0]")
    assert (refusal.value.code, refusal.value.facts["place"]) == (ErrorCode.INVALID_FILTER, place)


def test_text_must_be_unicode_and_numbers_must_be_small() -> None:
    with pytest.raises(PenstockError, match="surrogate"):
        as_text("\ud800", "type[0]", "give text")
    with pytest.raises(PenstockError, match="below 1e100"):
        as_number(10**400, "amount[0]")
    with pytest.raises(PenstockError, match="give a comparison"):
        as_number(True, "amount[0]", "give a comparison")
