"""The price of a function over Lambda's memories, from a measured CPU and counted waits."""

import pytest

from bench.memory import CORE_MB, MEMORIES_MB, choice_of, function_ms, memory_rows
from bench.report.result import load_results
from penstock_cdk.settings import FUNCTION_SIZES

WAITING = {"cpu_ms": 0.5, "waits": {"target": 1, "get_item": 10}, "peak_mib": 60}
COMPUTING = {"cpu_ms": 40.0, "waits": {"get_object": 1}, "peak_mib": 250}


def test_time_is_the_waits_and_the_cpu_over_the_share_of_a_core() -> None:
    assert function_ms(COMPUTING, CORE_MB) == 45
    assert function_ms(COMPUTING, CORE_MB // 2) == pytest.approx(85, abs=0.1)
    assert function_ms(COMPUTING, 2 * CORE_MB) == 45, "a second core does not help"


def test_function_that_waits_takes_the_least_memory_and_one_that_computes_more() -> None:
    assert choice_of([WAITING]) == MEMORIES_MB[0]
    assert choice_of([COMPUTING]) >= 1_024


def test_a_wait_costs_by_memory_and_cpu_does_not() -> None:
    waiting, computing = memory_rows("deliver", [WAITING]), memory_rows("fetch", [COMPUTING])
    assert waiting[4]["usd_per_million"] / waiting[2]["usd_per_million"] == pytest.approx(2, rel=0.05)
    assert computing[4]["usd_per_million"] / computing[2]["usd_per_million"] == pytest.approx(1, rel=0.1)


def test_memory_that_the_process_does_not_fit_in_is_told() -> None:
    fits = {row["memory_mb"]: row["fits"] for row in memory_rows("fetch", [COMPUTING])}
    assert (fits[256], fits[384]) == ("no", "yes")


def test_settings_are_within_a_step_of_the_recorded_choice() -> None:
    rows = load_results()["memory"].tables["memories"]
    for row in rows:
        if row["choice"]:
            chosen = MEMORIES_MB.index(int(str(row["memory_mb"])))
            now_mb = FUNCTION_SIZES[str(row["function"])].memory_mb
            # Deliveries decode whole slices, so they keep a step more than one of small records needs.
            assert abs(MEMORIES_MB.index(now_mb) - chosen) <= (2 if row["function"] == "deliver" else 1), row
