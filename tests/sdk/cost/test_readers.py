"""The counts of a month by kind of reader."""

import pytest

from penstock.cost.counted import PROFILES, counted
from penstock.cost.estimate import estimate, monthly, priced
from penstock.cost.readers import (
    DELIVER_GB,
    MirrorPushes,
    beats_per_s,
    month_of_groups,
    month_of_mirrors,
    month_of_share_groups,
    month_of_subscriptions,
)
from penstock.cost.workload import SECONDS_PER_MONTH, Workload
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_core.limits import KIB, MIRROR_LANES, MIRROR_PUSH_BYTES, MIRROR_PUSH_REFS

COUNTS = counted("express3", "lambda")


def test_heartbeats_come_each_five_seconds_while_records_come_and_less_often_while_none_do() -> None:
    assert beats_per_s(0.0) == pytest.approx(1 / 15)
    assert beats_per_s(10.0) == pytest.approx(1 / 5)
    assert beats_per_s(1 / 5) == pytest.approx(1 / 5)
    assert beats_per_s(1 / 11.25) == pytest.approx(2 / 11.25)
    assert beats_per_s(1 / 100_000) == pytest.approx(1 / 15, rel=0.01)


def test_member_commits_each_five_seconds_what_has_moved() -> None:
    busy = month_of_groups(COUNTS, Workload(records_per_s=1_000))["commit"]
    assert busy["LAMBDA_REQUESTS"] == pytest.approx(SECONDS_PER_MONTH / 5, rel=0.01)
    rare = month_of_groups(COUNTS, Workload(records_per_s=0.001))["commit"]
    assert rare["LAMBDA_REQUESTS"] == pytest.approx(0.001 * SECONDS_PER_MONTH, rel=0.05)


def test_members_of_new_groups_pay_150_heartbeats_each_unless_their_groups_are_large() -> None:
    few, many = (
        month_of_groups(COUNTS, Workload(records_per_s=1, members=members, new_groups=1_000)) for members in (3, 11)
    )
    assert few["new groups"]["LAMBDA_REQUESTS"] == pytest.approx(1_000 * 3 * 150)
    assert "new groups" not in many
    with_one, without = (estimate("express3", Workload(records_per_s=0, new_groups=count)).usd for count in (1, 0))
    assert 0.0002 < with_one - without < 0.0008


def test_wake_up_is_published_once_and_delivered_to_each_group() -> None:
    one, three = (month_of_groups(COUNTS, Workload(records_per_s=0.01, groups=count))["wait"] for count in (1, 3))
    assert three["APPSYNC_OPERATIONS"] == pytest.approx(2 * one["APPSYNC_OPERATIONS"])


def test_share_worker_of_rare_records_pays_two_acquires_for_each() -> None:
    parts = month_of_share_groups(COUNTS, Workload(records_per_s=0.01, groups=0, share_workers=1))
    requests = sum(parts[part].get("LAMBDA_REQUESTS", 0.0) for part in ("acquire", "wait", "look for records"))
    assert requests == pytest.approx(2 * 0.01 * SECONDS_PER_MONTH, rel=0.05)
    assert month_of_share_groups(COUNTS, Workload(records_per_s=1)) == {}


def test_share_workers_that_run_for_an_hour_a_day_acquire_the_rest_in_full() -> None:
    always, nightly = (
        month_of_share_groups(COUNTS, Workload(records_per_s=50, groups=0, share_workers=2, worker_hours=hours))
        for hours in (24, 1)
    )
    assert nightly["acquire"]["LAMBDA_REQUESTS"] < always["acquire"]["LAMBDA_REQUESTS"] / 10
    moved = [each["acquire"]["EXPRESS_RETRIEVED_BYTES"] for each in (always, nightly)]
    assert moved[1] == pytest.approx(moved[0], rel=0.1)


def test_subscription_delivers_each_rare_record_and_many_busy_ones_at_once() -> None:
    rare, busy = (
        month_of_subscriptions(COUNTS, Workload(records_per_s=rate, groups=0, subscriptions=1)) for rate in (0.01, 600)
    )
    assert rare["push"]["LAMBDA_REQUESTS"] == pytest.approx(2 * 0.01 * SECONDS_PER_MONTH, rel=0.01)
    assert busy["push"]["LAMBDA_REQUESTS"] <= 2 * 6 * 4 * SECONDS_PER_MONTH, "four a second and partition at most"
    assert rare["idle"] == {"SQS_REQUESTS": pytest.approx(0.25 * SECONDS_PER_MONTH)}
    assert month_of_subscriptions(COUNTS, Workload(records_per_s=1)) == {}


