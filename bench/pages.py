"""Fill docs/performance.md and docs/performance/ with the figures of bench/results/.

Run it after a bench has written its result (`python -m bench.stack --write`). Each result stands on one page, in a
block `<!-- result NAME -->`. Some results have a plot, too. `--check` writes nothing, and fails if a page or a plot is
out of date.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from bench.harness.drawings import draw_result, drawing_path, stale_drawings
from bench.report.blocks import fill_blocks, shown_results
from bench.report.figures import to_figures
from bench.report.result import Result, load_results

DOCS = Path(__file__).parents[1] / "docs"
PLOTS = DOCS / "performance"


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Fail if a page is out of date, and change nothing.")
def main(check: bool) -> None:
    try:
        stale = stale_pages(find_pages(), load_results())
    except LookupError as error:
        raise click.ClickException(str(error)) from error
    for path, page in stale.items():
        if not check:
            path.write_text(page)
        click.echo(f"{path.relative_to(DOCS.parent)}: {'out of date' if check else 'written'}")
    results = load_results()
    drawings = stale_drawings(PLOTS, results)
    for name in drawings:
        path = drawing_path(PLOTS, name) if check else draw_result(PLOTS, results[name])
        click.echo(f"{path.relative_to(DOCS.parent)}: {'out of date' if check else 'written'}")
    if check and (stale or drawings):
        raise click.ClickException("run python -m bench.pages")


def find_pages() -> dict[Path, str]:
    """The text of docs/performance.md and of each page in docs/performance/."""
    paths = [DOCS / "performance.md", *sorted((DOCS / "performance").glob("*.md"))]
    return {path: path.read_text() for path in paths}


def stale_pages(pages: Mapping[Path, str], results: Mapping[str, Result]) -> dict[Path, str]:
    """The new text of each page that is out of date.

    Raises LookupError if a page shows a result that does not exist, or if a result stands on no page or on two.
    """
    shown = Counter(name for page in pages.values() for name in shown_results(page))
    wrong = sorted(name for name in results if shown[name] != 1)
    if wrong:
        raise LookupError(f"each result stands on one page of docs/performance/, but {', '.join(wrong)} does not")
    filled = {path: fill_blocks(page, results, lambda: to_figures(results)) for path, page in pages.items()}
    return {path: page for path, page in filled.items() if page != pages[path]}


if __name__ == "__main__":
    main()
