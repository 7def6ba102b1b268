"""The acquires of share workers, by their own rhythm."""

import pytest

from penstock.cost.working import acquires_per_s
from penstock.cost.workload import Workload


def test_worker_of_rare_records_is_woken_for_each_and_acquires_once_more_to_accept() -> None:
    acquires = acquires_per_s(Workload(records_per_s=0.01, share_workers=1))
    assert acquires.found == pytest.approx(0.01, rel=0.05)
    assert acquires.messages == pytest.approx(acquires.found, rel=0.01)
    assert acquires.arming + acquires.empty == pytest.approx(acquires.found, rel=0.05)


def test_all_workers_that_sleep_are_woken_and_one_gets_the_record() -> None:
    one, ten = (acquires_per_s(Workload(records_per_s=0.001, share_workers=count)) for count in (1, 10))
    assert ten.found == pytest.approx(one.found)
    assert ten.arming == pytest.approx(10 * one.arming, rel=0.1)
    assert ten.armed == pytest.approx(one.armed, rel=0.1), "the head is armed still for the others"


def test_wake_ups_that_were_none_are_followed_by_longer_and_longer_waits() -> None:
    rare, lively = (acquires_per_s(Workload(records_per_s=rate, share_workers=20)) for rate in (0.001, 1.0))
    assert rare.arming / rare.found > 15
    assert lively.arming / lively.found < 5


def test_busy_workers_find_the_records_of_many_requests() -> None:
    acquires = acquires_per_s(Workload(records_per_s=1_000, producers=100, share_workers=2))
    assert acquires.segments > 10 * acquires.found
    assert acquires.found <= 2 * 20.01, "each acquires as soon as it has an answer"
    assert acquires.arming == pytest.approx(0, abs=0.5)


def test_records_are_found_whatever_the_number_of_workers() -> None:
    for workers in (1, 7, 64, 200):
        workload = Workload(records_per_s=20, producers=20, share_workers=workers)
        acquires = acquires_per_s(workload)
        assert acquires.segments == pytest.approx(workload.requests_per_s, rel=0.1), workers


def test_nothing_comes_or_nobody_works() -> None:
    assert acquires_per_s(Workload(records_per_s=0, share_workers=3)).found == 0
    assert acquires_per_s(Workload(records_per_s=3)).found == 0
