"""README and CONTRIBUTING say what is so: the figures are those of the docs, and the files that are named exist."""

import re

import pytest

from bench.report.result import load_results
from localstack.places import CHECKOUT
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT

README = (CHECKOUT / "README.md").read_text()
FIGURES = "".join(
    page.read_text() for page in (CHECKOUT / "docs" / "performance.md", CHECKOUT / "docs" / "performance" / "costs.md")
)


def test_readme_says_under_its_title_that_penstock_has_not_run_on_aws() -> None:
    assert README.splitlines()[2].startswith("> **Penstock has not run on AWS yet.**")


def test_readme_shows_the_latency_that_was_measured() -> None:
    [latency] = re.findall(r"\| Latency of one write \| ([^|(]+) \(1\)", README)
    assert latency in FIGURES


def test_readme_shows_the_cost_that_was_modelled() -> None:
    [cost] = re.findall(r"\| Writing 1 GiB costs \| ([^|(]+) \(2\)", README)
    for dollars, size in re.findall(r"\$(\S+) (?:in requests )?of ([\w ]+?KiB|1 MiB)", cost):
        assert re.search(rf"^\| {size} \|.*\| {re.escape(dollars)} \|$", FIGURES, re.MULTILINE), (dollars, size)
    assert cost.count("$") == 3


def test_readme_shows_the_idle_costs_of_the_bill() -> None:
    [idle] = re.findall(r"\| Idle costs \| ([^|(]+) \(4\)", README)
    bill = load_results()["bill"]
    stage, without_alarms = (
        bill.find("an unused stage, a month", {"stage": "prod"}, column) for column in ("sum_usd", "without_alarms_usd")
    )
    waiting, polling = (
        bill.find("an idle consumer", {"consumer of 6 partitions": how}, "usd_per_day")
        for how in ("waits for wake-ups", "polls")
    )
    default, long = (
        bill.find("an idle member of a group", {"session_timeout_s": session_s}, "usd_per_day")
        for session_s in (SESSION_TIMEOUT_MS_DEFAULT // 1_000, 180)
    )
    assert f"costs ${default} a day with the default session, and ${long} with one of\n3 minutes" in README
    assert [float(each) for each in re.findall(r"\$([\d.]+)", idle)] == [stage, without_alarms, waiting, polling]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "SECURITY.md", "CHANGELOG.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:\.?[a-z_]+/)+[\w.-]*)`", (CHECKOUT / page).read_text())
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_every_example_has_a_line_in_the_readme() -> None:
    examples = {path.name for path in (CHECKOUT / "examples").glob("*.py")}
    assert {name for name in examples if f"[{name}](examples/{name}): " in README} == examples
