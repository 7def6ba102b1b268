"""docs/reference/kafka-errors.md says what the gateway answers."""

import re

import pytest

from penstock_core.errors import ErrorCode
from tools.kafka_errors import PAGE, page_with, table

TEXT = PAGE.read_text()


def test_page_of_kafka_errors_is_what_the_code_says() -> None:
    assert page_with(table(), TEXT) == TEXT, "run: python -m tools.kafka_errors"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_page_of_kafka_errors_has_one_row_for_each_code(code: ErrorCode) -> None:
    assert len(re.findall(rf"^\| {code.name} \| [A-Z_]+ \| -?\d+ \|", TEXT, re.MULTILINE)) == 1


def test_page_of_kafka_errors_shows_codes_of_groups_that_differ() -> None:
    [row] = re.findall(r"^\| INVALID_NAME \|.*$", TEXT, re.MULTILINE)
    assert row == (
        "| INVALID_NAME | INVALID_TOPIC_EXCEPTION | 17 | no | groups, share: INVALID_GROUP_ID; "
        "transactions: INVALID_REQUEST |"
    )
