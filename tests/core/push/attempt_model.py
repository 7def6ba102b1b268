"""A partition with its target, delivered by the plans of `penstock_core.push.attempt`, on a stepped time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_core.ids import Offset
from penstock_core.limits import DEAD_LETTERS_AT_ONCE
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
    plan,
)
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble, commit, skip
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
            step = plan(self.state, self.config, found, replace(facts, proof_ms=self._succeeded_elsewhere_ms()))
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
            self._put(commit(self.state, tried.end, self.now_ms, self.now_ms))
            self.deaths = 0
        elif isinstance(answer, Failure):
            self._put(fail(self.state, self.config, tried, Failed(failure=answer, error="no"), self.now_ms))
            self.deaths = 0
        elif answer >= 0:
            is_first = answer == offsets[0]
            named = Named(offset=Offset(answer), is_first=is_first, has_proof=not is_first, error="no")
            self._put(fail_record(self.state, self.config, named, self.now_ms, self.now_ms))
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


def alone(**changes: Any) -> Trouble:
    known = Trouble(first_failed_ms=0, range_end=Offset(1), failing_end=Offset(1), try_end=Offset(1))
    return replace(known, **changes)


def candidate(offset: int, timestamp_ms: int = 0) -> Candidate:
    return Candidate(offset=Offset(offset), timestamp_ms=timestamp_ms)
