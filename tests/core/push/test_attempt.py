import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX
from penstock_core.push.attempt import (
    Facts,
    Found,
    Named,
    Rest,
    Skip,
    Try,
    fail,
    fail_record,
    pause_ms,
    plan,
)
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble, Window, commit
from penstock_core.push.subscription import new_subscription_config
from tests.core.push.attempt_model import (
    MINUTE_MS,
    START,
    Delivery,
    Target,
    alone,
    candidate,
    config,
)


def test_clean_run_delivers_each_batch_once_with_one_write() -> None:
    delivery = Delivery(target=Target(), config=config())
    delivery.run()
    assert (delivery.target.invocations, delivery.writes, delivery.evidence_reads) == (10, 10, 0)
    assert (delivery.target.handled, delivery.buried) == (list(range(1_000)), [])


@pytest.mark.parametrize("failure", [Failure.REFUSAL, Failure.BROKEN, None])
@pytest.mark.parametrize("step", [1, 9])
@pytest.mark.parametrize("place", [0, 1, 49, 50, 98, 99, 517])
def test_one_poison_record_is_buried_alone_within_the_bound(failure: Failure | None, step: int, place: int) -> None:
    poison = place * step
    target = Target(poison=frozenset({poison}), poison_failure=failure)
    delivery = Delivery(target=target, config=config(), end=1_000 * step, step=step)
    delivery.run()
    assert delivery.buried == [poison]
    assert target.handled == [each for each in range(0, 1_000 * step, step) if each != poison]
    # The first death of a batch is not counted. The rest of the batch is one invocation more.
    assert target.invocations <= 10 + 5 + math.ceil(math.log2(100)) + 5 + 1 + (failure is None)
    assert target.times[poison] >= 5 + 5


@given(
    poison=st.frozensets(st.integers(0, 199), max_size=12),
    batch_records=st.integers(1, 64),
    attempts_max=st.integers(1, 4),
    failure=st.sampled_from([Failure.REFUSAL, Failure.BROKEN, None]),
    bounds=st.tuples(st.integers(0, 300_000), st.integers(0, 600_000), st.sampled_from(Failure)),
    shape=st.tuples(st.integers(1, 3), st.booleans(), st.booleans()),
)
def test_all_but_poison_is_handled_in_order_and_all_poison_is_buried(
    poison: frozenset[int],
    batch_records: int,
    attempts_max: int,
    failure: Failure | None,
    bounds: tuple[int, int, Failure],
    shape: tuple[int, bool, bool],
) -> None:
    (start_ms, length_ms, down_failure), (step, has_others, names_records) = bounds, shape
    target = Target(
        poison=poison,
        poison_failure=failure,
        down_ms=range(start_ms, start_ms + length_ms),
        down_failure=down_failure,
        names_records=names_records,
    )
    settings = config(batch_records=batch_records, attempts_max=attempts_max)
    delivery = Delivery(target=target, config=settings, end=200, step=step, has_others=has_others)
    delivery.run()
    wanted = range(0, 200, step)
    unlucky = [each for each in delivery.buried if each not in poison]
    assert delivery.buried == sorted({*unlucky, *(each for each in wanted if each in poison)})
    assert target.handled == [each for each in wanted if each not in delivery.buried]
    # A target that goes down while it is known to work costs one record at most: then it must be known again.
    assert len(unlucky) <= (down_failure is not Failure.AWAY)


def test_batch_goes_whole_where_it_is_not_bisected_in_bounded_burials() -> None:
    target = Target(poison=frozenset({3}))
    delivery = Delivery(target=target, config=config(batch_records=250, bisect=False, attempts_max=2), end=500)
    delivery.run()
    assert (delivery.buried, target.handled) == (list(range(250)), list(range(250, 500)))
    assert len(delivery.buried_at_ms) == 3


def test_poison_is_tried_for_ever_without_a_dead_letter_topic_and_good_records_before_it_once_it_is_found() -> None:
    target = Target(poison=frozenset({7}))
    settings = new_subscription_config({"batch_records": 16})
    delivery = Delivery(target=target, config=settings, end=100)
    delivery.run(until_ms=24 * 60 * MINUTE_MS)
    assert (target.handled, delivery.buried, delivery.state.offset) == (list(range(7)), [], 7)
    assert target.times[6] <= 5 + 4
    assert target.times[7] >= 24 * 60 // 10
    assert delivery.evidence_reads == 0


