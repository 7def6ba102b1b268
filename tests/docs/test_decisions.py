"""The decisions are short and all listed, and what the protocol pages and the code name is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, prose
from tests.simulation.workloads import WORKLOADS
from tools.sources import source_files

ADRS = DOCS / "adr"
PROTOCOL = DOCS / "protocol"
RECORDS = sorted(ADRS.glob("[0-9]*.md"))
PROTOCOL_PAGES = sorted(PROTOCOL.glob("*.md"))
RECORD_WORDS_MAX = 460  # one screen, without title, status and link
ADR_WORDS_MAX = 30_000  # of all records and their index, as `wc -w` counts. 28,000 before the queue features came


def _name(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("record", RECORDS, ids=_name)
def test_decision_fits_a_screen_and_tells_where_it_holds(record: Path) -> None:
    text = record.read_text()
    head, _, body = text.partition("\n## ")
    words = [word for word in body.split() if re.search(r"\w", word)]
    assert re.search(r"^- \*\*Status:\*\* .*\d{4}-\d\d-\d\d", head, re.MULTILINE)
    assert re.search(r"^- \*\*Today:\*\* ", head, re.MULTILINE), "link the page that says what holds today"
    assert len(words) <= RECORD_WORDS_MAX, "move what holds today to docs/protocol"


def test_decisions_together_stay_short() -> None:
    assert sum(len(page.read_text().split()) for page in ADRS.glob("*.md")) <= ADR_WORDS_MAX


def test_index_has_a_row_for_each_number() -> None:
    index = (ADRS / "README.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| \[?(\d+)\]?", index, re.MULTILINE)]
    assert rows == [*range(1, len(rows) + 1)]
    own = dict(re.findall(r"^\| \[(\d+)\]\(([^)]+)\)", index, re.MULTILINE))
    assert own == {str(int(record.name[:4])): record.name for record in RECORDS}


def test_index_of_protocols_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", prose(PROTOCOL / "README.md")))
    assert linked == {page.name for page in PROTOCOL_PAGES} - {"README.md"}


def test_code_names_decisions_and_protocols_that_are_there() -> None:
    numbers, pages = {record.name[:4] for record in RECORDS}, {page.stem for page in PROTOCOL_PAGES}
    wrong = [
        f"{path}: {named}"
        for path in source_files(ROOT, ".py", ())
        for folder, named in re.findall(r"docs/(adr|protocol)/([\w, -]+)", (ROOT / path).read_text(encoding="utf-8"))
        if not _named(folder, named) <= numbers | pages
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PROTOCOL_PAGES, ids=_name)
def test_protocol_page_names_code_and_tests_that_are_there(page: Path) -> None:
    text = page.read_text()
    assert [name for name in _paths(text) if not _is_there(name)] == []
    assert [name for name in _workloads(text) if name not in WORKLOADS] == []


def _named(folder: str, text: str) -> set[str]:
    pattern = r"\d{4}(?:, \d{4})*" if folder == "adr" else r"[a-z-]+"
    found = re.match(pattern, text)
    return set(found[0].split(", ")) if found else {text}


def _paths(text: str) -> Iterator[str]:
    yield from re.findall(r"`([\w/]+/[\w/]*\.py|\w+\.py|(?:tests|sdk|glue_jobs|infra)/[\w/]+)`", text)


def _is_there(name: str) -> bool:
    if "/" not in name:
        return any(ROOT.glob(f"tests/**/{name}"))
    return any((ROOT / shelf / name).exists() for shelf in (".", "functions", "sdk", "functions/penstock_service"))


def _workloads(text: str) -> Iterator[str]:
    for row in re.findall(r"\bworkloads? ((?:`[a-z_]+`(?:, | and )?)+)", text):
        yield from re.findall(r"`([a-z_]+)`", row)
