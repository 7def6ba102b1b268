import pytest

from bench.hot_partition.simulated import append_units, cuts, scenario_of, simulate


def test_append_costs_more_units_when_more_producers_share_a_head() -> None:
    units = [append_units(producers) for producers in (1, 20, 60, 100, 500, 1_000)]
    assert units[0] == units[1] < units[2] < units[3] < units[4] == units[5]


def test_one_producer_sends_a_record_at_a_time_when_nothing_lingers() -> None:
    row = simulate(scenario_of(1, 0, 5.0, 20.0, is_paced=True), 1, 0.0)
    assert row["refused_percent"] == 0.0
    assert row["taken_percent"] == pytest.approx(100, abs=2)
    assert row["appends_per_s"] == pytest.approx(5, abs=2)


def test_same_seed_gives_the_same_row() -> None:
    case = scenario_of(10, 5, 10.0, 2.0, is_paced=True)
    assert simulate(case, 3, 0.5) == simulate(case, 3, 0.5)


@pytest.mark.slow
def test_rest_makes_refusals_rarer_when_a_partition_is_hot() -> None:
    before, with_rest = (simulate(scenario_of(150, 0, 5.0, 5.0, is_paced=each), 1, 5.0) for each in (False, True))
    assert float(str(before["refused_percent"])) > 2 * float(str(with_rest["refused_percent"]))


def test_cuts_are_p50_and_p99() -> None:
    assert cuts([float(each) for each in range(1, 2_001)]) == "1,000, 1,980"
