from dataclasses import replace
from typing import Any

import pytest

from penstock_core.ids import LockId, Offset
from penstock_core.limits import PUSH_EVIDENCE_MARGIN_MS, PUSH_PATIENCE_MS_MAX, PUSH_SUCCESS_NOTE_MS
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.parallel_attempt import (
    Fate,
    ParallelFacts,
    ParallelFailure,
    batch_size,
    blocked_pause_ms,
    end_parallel,
    fail_parallel,
    failures_in_row,
    is_last,
    needs_evidence,
    note_deaths,
    succeed_parallel,
    waited_ms,
)
from penstock_core.push.subscription import SubscriptionConfig, new_subscription_config
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.waits import backoff_ms

NEW = DeliveryState(offset=Offset(0), version=0)
NOW_MS = 10_000_000
REFUSED = Failed(failure=Failure.REFUSAL, error="no")


def config(**settings: Any) -> SubscriptionConfig:
    return new_subscription_config({"mode": "parallel", "dead_letter_topic": "dead", **settings})


ELSEWHERE = 9  # failures in a row of other lanes


def fail(
    state: DeliveryState, failure: Failure, deliveries: int, now_ms: int = NOW_MS, last_ms: int = 0
) -> ParallelFailure:
    facts = ParallelFacts(now_ms=now_ms, proof_ms=last_ms, failures_elsewhere=ELSEWHERE)
    return fail_parallel(state, config(), Failed(failure=failure, error="no"), deliveries, facts)


def test_batches_are_halved_with_each_delivery_and_the_last_one_is_alone() -> None:
    assert [batch_size(config(), each) for each in range(1, 7)] == [100, 50, 25, 12, 1, 1]
    assert batch_size(config(bisect=False), 5) == 100
    endless = new_subscription_config({"mode": "parallel"})
    assert [batch_size(endless, each) for each in (1, 7, 8, 1_000)] == [100, 1, 1, 1]
    assert not is_last(endless, 1_000)


def test_refusal_counts_before_the_last_delivery() -> None:
    assert fail(NEW, Failure.REFUSAL, 1).fate is Fate.RETRY
    assert fail(NEW, Failure.REFUSAL, 4).fate is Fate.RETRY
    assert fail(NEW, Failure.REFUSAL, 5).fate is Fate.SPARE


@pytest.mark.parametrize(("elsewhere", "fate"), [(3, Fate.BURY), (4, Fate.SPARE)])
def test_fewer_failures_in_a_row_than_the_record_has_had_prove_a_success_between(elsewhere: int, fate: Fate) -> None:
    facts = ParallelFacts(now_ms=NOW_MS, failures_elsewhere=elsewhere)
    failed = Failed(failure=Failure.REFUSAL, error="no")
    assert fail_parallel(NEW, config(), failed, 5, facts).fate is fate


def test_broken_target_counts_before_the_last_delivery_once_it_has_worked_since_the_last_failure() -> None:
    first = fail(NEW, Failure.BROKEN, 1)
    assert first.fate is Fate.GIVE_BACK
    assert fail(first.state, Failure.BROKEN, 1).fate is Fate.GIVE_BACK
    again = fail(succeed_parallel(first.state, NOW_MS + 1, NOW_MS + 1), Failure.BROKEN, 1)
    assert again.fate is Fate.RETRY
    assert fail(again.state, Failure.BROKEN, 1).fate is Fate.GIVE_BACK, "it has failed since"


@pytest.mark.parametrize("failure", [Failure.REFUSAL, Failure.BROKEN])
def test_success_of_the_lane_before_the_record_failed_first_buries_nothing(failure: Failure) -> None:
    """An outage begins. Each lane has worked since its own last failure, which was before the record's first one."""
    well = succeed_parallel(fail(NEW, Failure.REFUSAL, 1).state, NOW_MS, NOW_MS)
    assert well.trouble is not None
    assert well.trouble.is_well
    waited = waited_ms(config(), 5)
    assert fail(well, failure, 5, NOW_MS + waited, NOW_MS).fate is Fate.SPARE
    assert fail(well, failure, 1, NOW_MS + waited, NOW_MS).fate is Fate.RETRY, "it is not the last delivery"


def test_success_counts_if_it_is_later_than_the_first_failure_by_the_margin_of_clocks() -> None:
    for deliveries in (6, 7, 9):
        first_failed_ms = NOW_MS - waited_ms(config(), deliveries)
        limit_ms = first_failed_ms + PUSH_EVIDENCE_MARGIN_MS
        assert fail(NEW, Failure.REFUSAL, deliveries, NOW_MS, limit_ms).fate is Fate.SPARE
        assert fail(NEW, Failure.REFUSAL, deliveries, NOW_MS, limit_ms + 1).fate is Fate.BURY


