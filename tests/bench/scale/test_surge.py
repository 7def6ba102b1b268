"""The model of a surge, and the product of AWS's agreements."""

from dataclasses import replace

import pytest

from bench.scale.scenario import DEFAULT
from bench.scale.surge import SURGES, Surge, availability_rows, play

READY = Surge(name="all is ready", table_units=20_000, ready=400)


def test_stage_that_is_ready_refuses_nothing() -> None:
    course = play(READY, seconds=20)
    assert (dict(course.refused_s), course.most_waiting) == ({}, 0)


def test_table_that_is_new_refuses_until_its_peak_has_doubled_twice() -> None:
    course = play(replace(READY, table_units=4_000, limits=replace(DEFAULT, api_requests_per_s=1e6, api_burst=1e6)))
    assert course.refused_s["DynamoDB"] >= 3_600


def test_cold_functions_refuse_for_the_time_of_a_cold_start() -> None:
    course = play(replace(READY, ready=1), seconds=30)
    assert 0.3 < course.refused_s["Lambda"] < 15
    assert course.instances == 1_000


@pytest.mark.parametrize(("promise", "percent"), [("append, acks=quorum", 99.89), ("append, acks=all", 99.591)])
def test_agreements_multiply(promise: str, percent: float) -> None:
    [row] = [each for each in availability_rows() if (each["promise"], each["transport"]) == (promise, "http")]
    assert row["express3_percent"] == percent
    assert row["express3_minutes_per_month"] == pytest.approx((1 - percent / 100) * 43_800, abs=1)


def test_cases_have_names_of_their_own() -> None:
    assert len({each.name for each in SURGES}) == len(SURGES)
