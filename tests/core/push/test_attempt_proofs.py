"""A record goes to the dead letters only once the target is known to work, its patience is over, or it is too old."""

from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_EVIDENCE_MARGIN_MS
from penstock_core.push.attempt import (
    Bury,
    Candidate,
    Facts,
    Found,
    Try,
    fail,
    plan,
)
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.subscription import new_subscription_config
from tests.core.push.attempt_model import DEAD, EVER_MS, MINUTE_MS, START, Delivery, Target, alone, candidate, config


@pytest.mark.parametrize("poison", [1, 50, 99])
def test_poison_record_of_a_quiet_partition_needs_no_patience(poison: int) -> None:
    """The records before it succeed, so the target works: no other delivery must tell that."""
    target = Target(poison=frozenset({poison}))
    delivery = Delivery(target=target, config=config(), end=100, has_others=False)
    delivery.run()
    assert (delivery.buried, delivery.evidence_reads) == ([poison], 0)
    assert delivery.now_ms < MINUTE_MS
    assert target.times[poison] >= 5 + 5


def test_first_poison_record_of_a_quiet_partition_waits_for_the_patience() -> None:
    delivery = Delivery(target=Target(poison=frozenset({0})), config=config(), end=100, has_others=False)
    delivery.run()
    assert delivery.buried == [0]
    assert delivery.now_ms >= 15 * MINUTE_MS


def test_evidence_is_read_once_before_the_last_attempt() -> None:
    delivery = Delivery(target=Target(poison=frozenset({0})), config=config(batch_records=10), end=20)
    delivery.run()
    assert delivery.buried == [0]
    assert delivery.evidence_reads == 1


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("batch_records", [1, 10])
def test_outage_shorter_than_the_patience_buries_nothing(failure: Failure, batch_records: int) -> None:
    target = Target(down_ms=range(25, 10 * MINUTE_MS), down_failure=failure)
    delivery = Delivery(target=target, config=config(batch_records=batch_records), end=100)
    delivery.run()
    assert delivery.buried == []
    assert target.handled == list(range(100))
    assert target.invocations <= 100 // batch_records + 30  # the pauses grow


def test_success_of_another_partition_buries_no_record_that_was_not_tried_since() -> None:
    """A record that failed in an outage gets another attempt once the target works."""
    state = DeliveryState(offset=Offset(0), trouble=alone(attempts=9))
    found = Found(records=[candidate(0)], end=Offset(1))
    facts = Facts(now_ms=10 * MINUTE_MS, proof_ms=9 * MINUTE_MS)
    step = plan(state, config(), found, facts)
    assert isinstance(step, Try)
    failed = fail(step.state, config(), step, Failed(failure=Failure.REFUSAL, error=""), 10 * MINUTE_MS)
    assert failed.next_try_ms == 0
    assert plan(failed, config(), found, Facts(now_ms=10 * MINUTE_MS)) == Bury(end=Offset(1))


@pytest.mark.parametrize(
    ("late_ms", "is_well"), [(PUSH_EVIDENCE_MARGIN_MS, False), (PUSH_EVIDENCE_MARGIN_MS + 1, True)]
)
def test_success_counts_if_it_is_later_than_the_failure_by_the_margin_of_clocks(late_ms: int, is_well: bool) -> None:
    state = DeliveryState(offset=Offset(0), trouble=alone(attempts=5))
    facts = Facts(now_ms=MINUTE_MS, proof_ms=late_ms)
    step = plan(state, config(), Found(records=[candidate(0)], end=Offset(1)), facts)
    assert isinstance(step, Try)
    assert step.state.trouble is not None
    assert step.state.trouble.is_well is is_well


def test_target_that_is_away_again_asks_for_new_evidence() -> None:
    state = DeliveryState(offset=Offset(0), trouble=alone(attempts=5, is_well=True))
    tried = Try(state=state, end=Offset(1), is_alone=True)
    away = fail(state, config(), tried, Failed(failure=Failure.AWAY, error="429"), MINUTE_MS)
    assert away.trouble == alone(attempts=4, outages=1, error="429")


