"""The accumulator under any interleaving, against partitions that keep the service's rules in a simpler way."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accumulator import Accumulator, Entry
from penstock.producer_batch import ProducerBatch
from penstock_core.errors import PenstockError
from penstock_core.producer_state import (
    ProducerSequence,
    ProducerState,
    Verdict,
    judge,
    state_after,
)
from penstock_core.record_batch import validate
from tests.sdk.accumulator_setting import (
    MAYBE,
    SETTINGS,
    UNAVAILABLE,
    UNKNOWN,
    counting,
    new_topic,
    values_of,
)


class _Service:
    """Partitions' logs, and what they know of producers: by the rules of the service, kept in a simpler way."""

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


@settings(max_examples=300)
@given(st.lists(_ACTIONS, max_size=60), st.floats(0, 1, exclude_max=True), st.booleans())
def test_nothing_is_lost_reordered_or_told_wrongly_under_any_interleaving(
    actions: list[tuple[str, int, object]], chance: float, is_idempotent: bool
) -> None:
    idempotent = replace(SETTINGS, linger_ms=0, is_idempotent=is_idempotent)
    accumulator, topic, service = Accumulator(idempotent, counting()), new_topic(), _Service()
    sent: list[tuple[bytes, ProducerBatch, int]] = []
    flying: list[list[Entry]] = []
    finished: list[ProducerBatch] = []
    lost_answers: set[int] = set()  # ids of batches that were applied without the producer knowing
    now_ms = 0
    is_asleep = False

    def result(entry: Entry, what: str) -> int | PenstockError:
        if what == "ok":
            return service.apply(entry)
        if what == "lost answer":
            service.apply(entry)
            lost_answers.update(id(batch) for batch in entry.batches)
            return MAYBE
        return {"refused": UNAVAILABLE, "lost request": MAYBE, "fatal": UNKNOWN}[what]

    def complete(entries: list[Entry], outcomes: list[str]) -> None:
        results = [result(entry, what) for entry, what in zip(entries, outcomes, strict=False)]
        finished.extend(accumulator.complete(entries, results, now_ms, chance))

    def drain() -> None:
        nonlocal is_asleep
        if is_asleep and accumulator.wake_at_ms > now_ms:
            return  # as the sender does: nobody woke it
        finished.extend(accumulator.expire(now_ms))
        entries = accumulator.drain(now_ms)
        is_asleep = not entries
        partitions = [entry.queue.partition for request in (*flying, entries) for entry in request]
        assert len(partitions) == len(set(partitions)), "a partition is in two requests"
        if entries:
            flying.append(entries)

    for action, number, detail in actions:
        if action == "append":
            value = b"%d:" % len(sent) + b"x" * int(str(detail))
            batch = accumulator.append(topic, number, None, value, (), 0, now_ms)
            if batch is not None:
                sent.append((value, batch, batch.record_count - 1))
        elif action == "drain":
            drain()
        elif action == "complete" and flying:
            complete(flying.pop(number % len(flying)), list(detail))  # type: ignore[call-overload]  # a list here
        elif action == "wait":
            now_ms += number
    for _ in range(200):
        if not (flying or accumulator.buffered_bytes):
            break
        for entries in flying:
            complete(entries, ["ok"] * 3)
        flying.clear()
        now_ms += 200
        drain()

    assert len(finished) == len({id(batch) for batch in finished}), "two outcomes for one batch"
    places: dict[int, list[int]] = {}
    for value, batch, index in sent:
        assert batch.outcome is not None
        log = service.logs.get(batch.partition, [])
        if isinstance(batch.outcome, int):
            assert log[batch.outcome + index] == value
            assert log.count(value) == 1 or (id(batch) in lost_answers and not is_idempotent)
            places.setdefault(batch.partition, []).append(batch.outcome + index)
        else:
            assert not log.count(value) or batch.outcome.maybe_applied
            assert log.count(value) <= 1 or not is_idempotent
    for offsets in places.values():
        assert offsets == sorted(offsets), "delivered records are out of order"
    assert accumulator.buffered_bytes == 0
