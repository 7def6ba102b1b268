"""Outputs that count as shown by the page, and others that do not."""

import pytest

from tests.docs.outputs import differs


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("1\n2\n", "1\n2\n"),
        ("orders   6\n", "orders 6 \n\n"),
        ("3 records in 1.2 s\n", "3 records in 14 s\n"),
        ("at 2026-11-21 10:00:00Z\n", "at 2027-01-02 03:04:05Z\n"),
        ('{"offset": 17}\n', '{"offset": 2}\n'),
        ("id 0f3c77aa\n", "id 9b1d22cc\n"),
        ("┏━━━┓\n", "┏━━━━━━┓\n"),
        ("1\n…\n9\n", "1\n2\n3\n9\n"),
        ("…\n", ""),
        ("topic …, 6 partitions\n", "topic orders, 6 partitions\n"),
    ],
)
def test_output_is_as_shown_when_it_differs_in_what_varies(shown: str, printed: str) -> None:
    assert differs(shown, printed) is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("1\n2\n", "2\n1\n"),
        ("1\n", "1\n2\n"),
        ("1\n2\n", "1\n"),
        ("orders 6\n", "orders 7\n"),
        ("1\n…\n9\n", "1\n2\n"),
    ],
)
def test_output_is_not_as_shown_when_a_line_is_missing_added_or_another(shown: str, printed: str) -> None:
    assert differs(shown, printed) is not None