@pytest.mark.parametrize("failure", [Failure.REFUSAL, Failure.BROKEN])
def test_failures_without_any_success_are_buried_after_the_patience(failure: Failure) -> None:
    target = Target(down_ms=range(EVER_MS), down_failure=failure)
    delivery = Delivery(target=target, config=config(batch_records=1, patience_ms=MINUTE_MS), end=1)
    delivery.run()
    assert delivery.buried == [0]
    assert delivery.now_ms >= MINUTE_MS


def test_broken_target_is_not_halved_before_it_works_for_others() -> None:
    target = Target(down_ms=range(EVER_MS), down_failure=Failure.BROKEN)
    delivery = Delivery(target=target, config=config(batch_records=8), end=8)
    delivery.run(until_ms=14 * MINUTE_MS)
    assert target.times == dict.fromkeys(range(8), target.invocations)
    assert delivery.buried == []


def test_target_that_is_away_is_never_buried_before_its_age() -> None:
    target = Target(down_ms=range(EVER_MS), down_failure=Failure.AWAY)
    delivery = Delivery(target=target, config=config(age_ms_max=3_600_000, patience_ms=0), end=50)
    delivery.run()
    assert delivery.buried == list(range(50))
    assert delivery.now_ms >= 3_600_000


def test_only_old_records_of_the_range_are_buried_for_their_age() -> None:
    trouble = Trouble(first_failed_ms=0, range_end=Offset(9), try_end=Offset(9), outages=1)
    found = Found(records=[candidate(0), candidate(2), candidate(4, 50_000)], end=Offset(9))
    state = DeliveryState(offset=Offset(0), trouble=trouble)
    aged = config(age_ms_max=MINUTE_MS)
    assert plan(state, aged, found, Facts(now_ms=MINUTE_MS + 1)) == Bury(end=Offset(4))
    assert isinstance(plan(state, aged, found, Facts(now_ms=MINUTE_MS)), Try)
    assert isinstance(plan(replace(state, trouble=None), aged, found, Facts(now_ms=EVER_MS)), Try)


def test_record_without_a_time_is_never_too_old() -> None:
    trouble = Trouble(first_failed_ms=0, range_end=Offset(9), try_end=Offset(9), outages=1)
    found = Found(records=[candidate(0, -1)], end=Offset(9))
    state = DeliveryState(offset=Offset(0), trouble=trouble)
    assert isinstance(plan(state, config(age_ms_max=MINUTE_MS), found, Facts(now_ms=MINUTE_MS + 1)), Try)


def test_record_is_not_buried_by_the_attempts_of_a_larger_range() -> None:
    config = new_subscription_config({**DEAD, "attempts_max": 1})
    trouble = Trouble(
        first_failed_ms=0, range_end=Offset(50), try_end=Offset(50), attempts=1, is_split=True, is_well=True
    )
    found = Found(records=[Candidate(offset=Offset(0), timestamp_ms=0)], end=Offset(1))
    step = plan(replace(START, trouble=trouble), config, found, Facts(now_ms=1, proof_ms=0))
    assert isinstance(step, Try)


@pytest.mark.parametrize(("names_records", "attempts"), [(True, 1), (False, 2)])
def test_attempts_max_of_one_is_one_attempt_where_the_target_is_known_to_work(
    names_records: bool, attempts: int
) -> None:
    """Named behind records that were handled, or alone: then the second proves that the first met no outage."""
    place = 1 if names_records else 0
    target = Target(poison=frozenset({place}), names_records=names_records)
    settings = config(batch_records=2 if names_records else 1, attempts_max=1, patience_ms=0)
    delivery = Delivery(target=target, config=settings, end=2)
    delivery.run()
    assert (delivery.buried, target.times[place]) == ([place], attempts)
