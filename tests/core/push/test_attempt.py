import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.push.attempt import Again, Bury, Evidence, next_attempt, pause_ms
from penstock_core.push.batch import Failure
from penstock_core.push.delivery import DeliveryState, begin, commit, end_of_try, fail
from penstock_core.push.subscription import SubscriptionConfig, new_subscription_config

DEAD = {"dead_letter_topic": "orders.dead"}
MINUTE_MS = 60_000


@dataclass(kw_only=True)
class Target:
    """Fails on the records of `poison`, and on all between two times. It notes what it handled first, in order."""

    poison: frozenset[int] = frozenset()
    away_ms: range = range(0)
    failure: Failure = Failure.REFUSAL
    invocations: int = 0
    handled: list[int] = field(default_factory=list)

    def invoke(self, start: int, end: int, now_ms: int) -> Failure | None:
        self.invocations += 1
        if now_ms in self.away_ms:
            return self.failure
        if self.poison & set(range(start, end)):
            return Failure.REFUSAL
        self.handled += [each for each in range(start, end) if each not in self.handled]
        return None


@dataclass(kw_only=True)
class Delivery:
    """Delivers the records [0, end) of one partition by the plans. `buried` and `now_ms` are what became of it."""

    target: Target
    config: SubscriptionConfig
    end: int
    now_ms: int = 1
    buried: list[int] = field(default_factory=list)
    succeeded_elsewhere_ms: int = 0
    old_after_ms: int | None = None

    def run(self) -> None:
        state = DeliveryState(offset=Offset(0))
        while state.offset < self.end:
            state = self._once(state)
            self.now_ms += 10

    def _once(self, state: DeliveryState) -> DeliveryState:
        end = end_of_try(state, Offset(min(self.end, state.offset + self.config.batch_records)))
        state = begin(state, end)
        failure = self.target.invoke(state.offset, end, self.now_ms)
        if failure is None:
            return commit(state, end, self.now_ms)
        state = fail(state, failure, end, "no", self.now_ms)
        is_old = self.old_after_ms is not None and self.now_ms >= self.old_after_ms
        evidence = Evidence(
            now_ms=self.now_ms,
            succeeded_ms=self.succeeded_elsewhere_ms,
            old_end=end if is_old else state.offset,
        )
        step = next_attempt(state, self.config, evidence)
        if isinstance(step, Bury):
            self.buried += range(state.offset, step.state.offset)
        elif step.pause_ms:
            self.now_ms += step.pause_ms
        return step.state


def test_clean_run_delivers_each_batch_once() -> None:
    delivery = Delivery(target=Target(), config=new_subscription_config({"batch_records": 100}), end=1_000)
    delivery.run()
    assert (delivery.target.invocations, delivery.target.handled, delivery.buried) == (10, list(range(1_000)), [])


@pytest.mark.parametrize("poison", [0, 1, 49, 50, 99, 517])
def test_one_poison_record_is_buried_alone_within_the_bound(poison: int) -> None:
    target = Target(poison=frozenset({poison}))
    delivery = Delivery(target=target, config=new_subscription_config({**DEAD, "batch_records": 100}), end=1_000)
    delivery.succeeded_elsewhere_ms = 10**12
    delivery.run()
    assert delivery.buried == [poison]
    assert target.handled == [each for each in range(1_000) if each != poison]
    # The batch is cut at the poison record, which shifts the later ones: one more invocation at most.
    assert target.invocations <= 10 + 1 + 5 + math.ceil(2 * math.log2(100))


@given(
    poison=st.frozensets(st.integers(0, 199), max_size=12),
    batch_records=st.integers(1, 64),
    attempts_max=st.integers(1, 4),
)
def test_all_but_poison_is_handled_in_order_and_all_poison_is_buried(
    poison: frozenset[int], batch_records: int, attempts_max: int
) -> None:
    config = new_subscription_config({**DEAD, "batch_records": batch_records, "attempts_max": attempts_max})
    delivery = Delivery(target=Target(poison=poison), config=config, end=200, succeeded_elsewhere_ms=10**12)
    delivery.run()
    assert delivery.buried == sorted(poison)
    assert delivery.target.handled == [each for each in range(200) if each not in poison]


@pytest.mark.parametrize("failure", Failure)
def test_outage_shorter_than_the_patience_buries_nothing(failure: Failure) -> None:
    target = Target(away_ms=range(25, 10 * MINUTE_MS), failure=failure)
    delivery = Delivery(target=target, config=new_subscription_config({**DEAD, "batch_records": 10}), end=1_000)
    delivery.run()
    assert delivery.buried == []
    assert target.handled == list(range(1_000))
    assert target.invocations <= 100 + 30  # the pauses grow


def test_refusals_without_any_success_are_buried_after_the_patience() -> None:
    target = Target(away_ms=range(10**12))
    config = new_subscription_config({**DEAD, "batch_records": 1, "patience_ms": MINUTE_MS})
    delivery = Delivery(target=target, config=config, end=1)
    delivery.run()
    assert delivery.buried == [0]
    assert delivery.now_ms >= MINUTE_MS


def test_outage_is_never_buried_before_its_age() -> None:
    target = Target(away_ms=range(10**12), failure=Failure.AWAY)
    config = new_subscription_config({**DEAD, "age_ms_max": 3_600_000, "patience_ms": 0})
    delivery = Delivery(target=target, config=config, end=50, old_after_ms=3_600_000)
    delivery.run()
    assert delivery.buried == list(range(50))
    assert delivery.now_ms >= 3_600_000


def test_batch_goes_whole_where_it_is_not_bisected() -> None:
    target = Target(poison=frozenset({3}))
    config = new_subscription_config({**DEAD, "batch_records": 10, "bisect": False, "attempts_max": 2})
    delivery = Delivery(target=target, config=config, end=20, succeeded_elsewhere_ms=10**12)
    delivery.run()
    assert (delivery.buried, target.handled) == (list(range(10)), list(range(10, 20)))


def test_records_are_tried_for_ever_without_a_dead_letter_topic() -> None:
    config = new_subscription_config({})
    state = fail(DeliveryState(offset=Offset(0)), Failure.REFUSAL, Offset(1), "no", 0)
    for attempt in range(1, 50):
        step = next_attempt(state, config, Evidence(now_ms=10**12, succeeded_ms=10**12, old_end=Offset(1)))
        assert isinstance(step, Again)
        assert step.pause_ms == pause_ms(config, attempt)
        state = begin(step.state, Offset(1))
    assert pause_ms(config, 50) == config.backoff_ms_max
