"""The committed pages of figures, and the parts that a program writes."""

from pathlib import Path

import pytest

from bench.pages import fill_figures, stale_pages, to_block, to_page
from bench.questions import PAGES
from bench.report.figures import FIGURES, FIGURES_MAX
from bench.report.result import RESULTS_FOLDER, Machine, Result, load_results, parse_result

RESULT = Result(
    name="stack",
    measured_at="2026-11-21",
    commit="0daf8ee",
    machine=Machine(cores=2),
    command="python -m bench.run",
    parameters={"rounds": 3},
    conditions=["An idle machine."],
    tables={"rates": [{"request": "produce", "records_per_s": 11_298, "p50_ms": 0.5, "calls": None}]},
)


def test_committed_pages_equal_generated_ones() -> None:
    stale = stale_pages(load_results())
    assert not stale, "run python -m bench.pages"


def test_performance_page_has_ten_figures_at_most() -> None:
    assert len(FIGURES) <= FIGURES_MAX
    assert {figure.page for figure in FIGURES} <= PAGES.keys()


@pytest.mark.parametrize("path", sorted(RESULTS_FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_result_file_is_what_its_result_writes(path: Path) -> None:
    result = parse_result(path.read_text())
    assert result.name == path.stem
    assert result.to_json() == path.read_text()


def test_block_shows_conditions_and_tables() -> None:
    block = to_block(RESULT)
    facts, title = block.split("\n\n")[:2]
    expected = "Measured: 2026-11-21, commit 0daf8ee, 2 cores. An idle machine. Command: `python -m bench.run`."
    assert " ".join(facts.split()) == expected
    assert title == "**Rates**"
    assert "| request | records/s | p50 ms | calls |\n| --- | --- | --- | --- |\n| produce | 11,298 | 0.5 |  |" in block


def test_page_shows_each_of_its_results_under_its_question() -> None:
    page = to_page("requests", {"stack": RESULT})
    assert page.count("\n## ") == 1
    assert to_block(RESULT) in page
    assert "\n## " not in to_page("costs", {"stack": RESULT})


def test_text_around_the_figures_stays() -> None:
    filled = fill_figures("# Page\n\nBefore.\n\n<!-- figures -->\nold\n<!-- end -->\n\nAfter.\n", load_results())
    assert filled.startswith("# Page\n\nBefore.\n\n<!-- figures -->\n\n| you ask |")
    assert filled.endswith("|\n\n<!-- end -->\n\nAfter.\n")


def test_figures_are_refused_when_a_result_is_missing() -> None:
    with pytest.raises(LookupError, match="stack"):
        fill_figures("<!-- figures -->\n<!-- end -->\n", {})


def test_result_is_refused_when_no_question_has_it() -> None:
    with pytest.raises(LookupError, match="other"):
        stale_pages(load_results() | {"other": RESULT})
