import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import DEAD_LETTERS_AT_ONCE, PUSH_ERROR_LENGTH_MAX, PUSH_EVIDENCE_MARGIN_MS
from penstock_core.push.attempt import (
    Bury,
    Candidate,
    Facts,
    Found,
    Named,
    NeedsEvidence,
    Rest,
    Skip,
    Try,
    fail,
    fail_record,
    pause_ms,
    plan,
)
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble, Window, commit, skip
from penstock_core.push.subscription import SubscriptionConfig, new_subscription_config

DEAD: Mapping[str, Any] = {"dead_letter_topic": "orders.dead"}
MINUTE_MS = 60_000
LOCK_MS = 65_000
EVER_MS = 10**12
START = DeliveryState(offset=Offset(0))


@dataclass(kw_only=True)
class Target:
    """Fails on the records of `poison`, and on all in `down_ms`. `handled` has what it handled first, in order."""

    poison: frozenset[int] = frozenset()
    poison_failure: Failure | None = Failure.REFUSAL
    """None: the function of the delivery dies of it."""
    down_ms: range = range(0)
    down_failure: Failure = Failure.REFUSAL
    names_records: bool = False
    invocations: int = 0
    times: dict[int, int] = field(default_factory=dict)
    handled: list[int] = field(default_factory=list)

    def invoke(self, offsets: list[int], now_ms: int) -> Failure | int | None:
        """The failure, the offset that is named, or -1 for a death. None for a success."""
        self.invocations += 1
        self.times |= {each: self.times.get(each, 0) + 1 for each in offsets}
        if now_ms in self.down_ms:
            return self.down_failure
        bad = [each for each in offsets if each in self.poison]
        done = offsets if not bad else [each for each in offsets if each < bad[0]] if self.names_records else []
        self.handled += [each for each in done if each not in self.handled]
        if not bad:
            return None
        if self.names_records:
            return bad[0]
        return -1 if self.poison_failure is None else self.poison_failure


