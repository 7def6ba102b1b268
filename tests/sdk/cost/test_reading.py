"""The produce requests that reach a topic by chance, and the fetches of a group's members by their own rhythm."""

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.cost.reading import arrivals, reads_per_s, stream_of
from penstock.cost.workload import TURN_BYTES, Workload
from penstock.wake_ups.rhythm import wake_up_price
from penstock_core.limits import BATCH_BYTES_MAX

ONE = 1  # partition: nothing sleeps alone


def test_lively_member_fetches_five_times_a_second_and_never_sleeps() -> None:
    reads = reads_per_s(Workload(records_per_s=1_000, request_bytes=1_024, partitions=ONE))
    assert reads.found == pytest.approx(4.76, rel=0.01)
    assert (reads.empty, reads.arming) == (0.0, 0.0)
    assert reads.segments == pytest.approx(1_000)


def test_member_of_rare_records_sleeps_before_each() -> None:
    reads = reads_per_s(Workload(records_per_s=0.01))
    assert reads.arming == pytest.approx(reads.found, rel=0.01)
    assert reads.found == pytest.approx(0.01, rel=0.05)
    assert reads.messages == pytest.approx(reads.found, rel=0.01)
    assert reads.empty < 0.002


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 1, 2, 5, 20])
def test_chance_costs_at_most_twice_the_better_way(rate: float) -> None:
    reads, price = reads_per_s(Workload(records_per_s=rate, partitions=ONE)), wake_up_price(ONE)
    own = reads.found + reads.empty + reads.arming * (price - 1)
    assert own <= 2 * min(5.0, rate * price)


def test_fetch_that_is_cut_is_followed_at_once() -> None:
    reads = reads_per_s(Workload(records_per_s=100_000))
    assert reads.found == pytest.approx(100_000 * 1_024 / BATCH_BYTES_MAX)


def test_interval_of_none_asks_by_long_polls() -> None:
    reads = reads_per_s(Workload(records_per_s=1_000, fetch_interval_ms=0))
    assert (reads.found, reads.empty) == (20.0, 0.0)


def test_nothing_comes_and_nothing_is_asked() -> None:
    assert reads_per_s(Workload(records_per_s=0)).fetches == 0.0
    assert reads_per_s(Workload(records_per_s=1, groups=0)).fetches == 0.0


def test_partition_that_a_producer_does_not_stick_to_is_left_out_of_the_fetches() -> None:
    """One producer without keys writes to one of six partitions for 256 KiB."""
    workload = Workload(records_per_s=20, request_bytes=1_024)
    reads = reads_per_s(workload)
    assert reads.asked_found / reads.found < 3
    keyed = reads_per_s(replace(workload, has_keys=True))
    assert keyed.asked_found / keyed.found > 5


def test_each_group_reads_all_and_each_member_its_part() -> None:
    one = reads_per_s(Workload(records_per_s=100, has_keys=True))
    two = reads_per_s(Workload(records_per_s=100, has_keys=True, groups=2))
    assert two.fetches == pytest.approx(2 * one.fetches)
    split = reads_per_s(Workload(records_per_s=100, has_keys=True, members=3))
    assert 2 * one.fetches < split.fetches <= 3.1 * one.fetches
    assert split.asked_found == pytest.approx(one.asked_found, rel=0.1), "each partition is asked for as often"


def test_member_without_a_partition_fetches_nothing() -> None:
    six, twelve = (reads_per_s(Workload(records_per_s=100, has_keys=True, members=count)) for count in (6, 12))
    assert twelve == six


def test_groups_of_unequal_size_are_means_of_both() -> None:
    small, large = (reads_per_s(Workload(records_per_s=60, topics=2, members=count)).fetches for count in (2, 4))
    between = reads_per_s(Workload(records_per_s=60, topics=2, members=3)).fetches
    assert between == pytest.approx((small + large) / 2)


def test_many_members_are_played_as_a_few_of_them() -> None:
    few = reads_per_s(Workload(records_per_s=800, partitions=8, members=8, has_keys=True, producers=100))
    many = reads_per_s(Workload(records_per_s=8_000, partitions=80, members=80, has_keys=True, producers=1_000))
    assert many.fetches == pytest.approx(10 * few.fetches, rel=0.1)


def test_estimate_plays_the_same_chance_each_time() -> None:
    reads_of = Workload(records_per_s=3, members=2)
    assert reads_per_s(reads_of) == reads_per_s(replace(reads_of))


@pytest.mark.parametrize(
    "workload",
    [
        Workload(records_per_s=50, producers=5),
        Workload(records_per_s=50, producers=5, linger_ms=1_000),
        Workload(records_per_s=50, producers=5, topics=3, linger_ms=1_000),
        Workload(records_per_s=5_000, producers=5_000),
        Workload(records_per_s=1_000, request_bytes=64 * 1_024, has_keys=True),
    ],
)
def test_requests_come_at_the_rate_of_the_workload_and_bring_all_records(workload: Workload) -> None:
    stream = stream_of(workload)
    coming = arrivals(stream)
    rate = len(coming) / coming[-1][0] * 1_000
    assert rate == pytest.approx(stream.requests_per_s, rel=0.05)
    assert stream.requests_per_s * stream.records * workload.topics == pytest.approx(workload.records_per_s, rel=0.02)
    assert [at_ms for at_ms, _ in coming] == sorted(at_ms for at_ms, _ in coming)


def test_producer_that_lingers_sends_no_sooner_than_that() -> None:
    coming = arrivals(stream_of(Workload(records_per_s=100, linger_ms=500)))
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(coming)]
    assert min(gaps) >= 500


def test_records_without_keys_stick_to_a_partition_for_a_batch() -> None:
    coming = arrivals(stream_of(Workload(records_per_s=1, record_bytes=TURN_BYTES // 10, request_bytes=1)))
    changes = sum(earlier[1] != later[1] for earlier, later in pairwise(coming))
    assert changes == pytest.approx(len(coming) / 10 * 5 / 6, rel=0.2), "one in six finds the same partition again"


def test_records_with_keys_go_to_as_many_partitions_as_chance_hits() -> None:
    stream = stream_of(Workload(records_per_s=100, request_bytes=10 * 1_024, has_keys=True))
    coming = arrivals(stream)
    mean = sum(len(partitions) for _, partitions in coming) / len(coming)
    assert mean == pytest.approx(6 * (1 - (5 / 6) ** 10), rel=0.03)


def test_share_of_a_stream_has_that_share_of_its_records() -> None:
    for has_keys in (True, False):
        stream = stream_of(Workload(records_per_s=1_000, request_bytes=16 * 1_024, has_keys=has_keys))
        part = stream.scaled(0.5, 3)
        assert part.requests_per_s * part.records == pytest.approx(stream.requests_per_s * stream.records / 2)
        assert all(partitions <= {0, 1, 2} for _, partitions in arrivals(part, 100))
