"""docs/reference/guarantees.md names tests that exist, at least one for each guarantee."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT

TEXT = (DOCS / "reference" / "guarantees.md").read_text()
SECTIONS = {section.partition(".")[0]: section for section in re.split(r"^## (?=G\d+\.)", TEXT, flags=re.MULTILINE)[1:]}
GUARANTEES = [f"G{number}" for number in range(1, 15)]


def _tests_named(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/.]+)`", text)


def test_page_has_the_guarantees_in_order() -> None:
    assert list(SECTIONS) == GUARANTEES


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_guarantee_names_a_test_file(guarantee: str) -> None:
    assert [name for name in _tests_named(SECTIONS[guarantee]) if name.endswith(".py")]


@pytest.mark.parametrize("name", sorted(set(_tests_named(TEXT))))
def test_named_test_exists(name: str) -> None:
    assert (ROOT / name).exists(), f"{name} does not exist: guarantees.md names a test that has moved or gone"


def test_tests_are_named_by_their_whole_path() -> None:
    assert re.findall(r"`(?!tests/)[\w/]*test_\w+\.py`", TEXT) == []
