from dataclasses import replace
from typing import Any

import pytest

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_EVIDENCE_MARGIN_MS, PUSH_SUCCESS_NOTE_MS
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.parallel_attempt import (
    ParallelFacts,
    ParallelFailure,
    batch_size,
    blocked_pause_ms,
    end_parallel,
    fail_parallel,
    is_last,
    needs_evidence,
    succeed_parallel,
)
from penstock_core.push.subscription import SubscriptionConfig, new_subscription_config

NEW = DeliveryState(offset=Offset(0), version=0)
NOW_MS = 1_000_000


def config(**settings: Any) -> SubscriptionConfig:
    return new_subscription_config({"mode": "parallel", "dead_letter_topic": "dead", **settings})


ELSEWHERE = 9  # failures in a row of other lanes


def fail(
    state: DeliveryState, failure: Failure, deliveries: int, now_ms: int = NOW_MS, last_ms: int = 0
) -> ParallelFailure:
    facts = ParallelFacts(now_ms=now_ms, succeeded_ms=last_ms, failures_elsewhere=ELSEWHERE)
    return fail_parallel(state, config(), Failed(failure=failure, error="no"), deliveries, facts)


def test_batches_are_halved_with_each_delivery_and_the_last_one_is_alone() -> None:
    assert [batch_size(config(), each) for each in range(1, 7)] == [100, 50, 25, 12, 1, 1]
    assert batch_size(config(bisect=False), 5) == 100
    endless = new_subscription_config({"mode": "parallel"})
    assert [batch_size(endless, each) for each in (1, 7, 8, 1_000)] == [100, 1, 1, 1]
    assert not is_last(endless, 1_000)


def test_refusal_counts_before_the_last_delivery() -> None:
    assert fail(NEW, Failure.REFUSAL, 1).is_counted
    assert fail(NEW, Failure.REFUSAL, 4).is_counted
    assert not fail(NEW, Failure.REFUSAL, 5).is_counted


@pytest.mark.parametrize(("elsewhere", "is_counted"), [(3, True), (4, False)])
def test_fewer_failures_in_a_row_than_the_record_has_had_prove_a_success_between(
    elsewhere: int, is_counted: bool
) -> None:
    facts = ParallelFacts(now_ms=NOW_MS, failures_elsewhere=elsewhere)
    failed = Failed(failure=Failure.REFUSAL, error="no")
    assert fail_parallel(NEW, config(), failed, 5, facts).is_counted is is_counted


@pytest.mark.parametrize(("failure", "deliveries"), [(Failure.REFUSAL, 5), (Failure.BROKEN, 1), (Failure.BROKEN, 5)])
def test_failure_counts_once_the_target_has_worked_since_the_last_one(failure: Failure, deliveries: int) -> None:
    first = fail(NEW, failure, deliveries)
    assert not first.is_counted
    assert not fail(first.state, failure, deliveries).is_counted
    well = succeed_parallel(first.state, NOW_MS + 1)
    again = fail(well, failure, deliveries)
    assert again.is_counted
    assert not fail(again.state, failure, deliveries).is_counted, "it has failed since"


def test_success_of_another_lane_counts_by_the_margin_of_clocks() -> None:
    state = fail(NEW, Failure.REFUSAL, 5).state
    limit_ms = NOW_MS + PUSH_EVIDENCE_MARGIN_MS
    assert not fail(state, Failure.REFUSAL, 5, NOW_MS + 60_000, limit_ms).is_counted
    assert fail(state, Failure.REFUSAL, 5, NOW_MS + 60_000, limit_ms + 1).is_counted


def test_patience_ends() -> None:
    state = fail(NEW, Failure.BROKEN, 5).state
    patience_ms = config().patience_ms
    assert not fail(state, Failure.BROKEN, 5, NOW_MS + patience_ms - 1).is_counted
    assert fail(state, Failure.BROKEN, 5, NOW_MS + patience_ms).is_counted


def test_target_that_is_away_never_counts() -> None:
    well = succeed_parallel(fail(NEW, Failure.AWAY, 5).state, NOW_MS)
    assert not fail(well, Failure.AWAY, 5, NOW_MS + 10**9, NOW_MS + 10**9).is_counted
    assert not needs_evidence(config(), Failed(failure=Failure.AWAY, error=""), 5)


def test_lane_rests_from_the_second_failure_on_and_records_come_later_than_it() -> None:
    first = fail(NEW, Failure.REFUSAL, 5)
    assert first.state.next_try_ms == 0
    pauses, state = [], first.state
    for _ in range(3):
        failed = fail(state, Failure.REFUSAL, 5)
        pauses.append(failed.state.next_try_ms - NOW_MS)
        assert failed.delay_ms > pauses[-1]
        state = failed.state
    assert pauses == [1_000, 2_000, 4_000]
    assert fail(NEW, Failure.AWAY, 1).state.next_try_ms == NOW_MS + 1_000


def test_success_is_noted_seldom_but_at_once_after_a_failure() -> None:
    noted = succeed_parallel(NEW, NOW_MS)
    assert (noted.succeeded_ms, noted.version) == (NOW_MS, 1)
    assert succeed_parallel(noted, NOW_MS + PUSH_SUCCESS_NOTE_MS - 1) is noted
    assert succeed_parallel(noted, NOW_MS + PUSH_SUCCESS_NOTE_MS).version == 2
    failed = fail(noted, Failure.REFUSAL, 1).state
    well = succeed_parallel(failed, NOW_MS + 1)
    assert well.trouble is not None
    assert (well.trouble.is_well, well.succeeded_ms, well.next_try_ms) == (True, NOW_MS + 1, 0)


def test_trouble_ends_when_nothing_waits() -> None:
    assert end_parallel(NEW) is NEW
    failing = replace(NEW, trouble=Trouble(first_failed_ms=1, range_end=Offset(0)), next_try_ms=7)
    assert end_parallel(failing) == replace(NEW, version=1)


def test_success_of_another_lane_before_an_outage_counts_one_failure_only() -> None:
    state, counted = fail(NEW, Failure.REFUSAL, 5).state, 0
    for number in range(1, 300):
        now_ms = NOW_MS + 2_000 * number
        done = fail(state, Failure.REFUSAL, 5, now_ms, NOW_MS + PUSH_EVIDENCE_MARGIN_MS + 1 if number > 7 else 0)
        state, counted = done.state, counted + done.is_counted
    assert counted == 1


@pytest.mark.parametrize(
    ("idle_ms", "returns_in_ms", "pause_ms"),
    [(0, None, 5_000), (7_000, None, 7_000), (14_000, 9_000, 9_000), (14_000, 0, 5_000), (10**9, 10**9, 60_000)],
)
def test_lane_without_room_rests_as_long_as_it_had_no_success(
    idle_ms: int, returns_in_ms: int | None, pause_ms: int
) -> None:
    state = succeed_parallel(NEW, NOW_MS)
    assert blocked_pause_ms(state, NOW_MS + idle_ms, returns_in_ms) == pause_ms
