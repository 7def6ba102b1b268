"""Generated pages are what the code makes of them.

docs/reference/kafka-errors.md says what the gateway answers.
"""

import re
from pathlib import Path

import pytest

from penstock_core.errors import ErrorCode
from tests.docs.pages import ROOT
from tools import llms, python_reference
from tools.kafka_errors import PAGE, page_with, table

PAGES = python_reference.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_of_the_python_reference_is_what_the_docstrings_say(page: Path) -> None:
    assert page.exists(), "run: make pages"
    assert page.read_text() == PAGES[page], "run: make pages"


def test_python_reference_has_no_page_of_a_class_that_went() -> None:
    folder = python_reference.FOLDER / "python"
    assert set(folder.glob("*.md")) == {page for page in PAGES if page.parent == folder}


def test_llms_txt_lists_every_page_with_its_title() -> None:
    text = llms.FILE.read_text()
    assert text == llms.llms(), "run: make pages"
    decisions = set((ROOT / "docs" / "adr").glob("*.md")) - {ROOT / "docs" / "adr" / "README.md"}
    pages = ({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}) - decisions
    assert {path for path in pages if f"]({path.relative_to(ROOT)})" not in text} == set()


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