@dataclass(kw_only=True)
class Delivery:
    """Delivers the records [0, end) of one partition by the plans. Another partition succeeds while the target is up.

    Only offsets with `matches` are for the target.
    """

    target: Target
    config: SubscriptionConfig
    end: int = 1_000
    step: int = 1
    has_others: bool = True
    now_ms: int = 1
    deaths: int = 0
    last_death_ms: int = 0
    buried: list[int] = field(default_factory=list)
    buried_at_ms: list[int] = field(default_factory=list)
    evidence_reads: int = 0
    writes: int = 0
    state: DeliveryState = START

    def run(self, until_ms: int = EVER_MS) -> None:
        while self.state.offset < self.end and self.now_ms < until_ms:
            self._once()
            self.now_ms += 10

    def _once(self) -> None:
        found = self._read()
        facts = Facts(now_ms=self.now_ms, deaths=self.deaths)
        step = plan(self.state, self.config, found, facts)
        if isinstance(step, NeedsEvidence):
            self.evidence_reads += 1
            step = plan(self.state, self.config, found, replace(facts, succeeded_ms=self._succeeded_elsewhere_ms()))
        match step:
            case Rest(state=state):
                self._put(state)
                assert state.next_try_ms > self.now_ms
                self.now_ms = state.next_try_ms
            case Skip(end=end):
                assert not [each for each in self._offsets() if each < end]
                self._put(skip(self.state, end))
            case Bury(end=end):
                gone = [each for each in self._offsets() if each < end]
                assert 1 <= len(gone) <= DEAD_LETTERS_AT_ONCE
                self.buried += gone
                self.buried_at_ms.append(self.now_ms)
                self._put(skip(self.state, end))
            case Try() as tried:
                self._put(tried.state)
                self._try(tried)
            case NeedsEvidence():
                raise AssertionError("evidence was given")

    def _try(self, tried: Try) -> None:
        offsets = [each for each in self._offsets() if each < tried.end]
        assert offsets
        answer = self.target.invoke(offsets, self.now_ms)
        if answer is None:
            self._put(commit(self.state, tried.end, self.now_ms))
            self.deaths = 0
        elif isinstance(answer, Failure):
            self._put(fail(self.state, self.config, tried, Failed(failure=answer, error="no"), self.now_ms))
            self.deaths = 0
        elif answer >= 0:
            named = Named(offset=Offset(answer), is_first=answer == offsets[0], error="no")
            self._put(fail_record(self.state, self.config, named, self.now_ms))
        else:
            self.deaths += 1
            self.now_ms += LOCK_MS

    def _put(self, state: DeliveryState) -> None:
        if state is not self.state:
            assert state.version == self.state.version + 1
            self.writes += 1
        self.state = state

    def _offsets(self) -> list[int]:
        start = -(-self.state.offset // self.step) * self.step
        return [*range(start, self.end, self.step)][: self.config.batch_records]

    def _read(self) -> Found:
        offsets = self._offsets()
        is_full = len(offsets) == self.config.batch_records
        end = offsets[-1] + 1 if offsets and is_full else self.end
        return Found(
            records=[Candidate(offset=Offset(each), timestamp_ms=0) for each in offsets],
            end=Offset(end),
            is_full=is_full,
        )

    def _succeeded_elsewhere_ms(self) -> int:
        if not self.has_others:
            return 0
        return self.target.down_ms.start - 1 if self.now_ms in self.target.down_ms else self.now_ms


def config(**settings: Any) -> SubscriptionConfig:
    return new_subscription_config({**DEAD, "batch_records": 100, **settings})


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
    state = DeliveryState(offset=Offset(0), trouble=_alone(attempts=9))
    found = Found(records=[_candidate(0)], end=Offset(1))
    facts = Facts(now_ms=10 * MINUTE_MS, succeeded_ms=9 * MINUTE_MS)
    step = plan(state, config(), found, facts)
    assert isinstance(step, Try)
    failed = fail(step.state, config(), step, Failed(failure=Failure.REFUSAL, error=""), 10 * MINUTE_MS)
    assert failed.next_try_ms == 0
    assert plan(failed, config(), found, Facts(now_ms=10 * MINUTE_MS)) == Bury(end=Offset(1))


@pytest.mark.parametrize(
    ("late_ms", "is_well"), [(PUSH_EVIDENCE_MARGIN_MS, False), (PUSH_EVIDENCE_MARGIN_MS + 1, True)]
)
def test_success_counts_if_it_is_later_than_the_failure_by_the_margin_of_clocks(late_ms: int, is_well: bool) -> None:
    state = DeliveryState(offset=Offset(0), trouble=_alone(attempts=5))
    facts = Facts(now_ms=MINUTE_MS, succeeded_ms=late_ms)
    step = plan(state, config(), Found(records=[_candidate(0)], end=Offset(1)), facts)
    assert isinstance(step, Try)
    assert step.state.trouble is not None
    assert step.state.trouble.is_well is is_well


def test_target_that_is_away_again_asks_for_new_evidence() -> None:
    state = DeliveryState(offset=Offset(0), trouble=_alone(attempts=5, is_well=True))
    tried = Try(state=state, end=Offset(1), is_alone=True)
    away = fail(state, config(), tried, Failed(failure=Failure.AWAY, error="429"), MINUTE_MS)
    assert away.trouble == _alone(attempts=4, outages=1, error="429")


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
    found = Found(records=[_candidate(0), _candidate(2), _candidate(4, 50_000)], end=Offset(9))
    state = DeliveryState(offset=Offset(0), trouble=trouble)
    aged = config(age_ms_max=MINUTE_MS)
    assert plan(state, aged, found, Facts(now_ms=MINUTE_MS + 1)) == Bury(end=Offset(4))
    assert isinstance(plan(state, aged, found, Facts(now_ms=MINUTE_MS)), Try)
    assert isinstance(plan(replace(state, trouble=None), aged, found, Facts(now_ms=EVER_MS)), Try)


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


def test_named_record_behind_records_that_are_not_for_the_target_is_no_success() -> None:
    state = fail_record(START, config(), Named(offset=Offset(8), is_first=True, error="no"), 500)
    assert (state.offset, state.succeeded_ms) == (8, 0)
    assert state.trouble is not None
    assert not state.trouble.is_well


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
    found = Found(records=[_candidate(0)], end=Offset(1), is_full=False, fill=0.01)
    step = plan(START, settings, found, Facts(now_ms=100))
    assert isinstance(step, Rest)
    assert step.state.window == Window(began_ms=100, seen_offset=Offset(1), quiet_until_ms=100)
    assert step.state.next_try_ms == 600
    full = plan(step.state, settings, replace(found, is_full=True), Facts(now_ms=101))
    assert isinstance(full, Try)
    assert commit(full.state, full.end, 102).window is None
    looked = plan(step.state, settings, found, Facts(now_ms=599))
    assert isinstance(looked, Rest)
    assert isinstance(plan(looked.state, settings, found, Facts(now_ms=600)), Try)
    assert isinstance(plan(START, settings, replace(found, is_full=True), Facts(now_ms=100)), Try)
    assert isinstance(plan(step.state, config(), found, Facts(now_ms=101)), Try), "the setting was taken back"


def test_nothing_for_the_target_is_skipped() -> None:
    nothing = Found(records=[], end=Offset(30))
    assert plan(START, config(), nothing, Facts(now_ms=0)) == Skip(end=Offset(30))
    state = DeliveryState(offset=Offset(0), trouble=_alone(attempts=2))
    assert plan(state, config(), nothing, Facts(now_ms=0)) == Skip(end=Offset(1))


def test_first_attempt_after_a_death_is_counted_before_it_is_made() -> None:
    found = Found(records=[_candidate(0), _candidate(1)], end=Offset(2))
    step = plan(START, config(), found, Facts(now_ms=9, deaths=1))
    assert isinstance(step, Try)
    assert step.state.trouble == Trouble(first_failed_ms=9, range_end=Offset(2), try_end=Offset(2), attempts=1)


def _alone(**changes: Any) -> Trouble:
    known = Trouble(first_failed_ms=0, range_end=Offset(1), failing_end=Offset(1), try_end=Offset(1))
    return replace(known, **changes)


def _candidate(offset: int, timestamp_ms: int = 0) -> Candidate:
    return Candidate(offset=Offset(offset), timestamp_ms=timestamp_ms)


def test_record_is_not_buried_by_the_attempts_of_a_larger_range() -> None:
    config = new_subscription_config({**DEAD, "attempts_max": 1})
    trouble = Trouble(
        first_failed_ms=0, range_end=Offset(50), try_end=Offset(50), attempts=1, is_split=True, is_well=True
    )
    found = Found(records=[Candidate(offset=Offset(0), timestamp_ms=0)], end=Offset(1))
    step = plan(replace(START, trouble=trouble), config, found, Facts(now_ms=1, succeeded_ms=0))
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
