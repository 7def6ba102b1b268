import sys
from pathlib import Path

import pytest

from penstock.cost.plot import curves, write_plot
from penstock.cost.workload import Workload
from penstock_core.errors import PenstockError

WORKLOAD = Workload(records_per_s=100)


def test_plot_has_a_curve_for_each_system_around_the_rate() -> None:
    found = curves(WORKLOAD)
    assert len(found) == 10
    assert {len(points) for points in found.values()} == {17}
    assert found["Penstock express3"][8][0] == pytest.approx(100)


@pytest.mark.slow
def test_plot_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    write_plot(tmp_path / "month.svg", WORKLOAD)
    assert "<svg" in (tmp_path / "month.svg").read_text()


def test_format_that_nothing_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be written"):
        write_plot(tmp_path / "month.doc", WORKLOAD)


def test_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PenstockError, match=r"penstock\[plot\]"):
        write_plot(tmp_path / "month.png", WORKLOAD)