def test_subscription_costs_the_same_by_every_transport() -> None:
    workload = Workload(records_per_s=5, groups=0, subscriptions=1)
    assert month_of_subscriptions(counted("express3", "embedded"), workload) == month_of_subscriptions(COUNTS, workload)


def test_memory_of_deliveries_is_that_of_their_function() -> None:
    assert FUNCTION_SIZES["deliver"].memory_mb == DELIVER_GB * KIB


def test_mirror_gets_each_rare_record_and_many_busy_ones_at_once() -> None:
    rare, busy = (month_of_mirrors(COUNTS, Workload(records_per_s=rate, groups=0, mirrors=2)) for rate in (0.01, 600))
    assert rare["mirror: append"]["LAMBDA_REQUESTS"] == pytest.approx(2 * 0.01 * SECONDS_PER_MONTH, rel=0.01)
    assert busy["mirror: append"]["LAMBDA_REQUESTS"] <= 2 * 6 * 3 * SECONDS_PER_MONTH, "three a second and partition"
    assert rare["idle"] == {"SQS_REQUESTS": pytest.approx(0.25 * SECONDS_PER_MONTH)}
    assert month_of_mirrors(COUNTS, Workload(records_per_s=0, mirrors=1)) == {"idle": rare["idle"]}
    assert month_of_mirrors(COUNTS, Workload(records_per_s=1)) == {}


def test_push_to_a_mirror_keeps_its_bounds() -> None:
    many = MirrorPushes.of(Workload(records_per_s=10_000, partitions=1, request_bytes=KIB, mirrors=1))
    assert many.segments == pytest.approx(MIRROR_PUSH_REFS)
    large = MirrorPushes.of(Workload(records_per_s=100_000, partitions=1, request_bytes=KIB * KIB, mirrors=1))
    assert large.workload.bytes_per_request == pytest.approx(MIRROR_PUSH_BYTES, rel=0.01)
    for pushes, rate in ((many, 10_000), (large, 100_000)):
        assert pushes.per_s * pushes.workload.records_per_request == pytest.approx(rate, rel=0.01), "no record is left"


@pytest.mark.parametrize("profile", PROFILES)
def test_mirror_of_many_partitions_costs_less_than_twice_their_appends(profile: str) -> None:
    workload = Workload(records_per_s=KIB, request_bytes=64 * KIB, partitions=48, groups=0, mirrors=1)
    parts = monthly(counted(profile, "lambda"), workload)
    usd = {part: sum(line.usd for line in priced(part, found)) for part, found in parts.items()}
    assert usd["mirror: push"] + usd["mirror: append"] < 2 * usd["produce"]


def test_lane_that_rests_takes_all_its_partitions_along() -> None:
    sparse, busy = (MirrorPushes.of(Workload(records_per_s=rate, partitions=48, mirrors=1)) for rate in (1, 600))
    assert sparse.rounds_per_s == 0, "each lane has a record in six seconds"
    assert 1 < busy.per_s / busy.rounds_per_s < busy.lane_partitions == 48 / MIRROR_LANES
    assert MirrorPushes.of(Workload(records_per_s=100, partitions=6, mirrors=1)).rounds_per_s == 0


def test_offsets_are_told_each_ten_seconds_while_groups_commit() -> None:
    busy, none = (month_of_mirrors(COUNTS, Workload(records_per_s=600, groups=groups, mirrors=1)) for groups in (1, 0))
    told = busy["mirror: tell offsets"]["API_REQUESTS"]
    assert told == pytest.approx(SECONDS_PER_MONTH / 10.1)
    assert "mirror: tell offsets" not in none


def test_mirror_costs_the_same_by_every_transport() -> None:
    workload = Workload(records_per_s=5, groups=0, mirrors=1)
    assert month_of_mirrors(counted("express3", "embedded"), workload) == month_of_mirrors(COUNTS, workload)
