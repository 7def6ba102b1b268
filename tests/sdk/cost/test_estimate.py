"""The month of a workload, the levers that lower it, and the other systems by their own worked sums."""

from dataclasses import replace
from typing import Any

import pytest

from bench.report.result import load_results
from penstock.cost.counted import PROFILES, counted
from penstock.cost.estimate import Estimate, estimate, priced
from penstock.cost.levers import levers
from penstock.cost.others import NAMES, estimates, kinesis, kinesis_advantage, msk_express, sqs
from penstock.cost.workload import HOURS_PER_MONTH, SECONDS_PER_MONTH, Workload
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB

TYPICAL = Workload(records_per_s=1_000, record_bytes=KIB, retention_days=1, request_bytes=64 * KIB)
MILLION = 1_000_000


@pytest.mark.parametrize("profile", PROFILES)
def test_append_and_fetch_cost_what_the_bill_says(profile: str) -> None:
    """Two captures of the same requests by two programs: the bill's records are of 1,000 bytes, these of 1,024."""
    bill = load_results()["bill"]
    for counts, operation in (
        (counted(profile).append(KIB), "append of 1 KB"),
        (counted(profile).fetch(KIB), "fetch of 1 KB"),
    ):
        usd = sum(line.usd for line in priced("", counts)) * MILLION
        assert usd == pytest.approx(bill.find(f"{profile}, a million", {"operation": operation}, "sum_usd"), rel=0.02)


def test_idle_month_has_the_floor_and_members_that_wait() -> None:
    month = estimate("express3", replace(TYPICAL, records_per_s=0))
    assert {line.part for line in month.lines} == {"idle"}
    assert month.usd == pytest.approx(1.90 + 0.0138 * HOURS_PER_MONTH / 24, rel=0.05)


def test_key_of_yours_costs_its_month_and_a_request_in_five_minutes_for_each_function_and_store() -> None:
    quiet = replace(TYPICAL, records_per_s=0, consumers=0)
    added = estimate("express3", replace(quiet, kms_key=True)).usd - estimate("express3", quiet).usd
    assert added == pytest.approx(1.00 + 13 * 7 * 8_760 * 0.03 / 10_000)
    busy = estimate("express3", replace(TYPICAL, kms_key=True)).usd - estimate("express3", TYPICAL).usd
    assert added < busy < 2 * added, "instances of a busy stage ask, too"


def test_lines_are_sorted_and_sum_up() -> None:
    month = estimate("express3", TYPICAL)
    assert [line.usd for line in month.lines] == sorted((line.usd for line in month.lines), reverse=True)
    assert month.usd == pytest.approx(sum(line.usd for line in month.lines))


def test_each_consumer_adds_as_much_as_the_one_before() -> None:
    months = [estimate("express3", replace(TYPICAL, consumers=count)).usd for count in (1, 2, 3)]
    assert months[2] - months[1] == pytest.approx(months[1] - months[0], rel=0.01)


def test_waiting_consumer_writes_to_the_heads_of_the_last_append_alone() -> None:
    one, six = (counted("express3").arming_fetch(6, armed) for armed in (1, 6))
    assert six["WRITE_UNITS"] == pytest.approx(6 * one["WRITE_UNITS"])
    assert one["READ_UNITS"] == six["READ_UNITS"]


def test_storage_grows_by_the_archive_price_once_bytes_left_the_zones() -> None:
    months = [estimate("express3", replace(TYPICAL, retention_days=days)).usd for days in (10, 20)]
    added_gb = TYPICAL.bytes_per_s * 10 * 86_400 / 1e9
    assert months[1] - months[0] == pytest.approx(added_gb * 0.023, rel=0.02)


def test_largest_lever_of_small_requests_is_to_make_them_larger() -> None:
    found = levers("express3", Workload(records_per_s=1_000, record_bytes=KIB, producers=1_000))
    assert "linger_ms" in found[0].change or "producers" in found[0].change
    assert [each.saves_usd for each in found] == sorted((each.saves_usd for each in found), reverse=True)


def test_lever_saves_what_the_changed_workload_costs_less() -> None:
    [retention] = [
        each for each in levers("standard1", replace(TYPICAL, retention_days=30)) if "retention" in each.change
    ]
    months = [estimate("standard1", replace(TYPICAL, retention_days=days)).usd for days in (30, 1)]
    assert retention.saves_usd == pytest.approx(months[0] - months[1])