def test_named_record_is_tried_alone_and_those_before_it_are_handled_once() -> None:
    target = Target(poison=frozenset({42, 60}), names_records=True)
    delivery = Delivery(target=target, config=config(), end=100)
    delivery.run()
    assert delivery.buried == [42, 60]
    assert {target.times[each] for each in range(42)} == {1}
    assert target.times[42] == 5
    assert target.invocations == 1 + 4 + 1 + 4 + 1
    assert delivery.evidence_reads == 0


@pytest.mark.parametrize("has_proof", [False, True])
def test_named_record_proves_that_the_target_works_if_others_were_handled(has_proof: bool) -> None:
    """Records before it that are not for the target are no success."""
    named = Named(offset=Offset(8), is_first=True, has_proof=has_proof, error="no")
    state = fail_record(START, config(), named, 400, 500)
    assert (state.offset, state.succeeded_ms, state.proof_ms) == ((8, 500, 400) if has_proof else (8, 0, 0))
    assert state.trouble is not None
    assert state.trouble.is_well is has_proof


def test_all_poison_is_buried_one_by_one() -> None:
    target = Target(poison=frozenset(range(20)))
    delivery = Delivery(target=target, config=config(batch_records=20), end=20)
    delivery.run()
    assert delivery.buried == list(range(20))


def test_error_is_cut() -> None:
    tried = Try(state=START, end=Offset(9), is_alone=False)
    state = fail(START, config(), tried, Failed(failure=Failure.REFUSAL, error="x" * 1_000), 5)
    assert state.trouble == Trouble(
        first_failed_ms=5,
        range_end=Offset(9),
        failing_end=Offset(9),
        try_end=Offset(9),
        attempts=1,
        error="x" * PUSH_ERROR_LENGTH_MAX,
    )
    assert state.next_try_ms == 5 + 1_000


def test_pause_doubles_up_to_the_longest() -> None:
    settings = config(backoff_ms_min=3, backoff_ms_max=20)
    assert [pause_ms(settings, failures) for failures in (0, 1, 2, 3, 4, 1_000)] == [3, 3, 6, 12, 20, 20]


def test_batch_that_is_not_full_waits_for_its_window_and_a_full_one_goes_at_once() -> None:
    settings = config(batch_window_ms=500)
    found = Found(records=[candidate(0)], end=Offset(1), is_full=False, fill=0.01)
    step = plan(START, settings, found, Facts(now_ms=100))
    assert isinstance(step, Rest)
    assert step.state.window == Window(began_ms=100, seen_offset=Offset(1), quiet_until_ms=100)
    assert step.state.next_try_ms == 600
    full = plan(step.state, settings, replace(found, is_full=True), Facts(now_ms=101))
    assert isinstance(full, Try)
    assert commit(full.state, full.end, 102, 102).window is None
    looked = plan(step.state, settings, found, Facts(now_ms=599))
    assert isinstance(looked, Rest)
    assert isinstance(plan(looked.state, settings, found, Facts(now_ms=600)), Try)
    assert isinstance(plan(START, settings, replace(found, is_full=True), Facts(now_ms=100)), Try)
    assert isinstance(plan(step.state, config(), found, Facts(now_ms=101)), Try), "the setting was taken back"


def test_nothing_for_the_target_is_skipped() -> None:
    nothing = Found(records=[], end=Offset(30))
    assert plan(START, config(), nothing, Facts(now_ms=0)) == Skip(end=Offset(30))
    state = DeliveryState(offset=Offset(0), trouble=alone(attempts=2))
    assert plan(state, config(), nothing, Facts(now_ms=0)) == Skip(end=Offset(1))


def test_first_attempt_after_a_death_is_counted_before_it_is_made() -> None:
    found = Found(records=[candidate(0), candidate(1)], end=Offset(2))
    step = plan(START, config(), found, Facts(now_ms=9, deaths=1))
    assert isinstance(step, Try)
    assert step.state.trouble == Trouble(first_failed_ms=9, range_end=Offset(2), try_end=Offset(2), attempts=1)
