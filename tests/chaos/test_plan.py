"""The plan: all of it follows from the seed, one zone at a time, and every kind has its turn."""

from itertools import pairwise

import pytest

from tests.chaos.plan import Strike, ZoneFault, make_plan

ZONES = ("a", "b", "c")


def test_plan_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert make_plan(7, 120, ZONES) == make_plan(7, 120, ZONES)
    assert make_plan(7, 120, ZONES).strikes != make_plan(8, 120, ZONES).strikes


def test_plan_has_as_many_strikes_as_it_is_told() -> None:
    counts = [len(make_plan(7, 1_000, ZONES, strikes_per_s).strikes) for strikes_per_s in (0.5, 5.0)]
    assert 400 < counts[0] < 600
    assert 4_500 < counts[1] < 5_500


@pytest.mark.parametrize("seed", range(20))
def test_plan_never_breaks_two_zones_at_a_time_nor_anything_after_its_end(seed: int) -> None:
    plan = make_plan(seed, 60, ZONES)
    assert all(before.end_s < after.start_s for before, after in pairwise(plan.outages))
    assert all(outage.start_s < outage.end_s <= 60 for outage in plan.outages)
    assert all(0 < strike.at_s < 60 for strike in plan.strikes)


@pytest.mark.parametrize("seed", range(20))
def test_plan_of_two_minutes_has_every_kind_of_fault(seed: int) -> None:
    plan = make_plan(seed, 120, ZONES)
    assert {outage.fault for outage in plan.outages} == set(ZoneFault)
    assert {planned.strike for planned in plan.strikes} == set(Strike)
