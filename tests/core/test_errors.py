import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import Category, ErrorCode, PenstockError, shown

STATUSES = {
    Category.INVALID: {400, 413, 416},
    Category.NOT_FOUND: {404},
    Category.CONFLICT: {409},
    Category.FENCED: {409},
    Category.DENIED: {403},
    Category.THROTTLED: {429},
    Category.UNAVAILABLE: {500, 503},
    Category.CORRUPT: {400, 500},
}


@pytest.mark.parametrize("code", ErrorCode)
def test_status_of_a_code_fits_its_category(code: ErrorCode) -> None:
    assert code.http_status in STATUSES[code.category]


def test_codes_that_share_a_category_and_status_stay_apart() -> None:
    assert len({code.value for code in ErrorCode}) == len(ErrorCode) == len(ErrorCode.__members__)


def test_only_throttled_and_unavailable_are_retriable() -> None:
    retriable = {code.name for code in ErrorCode if code.is_retriable}
    assert retriable == {"THROTTLED", "INTERNAL", "NOT_ENOUGH_ZONES", "STORAGE_UNAVAILABLE", "IDENTITY_UNAVAILABLE"}


def test_error_shows_its_code_message_and_doubt() -> None:
    error = PenstockError(ErrorCode.THROTTLED, "slow down", maybe_applied=True, limit=9)
    assert str(error) == "THROTTLED: slow down (may have been applied)"
    assert str(PenstockError(ErrorCode.THROTTLED, "slow down")) == "THROTTLED: slow down"
    assert error.to_json() == {"code": "THROTTLED", "message": "slow down", "maybe_applied": True, "limit": 9}


@given(
    st.sampled_from(ErrorCode),
    st.text(),
    st.booleans(),
    st.dictionaries(st.sampled_from(["epoch", "limit"]), st.integers()),
)
def test_error_survives_pickling(code: ErrorCode, message: str, maybe_applied: bool, facts: dict[str, Any]) -> None:
    error = PenstockError(code, message, maybe_applied=maybe_applied, **facts)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is PenstockError
    assert (copy.code, copy.to_json(), str(copy)) == (code, error.to_json(), str(error))


class NarrowError(PenstockError):
    """A subclass whose constructor takes fewer arguments."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message, limit=3)


def test_subclass_with_another_constructor_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(NarrowError("too much")))
    assert type(copy) is NarrowError
    assert (copy.to_json(), copy.args) == (NarrowError("too much").to_json(), ("too much",))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("orders", "'orders'"),
        ("a\nb\x1b", r"'a\nb\x1b'"),
        ("x" * 100, f"'{'x' * 100}'"),
        (12, "12"),
        (True, "True"),
        (1.5, "1.5"),
        (None, "None"),
        ([1, "a"], "[1, 'a']"),
        ([[], [[]], {"a": {"b": 1}}, 4], "[[], [[]], {'a': {...}}, ...]"),
        ({"a": [1]}, "{'a': [1]}"),
        (10**4_000, "a number of 13288 bits"),
    ],
)
def test_shown_names_a_value(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 101, "\x7f" * 100, "\U000e0001" * 4_000_000, "'\"" * 60])
def test_shown_is_cut_when_the_value_is_long(value: str) -> None:
    assert len(shown(value)) == 101
    assert shown(value).endswith("…")


def test_shown_looks_two_levels_deep() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "[[[...]]]"
