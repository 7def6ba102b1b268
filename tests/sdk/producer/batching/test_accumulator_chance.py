"""The accumulator under any interleaving, against partitions that keep the service's rules in a simpler way."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock_core.errors import PenstockError
from penstock_core.records.producer_state import ProducerSequence, ProducerState, Verdict, judge, state_after
from penstock_core.records.record_batch import validate
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    SETTINGS,
    UNAVAILABLE,
    UNKNOWN,
    counting,
    new_topic,
    values_of,
)


class _Service:
    """Logs of partitions that number producers by the service's rules, in a simpler way."""

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes | None]] = {}
        self._offsets: dict[tuple[int, ProducerSequence], int] = {}
        self._states: dict[tuple[int, int], ProducerState] = {}

    def apply(self, entry: Entry) -> int | PenstockError:
        partition = entry.queue.partition
        sequence = validate(b"".join(batch.build() for batch in entry.batches)).sequence
        if sequence is not None:
            producer = (partition, sequence.producer_id)
            try:
                if judge(self._states.get(producer), sequence) is Verdict.REPEATS:
                    return self._offsets[partition, sequence]
            except PenstockError as error:
                return error
            self._states[producer] = state_after(sequence, 0)
            self._offsets[partition, sequence] = len(self.logs.get(partition, []))
        log = self.logs.setdefault(partition, [])
        base_offset = len(log)
        log += values_of(entry)
        return base_offset


_RESULTS = st.sampled_from(["ok", "ok", "refused", "lost request", "lost answer", "fatal"])
_ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 150)),
    st.tuples(st.just("drain"), st.just(0), st.just(0)),
    st.tuples(st.just("complete"), st.integers(0, 5), st.lists(_RESULTS, min_size=3, max_size=3)),
    st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
)


class _Run:
    """An accumulator, its driver and the partitions, which take one action after another."""

    def __init__(self, chance: float, *, is_idempotent: bool) -> None:
        settings = replace(SETTINGS, linger_ms=0, is_idempotent=is_idempotent)
        self.accumulator = Accumulator(settings, counting())
        self.topic = new_topic()
        self.service = _Service()
        self.sent: list[tuple[bytes, ProducerBatch, int]] = []
        self.finished: list[ProducerBatch] = []
        self.lost_answers: set[int] = set()  # ids of batches that were applied without the producer knowing
        self._chance = chance
        self._is_idempotent = is_idempotent
        self._flying: list[list[Entry]] = []
        self._now_ms = 0
        self._is_asleep = False

    def act(self, action: str, number: int, detail: object) -> None:
        if action == "append":
            value = b"%d:" % len(self.sent) + b"x" * int(str(detail))
            batch = self.accumulator.append(self.topic, number, None, value, (), 0, self._now_ms)
            if batch is not None:
                self.sent.append((value, batch, batch.record_count - 1))
        elif action == "drain":
            self._drain()
        elif action == "complete" and self._flying:
            outcomes = list(detail)  # type: ignore[call-overload]  # a list here
            self._complete(self._flying.pop(number % len(self._flying)), outcomes)
        elif action == "wait":
            self._now_ms += number

    def come_to_rest(self) -> None:
        for _ in range(200):
            if not (self._flying or self.accumulator.buffered_bytes):
                return
            for entries in self._flying:
                self._complete(entries, ["ok"] * 3)
            self._flying.clear()
            self._now_ms += 200
            self._drain()

    def check(self) -> None:
        assert len(self.finished) == len({id(batch) for batch in self.finished}), "two outcomes for one batch"
        places: dict[int, list[int]] = {}
        for value, batch, index in self.sent:
            assert batch.outcome is not None
            log = self.service.logs.get(batch.partition, [])
            if isinstance(batch.outcome, int):
                assert log[batch.outcome + index] == value
                assert log.count(value) == 1 or (id(batch) in self.lost_answers and not self._is_idempotent)
                places.setdefault(batch.partition, []).append(batch.outcome + index)
            else:
                assert not log.count(value) or batch.outcome.maybe_applied
                assert log.count(value) <= 1 or not self._is_idempotent
        for offsets in places.values():
            assert offsets == sorted(offsets), "delivered records are out of order"
        assert self.accumulator.buffered_bytes == 0

    def _drain(self) -> None:
        if self._is_asleep and self.accumulator.wake_at_ms > self._now_ms:
            return  # as the sender does: no call woke it
        self.finished += self.accumulator.expire(self._now_ms)
        entries = self.accumulator.drain(self._now_ms)
        self._is_asleep = not entries
        partitions = [entry.queue.partition for request in (*self._flying, entries) for entry in request]
        assert len(partitions) == len(set(partitions)), "a partition is in two requests"
        if entries:
            self._flying.append(entries)

    def _complete(self, entries: list[Entry], outcomes: list[str]) -> None:
        results = [self._result(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=False)]
        self.finished += self.accumulator.complete(entries, results, self._now_ms, self._chance)

    def _result(self, entry: Entry, outcome: str) -> int | PenstockError:
        if outcome == "ok":
            return self.service.apply(entry)
        if outcome == "lost answer":
            self.service.apply(entry)
            self.lost_answers.update(id(batch) for batch in entry.batches)
            return MAYBE
        return {"refused": UNAVAILABLE, "lost request": MAYBE, "fatal": UNKNOWN}[outcome]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60), st.floats(0, 1, exclude_max=True), st.booleans())
def test_each_record_has_one_true_outcome_under_any_interleaving(
    actions: list[tuple[str, int, object]], chance: float, is_idempotent: bool
) -> None:
    run = _Run(chance, is_idempotent=is_idempotent)
    for action, number, detail in actions:
        run.act(action, number, detail)
    run.come_to_rest()
    run.check()
