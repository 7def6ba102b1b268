"""The month of a workload, the levers that lower it, and the other systems by their own worked sums."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.report.result import load_results
from penstock.cost.counted import PROFILES, counted
from penstock.cost.estimate import Estimate, estimate, monthly, priced
from penstock.cost.levers import levers, within_latency
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
    bill = load_results()["bill"]
    stage = bill.find("an unused stage, a month", {"stage": "prod"}, "sum_usd")
    assert isinstance(stage, float)
    member = priced("", counted("express3", "lambda").idle_member_hour())
    assert month.usd == pytest.approx(stage + sum(line.usd for line in member) * HOURS_PER_MONTH)


def test_key_of_yours_costs_its_month_and_a_request_in_five_minutes_for_each_function_and_store() -> None:
    quiet = replace(TYPICAL, records_per_s=0, groups=0)
    added = estimate("express3", replace(quiet, kms_key=True)).usd - estimate("express3", quiet).usd
    assert added == pytest.approx(1.00 + 13 * 7 * 8_760 * 0.03 / 10_000)
    busy = estimate("express3", replace(TYPICAL, kms_key=True)).usd - estimate("express3", TYPICAL).usd
    assert added < busy < 2 * added, "instances of a busy stage ask, too"


@pytest.mark.parametrize("profile", ["express3", "standard1"])
def test_compacted_topics_cost_a_share_of_their_appends_up_to_the_bound_of_a_day(profile: str) -> None:
    def usd_of(rate: float, request_bytes: int = 64 * KIB) -> float:
        month = replace(TYPICAL, records_per_s=rate, request_bytes=request_bytes, is_compacted=True)
        return sum(line.usd for line in estimate(profile, month).lines if line.part == "clean")

    assert all(line.part != "clean" for line in estimate(profile, TYPICAL).lines)
    assert usd_of(20) == pytest.approx(2 * usd_of(10))
    assert usd_of(1_000_000) == usd_of(100_000), "the stage cleans no more a day"
    logs_gib = 10 * KIB * HOURS_PER_MONTH * 3_600 * 2 / 1024**3
    assert 0.003 < usd_of(10) / logs_gib < 0.011
    small = replace(TYPICAL, records_per_s=10, request_bytes=KIB)
    assert usd_of(10, KIB) < estimate(profile, small).usd * 0.3


def test_lines_are_sorted_and_sum_up() -> None:
    month = estimate("express3", TYPICAL)
    assert [line.usd for line in month.lines] == sorted((line.usd for line in month.lines), reverse=True)
    assert month.usd == pytest.approx(sum(line.usd for line in month.lines))


def test_each_group_adds_as_much_as_the_one_before() -> None:
    months = [estimate("express3", replace(TYPICAL, groups=count)).usd for count in (1, 2, 3)]
    assert months[2] - months[1] == pytest.approx(months[1] - months[0], rel=0.02)


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
    month = _month(kinesis(replace(TYPICAL, record_bytes=100, groups=2)))
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
            for line in _month(msk_express(replace(TYPICAL, records_per_s=rate, groups=readers))).lines
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
    assert Workload(records_per_s=1).records_per_request == pytest.approx(1, rel=0.01)


def test_request_leaves_when_its_first_record_has_lingered() -> None:
    """The first record, and those of a second after it."""
    assert Workload(records_per_s=10, linger_ms=1_000).records_per_request == pytest.approx(11)
    assert Workload(records_per_s=50, producers=5, linger_ms=1_000).records_per_request == pytest.approx(11)


def test_busy_producer_gathers_records_while_it_waits_for_answers() -> None:
    one_partition = Workload(records_per_s=10_000, partitions=1)
    assert one_partition.records_per_request == pytest.approx(500)  # of 50 ms
    keyed = replace(one_partition, partitions=6, has_keys=True)
    assert keyed.records_per_request == pytest.approx(100)  # five are under way
    assert replace(one_partition, linger_ms=100).records_per_request == pytest.approx(1_001)
    assert replace(one_partition, producers=100).records_per_request == pytest.approx(5, rel=0.01)


def test_records_without_keys_stick_to_a_partition_for_a_batch() -> None:
    slow = Workload(records_per_s=200, partitions=6)
    assert slow.records_per_request == pytest.approx(10, rel=0.01)  # of 50 ms, in one request after the other
    assert replace(slow, has_keys=True).records_per_request == pytest.approx(2.37, rel=0.01)
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


def test_request_of_a_producer_goes_to_many_topics() -> None:
    alone = Workload(records_per_s=1, topics=3)
    assert alone.partitions_per_request == pytest.approx(1, rel=0.01)
    assert replace(alone, records_per_s=10, linger_ms=1_000).partitions_per_request == pytest.approx(2.97, rel=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"records_per_s": -1}, r"--rate is -1: use a number from 0 to 1,000,000,000 records a second"),
        ({"records_per_s": float("nan")}, r"--rate is nan: use a number from"),
        ({"record_bytes": 0}, r"--size is 0: use a number from 1"),
        ({"topics": 0}, r"--topics is 0"),
        ({"partitions": 0}, r"--partitions is 0: use a number from 1 to 10,000"),
        ({"groups": -2}, r"--groups is -2"),
        ({"topics": 3, "members": 2}, r"--members is 2: use one for each of the 3 groups at least"),
        ({"groups": 0, "members": 2}, r"--members is 2: there is no group"),
        (
            {"topics": 3, "share_workers": 2},
            r"--share-workers is 2: use one for the share group of each of the 3",
        ),
        ({"subscriptions": -1}, r"--subscriptions is -1"),
        ({"mirrors": -1}, r"--mirrors is -1"),
        ({"hours": 0}, r"--hours is 0: use a number from 0.1 to 24"),
        ({"worker_hours": 25}, r"--worker-hours is 25"),
        ({"days": 8}, r"--days is 8: use a number from 0.1 to 7"),
        ({"retention_days": -1}, r"--retention is -1: use a number from 0 to 3,650 days"),
        ({"producers": 0}, r"--producers is 0"),
        ({"linger_ms": -1}, r"--linger is -1: use a number from 0 to 600,000 ms"),
        ({"fetch_interval_ms": -3}, r"--fetch-interval is -3: use a number from 0 to 60,000 ms"),
        ({"request_bytes": 10**9}, r"--request is 1,000,000,000: use a number from 1"),
    ],
)
def test_number_without_sense_is_refused_with_its_option_and_its_bounds(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        replace(Workload(records_per_s=1), **change)


def test_hours_and_days_scale_what_records_cost_and_no_idle_hour() -> None:
    always = replace(TYPICAL, groups=0)
    working = replace(always, hours=8, days=5)
    floor = estimate("express3", replace(always, records_per_s=0)).usd
    share = 8 / 24 * 5 / 7
    months = [estimate("express3", each).usd - floor for each in (working, always)]
    assert months[0] == pytest.approx(share * months[1])
    assert working.records_per_month == pytest.approx(share * always.records_per_month)


def test_readers_that_stop_by_night_pay_for_no_idle_hour() -> None:
    by_day = replace(TYPICAL, hours=10, members=4)
    stopping = replace(by_day, worker_hours=10)
    counts = counted("express3", "lambda")
    one, another = (
        sum(line.usd for line in priced("", each))
        for each in (counts.idle_member_hour(), counts.idle_hour_of_another())
    )
    saved = estimate("express3", by_day).usd - estimate("express3", stopping).usd
    assert saved == pytest.approx((one + 3 * another) * HOURS_PER_MONTH * 14 / 24)


def test_readers_that_run_for_fewer_hours_than_records_come_read_the_rest_in_full_fetches() -> None:
    """They read all bytes all the same."""
    always, nightly = (replace(TYPICAL, worker_hours=hours) for hours in (24, 1))
    lines = [
        {line.what: line.quantity for line in estimate("express3", each).lines if line.part == "consume"}
        for each in (always, nightly)
    ]
    assert lines[1]["S3 Express bytes out"] == pytest.approx(lines[0]["S3 Express bytes out"], rel=0.05)
    assert lines[1]["Lambda requests"] < lines[0]["Lambda requests"] / 10


def test_small_requests_are_items_where_the_stage_lets_them() -> None:
    small = Workload(records_per_s=50, producers=50, has_items=True)
    whats = {line.what for line in estimate("express3", small).lines}
    assert not {each for each in whats if each.startswith("S3 Express p")}
    assert "DynamoDB GB-months" in whats
    parts = {line.part for line in estimate("express3", small).lines}
    assert "move to the archive" not in parts
    for zonal in (replace(small, record_bytes=4 * KIB), replace(small, retention_days=22)):
        assert estimate("express3", zonal).usd == estimate("express3", replace(zonal, has_items=False)).usd


@pytest.mark.parametrize("change", [{"share_workers": 3}, {"subscriptions": 2}, {"members": 6}])
def test_each_kind_of_reader_costs_something(change: dict[str, Any]) -> None:
    quiet = Workload(records_per_s=1, groups=1)
    assert estimate("express3", replace(quiet, **change)).usd > estimate("express3", quiet).usd + 0.2


@pytest.mark.parametrize("profile", PROFILES)
def test_mirror_of_a_mebibyte_a_second_costs_at_most_twice_the_appends(profile: str) -> None:
    """Six partitions, requests of 64 KiB, clients that invoke the functions. Transfer and storage are left out."""
    parts = monthly(counted(profile, "lambda"), replace(TYPICAL, records_per_s=KIB, mirrors=1))
    usd = {part: sum(line.usd for line in priced(part, found)) for part, found in parts.items()}
    mirror = sum(value for part, value in usd.items() if part.startswith("mirror: "))
    assert usd["produce"] < mirror <= 2 * usd["produce"]


def test_mirror_in_another_region_pays_for_its_bytes_and_each_keeps_them() -> None:
    plain, near, far = (
        estimate("express3", replace(TYPICAL, mirrors=mirrors, mirrors_in_region=is_near))
        for mirrors, is_near in ((0, False), (2, True), (2, False))
    )
    gb = TYPICAL.bytes_per_month / 1e9
    assert far.usd - near.usd == pytest.approx(2 * gb * 0.02)

    def stored(month: Estimate, part: str) -> float:
        return sum(line.quantity for line in month.lines if line.part == part and line.what == "S3 Express GB-months")

    assert stored(near, "mirror: keep") == pytest.approx(2 * stored(plain, "store"))
    assert {line.part for line in far.lines} - {line.part for line in plain.lines} == {
        "mirror: push", "mirror: append", "mirror: tell offsets", "mirror: keep", "mirror: transfer"
    }  # fmt: skip


@pytest.mark.parametrize("change", [{}, {"record_bytes": 1_000, "request_bytes": None}, {"is_compacted": True}])
def test_month_with_a_mirror_that_gets_no_record_is_that_without(change: dict[str, Any]) -> None:
    quiet = replace(TYPICAL, records_per_s=0, **change)
    polls = 0.25 * SECONDS_PER_MONTH * 0.40 / MILLION
    assert estimate("express3", replace(quiet, mirrors=1)).usd == pytest.approx(estimate("express3", quiet).usd + polls)


def test_latency_chooses_the_settings_within_it() -> None:
    workload = Workload(records_per_s=50, producers=5)
    found = within_latency("express3", workload, 2_000)
    assert found.linger_ms + 1.1 * found.fetch_interval_ms + 100 <= 2_000
    assert estimate("express3", found).usd < estimate("express3", workload).usd / 2
    at_once = within_latency("express3", workload, 100)
    assert (at_once.linger_ms, at_once.fetch_interval_ms) == (0, 0)
    with pytest.raises(PenstockError, match=r"--max-latency is 99 ms: an append and a fetch take 100"):
        within_latency("express3", workload, 99)


def test_lever_of_readers_that_stop_is_named_with_the_hours() -> None:
    found = [each.change for each in levers("express3", Workload(records_per_s=0.1, members=30, hours=8))]
    assert "readers run 8 hours a day, as records come" in found
    assert "one member in each group: 29 fewer" in found


def test_how_to_has_the_prices_of_mirrors_that_the_estimate_has() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "mirror.md").read_text()
    rows = dict(re.findall(r"^\| `(express3|express2|standard1)` \| (.+) \|$", page, re.MULTILINE))
    assert rows.keys() == {*PROFILES}
    for profile, cells in rows.items():
        told = []
        for partitions in (1, 6, 48):
            month = replace(TYPICAL, records_per_s=KIB, partitions=partitions, mirrors=1)
            parts = monthly(counted(profile, "lambda"), month)
            usd = {part: sum(line.usd for line in priced(part, found)) for part, found in parts.items()}
            mirror = sum(value for part, value in usd.items() if part.startswith("mirror: "))
            told.append(f"${mirror:.0f}, {mirror / usd['produce']:.1f}")
        assert cells == " | ".join(told)