@pytest.mark.parametrize(
    "settings", [{}, {"attempts_max": 1}, {"backoff_ms_min": 1, "backoff_ms_max": 1}, {"backoff_ms_min": 3_000}]
)
@pytest.mark.parametrize("failure", [Failure.REFUSAL, Failure.BROKEN])
def test_poison_record_is_buried_after_a_success_and_never_before_one(
    failure: Failure, settings: dict[str, Any]
) -> None:
    """Its deliveries go to many lanes, which fail at other records, too. So it has no proof but the pauses."""
    chosen, failed = config(patience_ms=PUSH_PATIENCE_MS_MAX, **settings), Failed(failure=failure, error="no")
    assert chosen.attempts_max is not None
    now_ms, deliveries = NOW_MS, chosen.attempts_max
    first_failed_ms = now_ms - waited_ms(chosen, deliveries)
    for step in range(40):
        succeeded_ms = first_failed_ms if step < 5 else now_ms - PUSH_SUCCESS_NOTE_MS
        facts = ParallelFacts(now_ms=now_ms, proof_ms=succeeded_ms, failures_elsewhere=1_000)
        done = fail_parallel(NEW, chosen, failed, deliveries, facts)
        if done.fate is Fate.BURY:
            break
        assert done.fate is Fate.SPARE
        now_ms, deliveries = now_ms + done.delay_ms, deliveries + 1
    assert step in (5, 6)


def test_time_that_a_record_has_waited_is_no_longer_than_its_pauses() -> None:
    chosen = config(attempts_max=3, patience_ms=PUSH_PATIENCE_MS_MAX)
    group = ShareGroupConfig(deliveries_max=3, retry_backoff_ms_min=chosen.backoff_ms_min)
    passed_ms = 0
    for deliveries in range(1, 12):
        assert waited_ms(chosen, deliveries) <= passed_ms
        done = fail_parallel(NEW, chosen, REFUSED, deliveries, ParallelFacts(now_ms=NOW_MS, failures_elsewhere=99))
        backoffs = [backoff_ms(group, deliveries, LockId(f"lock{each}")) for each in range(50)]
        passed_ms += min(backoffs) if done.fate is Fate.RETRY else done.delay_ms


def test_patience_ends() -> None:
    deliveries = next(each for each in range(5, 99) if waited_ms(config(), each) >= config().patience_ms)
    assert fail(NEW, Failure.BROKEN, deliveries - 1).fate is Fate.SPARE
    assert fail(NEW, Failure.BROKEN, deliveries).fate is Fate.BURY
    facts = ParallelFacts(now_ms=NOW_MS, failures_elsewhere=9)
    assert fail_parallel(NEW, config(patience_ms=0), REFUSED, 5, facts).fate is Fate.BURY


def test_target_that_is_away_never_counts() -> None:
    well = succeed_parallel(fail(NEW, Failure.AWAY, 5).state, NOW_MS, NOW_MS)
    assert fail(well, Failure.AWAY, 5, NOW_MS + 10**9, NOW_MS + 10**9).fate is Fate.GIVE_BACK
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
    noted = succeed_parallel(NEW, NOW_MS - 7, NOW_MS)
    assert (noted.succeeded_ms, noted.proof_ms, noted.version) == (NOW_MS, NOW_MS - 7, 1)
    assert succeed_parallel(noted, NOW_MS + PUSH_SUCCESS_NOTE_MS - 1, NOW_MS + PUSH_SUCCESS_NOTE_MS - 1) is noted
    assert succeed_parallel(noted, NOW_MS + PUSH_SUCCESS_NOTE_MS, NOW_MS + PUSH_SUCCESS_NOTE_MS).version == 2
    failed = fail(noted, Failure.REFUSAL, 1).state
    well = succeed_parallel(failed, NOW_MS + 1, NOW_MS + 1)
    assert well.trouble is not None
    assert (well.trouble.is_well, well.succeeded_ms, well.next_try_ms) == (True, NOW_MS + 1, 0)


def test_trouble_ends_when_nothing_waits() -> None:
    assert end_parallel(NEW) is NEW
    failing = replace(NEW, trouble=Trouble(first_failed_ms=1, range_end=Offset(0)), next_try_ms=7)
    assert end_parallel(failing) == replace(NEW, version=1)


def test_success_of_another_lane_before_an_outage_counts_one_failure_only() -> None:
    state, counted = fail(NEW, Failure.BROKEN, 1).state, 0
    for number in range(1, 300):
        now_ms = NOW_MS + 2_000 * number
        done = fail(state, Failure.BROKEN, 1, now_ms, NOW_MS + PUSH_EVIDENCE_MARGIN_MS + 1 if number > 7 else 0)
        state, counted = done.state, counted + (done.fate is Fate.RETRY)
    assert counted == 1


@pytest.mark.parametrize(
    ("idle_ms", "returns_in_ms", "pause_ms"),
    [(0, None, 5_000), (7_000, None, 7_000), (14_000, 9_000, 9_000), (14_000, 0, 5_000), (10**9, 10**9, 60_000)],
)
def test_lane_without_room_rests_as_long_as_it_had_no_success(
    idle_ms: int, returns_in_ms: int | None, pause_ms: int
) -> None:
    state = succeed_parallel(NEW, NOW_MS, NOW_MS)
    assert blocked_pause_ms(state, NOW_MS + idle_ms, returns_in_ms) == pause_ms


def test_death_counts_as_a_failure_in_a_row_until_a_success() -> None:
    once = note_deaths(NEW, 1, NOW_MS)
    assert failures_in_row(once) == 1
    assert failures_in_row(note_deaths(once, 2, NOW_MS)) == 2
    assert failures_in_row(note_deaths(NEW, 3, NOW_MS)) == 3, "two of them were not noted"
    well = succeed_parallel(once, NOW_MS, NOW_MS)
    assert failures_in_row(well) == 0
    assert failures_in_row(note_deaths(well, 1, NOW_MS)) == 1
    assert fail(once, Failure.BROKEN, 1).fate is Fate.GIVE_BACK
