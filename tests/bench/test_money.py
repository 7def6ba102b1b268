"""Money in results and pages is what the estimate says now, and the estimate says what a run of the clients costs."""

import re
from pathlib import Path

import pytest

from bench.bill.deployment import billed_profile
from bench.money import queues, real_run
from bench.money.__main__ import MONTHS, priced_tables
from bench.report.result import load_results
from penstock.cost.counted import counted
from penstock.cost.estimate import estimate, priced
from penstock.cost.workload import Workload
from penstock_core.limits import KIB
from penstock_core.log.inline import BOUNDS_OF_PROFILES

CHECKOUT = Path(__file__).parents[2]
TABLES_AGAIN = "run python -m bench.money tables --write, and then python -m bench.pages"
ITEMS = str(BOUNDS_OF_PROFILES["express3"])
RUNS_AGAIN = "run python -m bench.money runs --write, and then python -m bench.pages"
CAPTURE_AGAIN = "run python -m bench.money capture, and then python -m bench.money tables --write"


def test_tables_of_money_are_what_the_estimate_says() -> None:
    assert load_results()["money"].tables == priced_tables(), TABLES_AGAIN


def test_months_of_the_how_to_are_what_the_estimate_says() -> None:
    page = (CHECKOUT / "docs" / "how-to" / "cost.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| \$([\d,]+) \|$", page, re.MULTILINE)
    said = {name: int(usd.replace(",", "")) for name, usd in rows}
    months = {name: round(estimate("express3", workload).usd) for name, workload in MONTHS.items()}
    assert said == months, "docs/how-to/cost.md has other dollars: take those of the estimate, on the right"


def test_estimate_was_within_a_tenth_of_each_run_but_those_known_to_miss() -> None:
    result = load_results()["money_runs"]
    [title, by_line] = result.tables
    rows = {str(row["workload"]): row for row in result.tables[title]}
    assert rows.keys() == real_run.RUNS.keys(), RUNS_AGAIN
    for name, (workload, _, _) in real_run.RUNS.items():
        rate, run = rows[name]["records_per_s"], rows[name]["run_usd"]
        assert isinstance(rate, float | int)
        assert isinstance(run, float | int)
        estimated = real_run.estimated("express3", workload, rate).total()
        assert estimated == pytest.approx(rows[name]["estimate_usd"], rel=0.01), RUNS_AGAIN
        within = real_run.KNOWN_TO_MISS.get(name, real_run.WITHIN)
        assert estimated == pytest.approx(run, rel=within), f"{name}: the estimate plays other clients"
    assert {row["workload"] for row in result.tables[by_line]} == rows.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        Workload(records_per_s=4, groups=1, members=2, producers=2, fetch_interval_ms=1_000, linger_ms=1_000),
        pytest.param(
            Workload(records_per_s=2, groups=0, share_workers=2, producers=2, has_items=False),
            marks=pytest.mark.minutes,  # one and a half
        ),
    ],
    ids=["members", "share workers"],
)
def test_short_run_costs_about_what_the_estimate_says(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one, so chance has its part: bench.money runs has longer ones, within a tenth. Its group is not young."""
    for place in ("penstock_service.groups.heartbeat", "bench.money.real_run"):
        monkeypatch.setattr(f"{place}.YOUNG_GROUP_MS", 5_000)
    records_per_s, month = real_run.run(billed_profile("standard1"), workload, seconds=30, warm_up_s=5)
    estimated = real_run.estimated("standard1", workload, records_per_s)
    assert estimated.total() == pytest.approx(month.total(), rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "segments"), [(20 * KIB, 3), (300 * KIB, 2)])
def test_estimate_of_a_push_to_a_mirror_is_within_a_tenth_of_what_is_captured(size: int, segments: int) -> None:
    """Between the sizes and numbers of requests that were captured: other calls of the same handlers."""
    push, append = queues.count_mirroring(billed_profile("express3"), size, segments)
    counts, moved = counted("express3"), size * segments
    estimated = priced("", counts.mirror_push(moved, segments)), priced("", counts.mirror_append(moved, segments))
    for captured, side in zip((push, append), estimated, strict=True):
        usd = sum(line.usd for line in priced("", captured))
        assert sum(line.usd for line in side) == pytest.approx(usd, rel=real_run.WITHIN), CAPTURE_AGAIN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("heartbeat", queues.count_heartbeat),
        ("acquire", lambda profile: queues.count_acquires(profile, 1)),
        ("arming_acquire", lambda profile: queues.count_arming_acquires(profile, 1)),
        ("delivery", lambda profile: queues.count_deliveries(profile, 1)),
        ("mirror_append_of_item", lambda profile: queues.count_mirroring(profile, 1_000, inline_bytes_max=ITEMS)[1]),
        ("mirror_round_of_many_pushes", lambda profile: queues.count_mirror_round(profile, 6, 6)),
        ("append_as_item", lambda profile: queues.count_items(profile)["append_as_item"]),
    ],
)
def test_counts_of_the_sdk_are_those_that_the_handlers_make_now(name: str, count: object) -> None:
    assert callable(count)
    written = counted("express3").found[name]
    now = count(billed_profile("express3"))
    assert now.keys() == written.keys(), CAPTURE_AGAIN
    for each, value in now.items():
        # Random numbers in an item differ in length, so one write of eight may take a unit more or less.
        assert value == pytest.approx(written[each], rel=0.15), (each, CAPTURE_AGAIN)