def test_kinesis_counts_whole_kb_and_each_reader() -> None:
    month = _month(kinesis(replace(TYPICAL, record_bytes=100, consumers=2)))
    gb = 1_000 * KIB * SECONDS_PER_MONTH / 1e9
    assert month.usd == pytest.approx(gb * (0.08 + 2 * 0.04) + 0.04 * HOURS_PER_MONTH)


def test_kinesis_advantage_costs_its_minimum_while_it_is_idle() -> None:
    month = _month(kinesis_advantage(replace(TYPICAL, records_per_s=0)))
    assert month.usd == pytest.approx(100 * HOURS_PER_MONTH / 24)


def test_sqs_counts_64_kib_of_ten_messages() -> None:
    small = _month(sqs(replace(TYPICAL, record_bytes=KIB)))
    assert small.usd == pytest.approx(1_000 * SECONDS_PER_MONTH / 10 * 3 * 0.40 / MILLION)
    large = _month(sqs(replace(TYPICAL, record_bytes=MIB, records_per_s=1, request_bytes=MIB)))
    assert large.usd == pytest.approx(SECONDS_PER_MONTH * (16 + 16 + 1) * 0.40 / MILLION)


def test_sqs_says_why_it_does_not_take_a_workload() -> None:
    assert "1 MiB" in str(sqs(replace(TYPICAL, record_bytes=2 * MIB)))
    assert "14 days" in str(sqs(replace(TYPICAL, retention_days=30)))


def test_express_brokers_come_in_threes_and_grow_with_the_readers() -> None:
    brokers = [
        sum(
            line.quantity
            for line in _month(msk_express(replace(TYPICAL, records_per_s=rate, consumers=readers))).lines
            if "brokers" in line.what
        )
        / HOURS_PER_MONTH
        for rate, readers in ((1, 1), (40_000, 1), (60_000, 1), (40_000, 10))
    ]
    assert brokers == pytest.approx([3, 3, 6, 15])


def test_every_system_has_its_name_at_its_place() -> None:
    assert [_month(each).system for each in estimates(TYPICAL)] == list(NAMES)


def _month(found: Estimate | str) -> Estimate:
    assert isinstance(found, Estimate), found
    return found


def test_slow_producer_sends_one_record_a_request() -> None:
    assert Workload(records_per_s=1).records_per_request == 1


def test_busy_producer_gathers_records_while_it_waits_for_answers() -> None:
    one_partition = Workload(records_per_s=10_000, partitions=1)
    assert one_partition.records_per_request == 500  # of 50 ms
    assert replace(one_partition, partitions=6, has_keys=True).records_per_request == 100  # five are under way
    assert replace(one_partition, linger_ms=100).records_per_request == 1_000
    assert replace(one_partition, producers=100).records_per_request == 5


def test_records_without_keys_stick_to_a_partition_for_a_batch() -> None:
    slow = Workload(records_per_s=200, partitions=6)
    assert slow.records_per_request == 10  # of 50 ms, in one request after the other
    assert replace(slow, has_keys=True).records_per_request == 2
    assert replace(slow, records_per_s=10_000).records_per_request == pytest.approx(256)  # they move on when it is full


def test_request_has_at_most_what_the_service_takes() -> None:
    assert Workload(records_per_s=1e6, linger_ms=1_000).bytes_per_request == BATCH_BYTES_MAX


def test_requests_carry_all_records() -> None:
    workload = Workload(records_per_s=1_000, request_bytes=64 * KIB)
    assert workload.requests_per_s * workload.records_per_request == pytest.approx(1_000)


def test_keys_spread_a_request_over_partitions() -> None:
    assert Workload(records_per_s=1_000, request_bytes=64 * KIB).partitions_per_request == 1
    keyed = Workload(records_per_s=1_000, request_bytes=64 * KIB, has_keys=True)
    assert keyed.partitions_per_request == pytest.approx(6, abs=0.001)
    assert replace(keyed, request_bytes=KIB).partitions_per_request == pytest.approx(1)


@pytest.mark.parametrize(
    "change", [{"records_per_s": -1}, {"record_bytes": 0}, {"partitions": 0}, {"request_bytes": 10**9}]
)
def test_number_without_sense_is_refused_with_its_bounds(change: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="use a number from"):
        replace(Workload(records_per_s=1), **change)
