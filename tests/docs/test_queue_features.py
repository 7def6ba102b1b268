"""docs/contributing/queue-features.md names tests that exist, and has a row for each feature that may meet another."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT

TEXT = (DOCS / "contributing" / "queue-features.md").read_text()
SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
OTHERS = (
    *("order by key", "filters", "dead letters and redrive", "transactions", "wake-ups and pauses", "quotas"),
    *("partitions that drain", "mirrors", "Spark", "compaction"),
)


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """The names of all tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), flags=re.MULTILINE)}


def test_named_tests_exist(defined: set[str]) -> None:
    assert {*re.findall(r"`(test_\w+)`", TEXT)} - defined == set()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_feature_has_a_cell_for_each_other_one(section: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, flags=re.MULTILINE)
    met = {name for others, cell in rows if cell.strip() for name in others.split(", ")}
    assert {*OTHERS} <= met


def test_there_is_a_section_for_each_feature() -> None:
    assert len(SECTIONS) == 5
