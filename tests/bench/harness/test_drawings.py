from dataclasses import replace
from pathlib import Path

import pytest

from bench.harness.drawings import DRAWN_BY, draw_result, stale_drawings
from bench.pages import PLOTS
from bench.report.result import load_results


def test_committed_plots_are_of_the_committed_results() -> None:
    assert not stale_drawings(PLOTS, load_results()), "run python -m bench.pages"


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN_BY)
def test_plot_is_stale_when_a_figure_has_changed(name: str, tmp_path: Path) -> None:
    results = load_results()
    draw_result(tmp_path, results[name])
    assert name not in stale_drawings(tmp_path, results)
    tables = dict(results[name].tables) | {"another": [{"figure": 1}]}
    assert name in stale_drawings(tmp_path, {name: replace(results[name], tables=tables)})
