"""The report in Chromium, if it is installed: the browser draws the plots, and the page's own policy refuses
nothing."""

import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from penstock_spark.analysis.measure import HOUR_MS
from penstock_spark.analysis.report import render
from penstock_spark.analysis.summarize import summarize
from penstock_spark.result_store import FolderResultStore
from tests.glue_jobs.hour_files import lag_row, row, write_lag_rows, write_rows
from tests.support.child_process import child_process

FIRST_MS = 500_000 * HOUR_MS
FIRST_COLOR = {"light": (0x23, 0x68, 0xB5), "dark": (0x6A, 0xA6, 0xEE)}  # the first colour of plots in the style sheet
PREFERRED = {"dark": 0, "light": 1}  # Chromium's numbers for the schemes
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture
def document(tmp_path: Path) -> str:
    """A report with every kind of plot."""
    results = FolderResultStore(tmp_path / "results")
    hours = range(FIRST_MS, FIRST_MS + 5 * HOUR_MS, HOUR_MS)
    keys = [(b"whale", 900)]
    write_rows(results, [row("orders", p, h, records=1_000, partitions=3, keys=keys) for h in hours for p in range(3)])
    lags = [write_lag_rows(results, str(each), [lag_row("g", "orders", 0, FIRST_MS + each)]) for each in (0, 1)]
    summary = summarize(
        results, from_ms=hours[0], to_ms=hours[-1], topics={"orders": 3}, only=(), lags=lags[-1], runs_max=10
    )
    return render(summary, title="Report", run_ms=hours[-1], place="s3://results/reports")


def shown(document: str, folder: Path, scheme: str) -> tuple[str, int]:
    """The browser's complaints, and the number of pixels in the first colour of the plots."""
    assert CHROMIUM is not None
    page, picture = folder / "report.html", folder / "report.png"
    page.write_text(document)
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1000,3000",
        f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={PREFERRED[scheme]}",
        f"--screenshot={picture}",
    )  # fmt: skip
    with child_process(
        [CHROMIUM, *flags, page.as_uri()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as browser:
        _, said = browser.communicate()
    assert browser.returncode == 0, said
    dots = np.round(matplotlib.image.imread(picture)[:, :, :3] * 255)
    complaints = [line for line in said.splitlines() if "CONSOLE" in line]
    return "\n".join(complaints), int((dots == FIRST_COLOR[scheme]).all(axis=2).sum())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plots_are_drawn_in_the_reader_s_colours_and_nothing_is_refused(
    document: str, scheme: str, tmp_path: Path
) -> None:
    complaints, dots = shown(document, tmp_path, scheme)
    assert not complaints
    assert dots > 1_000


def test_browser_refuses_content_from_elsewhere(document: str, tmp_path: Path) -> None:
    hostile = document.replace(
        "</main>", '<img src="http://127.0.0.1:9/x.png"><script>document.title = 1</script></main>'
    )
    complaints, _ = shown(hostile, tmp_path, "light")
    assert "violates the following Content Security Policy directive" in complaints
    assert complaints.count("CONSOLE") == 2
