"""The committed pages of figures, and the blocks that a program fills in them."""

from pathlib import Path

import pytest

from bench.pages import find_pages, stale_pages
from bench.report.figures import FIGURES, FIGURES_MAX
from bench.report.result import RESULTS_FOLDER, Machine, Result, load_results, parse_result

PAGE = Path("page.md")
RESULT = Result(
    name="run",
    measured_at="2026-11-21",
    commit="0daf8ee",
    machine=Machine(cores=2),
    command="python -m bench.run",
    parameters={"rounds": 3},
    conditions=["An idle machine."],
    tables={"rates": [{"request": "produce", "records_per_s": 11_298, "p50_ms": 0.5, "calls": None}]},
)


def test_committed_pages_equal_generated_ones() -> None:
    stale = stale_pages(find_pages(), load_results())
    assert not stale, "run python -m bench.pages"


def test_performance_page_has_ten_figures_at_most() -> None:
    assert len(FIGURES) <= FIGURES_MAX
    assert {f"{figure.page}.md" for figure in FIGURES} <= {path.name for path in find_pages()}


@pytest.mark.parametrize("path", sorted(RESULTS_FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_result_file_is_what_its_result_writes(path: Path) -> None:
    result = parse_result(path.read_text())
    assert result.name == path.stem
    assert result.to_json() == path.read_text()


def test_block_shows_conditions_and_tables_and_leaves_the_text_around_it() -> None:
    page = "# Run\n\nBefore.\n\n<!-- result run -->\nold\n<!-- end -->\n\nAfter.\n"
    filled = stale_pages({PAGE: page}, {"run": RESULT})[PAGE]
    assert filled.startswith("# Run\n\nBefore.\n\n<!-- result run -->\n")
    assert filled.endswith("<!-- end -->\n\nAfter.\n")
    assert "- Measured: 2026-11-21, commit 0daf8ee, 2 cores.\n- An idle machine.\n- Parameters: rounds 3." in filled
    assert (
        "| request | records/s | p50 ms | calls |\n| --- | --- | --- | --- |\n| produce | 11,298 | 0.5 |  |" in filled
    )
    assert stale_pages({PAGE: filled}, {"run": RESULT}) == {}


def test_page_is_refused_when_its_result_does_not_exist() -> None:
    with pytest.raises(LookupError, match="other"):
        stale_pages({PAGE: "<!-- result other -->\n<!-- end -->\n"}, {})


@pytest.mark.parametrize("pages", [[""], ["<!-- result run -->\n<!-- end -->\n"] * 2])
def test_result_is_refused_when_it_stands_on_no_page_or_on_two(pages: list[str]) -> None:
    with pytest.raises(LookupError, match="run"):
        stale_pages({Path(f"{number}.md"): page for number, page in enumerate(pages)}, {"run": RESULT})
