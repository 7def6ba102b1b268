"""A worker of a share group: it acquires, handles, and acknowledges. It may be slow, or die with its locks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_state import ShareKey
from penstock_service.share.acknowledge import AckEntry, AckOutcome, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.client_lock import parse_marked_lock_id
from tests.simulation.oracle.shares import ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_TRIES_MAX = 4
_BYTES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHabits:
    """How workers of a run behave.

    - `records_max` and `work_ms` are drawn for each acquire. `death_rate` is the share of acquires that it dies with.
    - `doubled_rate` is the share of calls that come a second time, up to a minute late.
    - Values that end with `poison` kill their worker. The handler of those that end with `bad` always fails.
    """

    records_max: Sequence[int]
    work_ms: Sequence[float]
    death_rate: float
    doubled_rate: float
    poison: str | None
    bad: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holding:
    """A lock that the worker was told of."""

    key: ShareKey
    topic: str
    client_lock_id: str
    ranges: Ranges


class ShareWorker:
    """Works until the run is over and it has found nothing for a while, or until it dies."""

    def __init__(
        self, simulation: Simulation, oracle: ShareOracle, group: str, name: str, habits: WorkerHabits
    ) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._random = simulation.scheduler.random
        self._oracle = oracle
        self._group = group
        self._name = name
        self._habits = habits
        self._pending: list[AckEntry] = []

    def run(self, rounds: int) -> None:
        """Acquire so many times, or until the worker dies."""
        for _ in range(rounds):
            acquired = self._acquire()
            if acquired is None:
                continue
            held = self._told(acquired)
            if not held:
                self._scheduler.pause(self._random.choice([5.0, 200.0, 1_500.0]))
                continue
            if self._dies_of(held):
                self._simulation.count("share worker died")
                return
            self._scheduler.pause(self._random.choice(self._habits.work_ms))
            self._pending = [entry for each in held for entry in self._decide(each)]
            if self._random.random() < 0.3:
                self._acknowledge()
        self._acknowledge()

    def _acquire(self) -> Acquired | None:
        """One acquire, tried again with its nonce."""
        entries, self._pending = tuple(self._pending), []
        wish = AcquireWish(
            nonce=LockNonce(f"{self._random.randrange(16**8):08x}"),
            records_max=self._random.choice(self._habits.records_max),
            bytes_max=self._random.choice([100, 1_000, _BYTES_MAX]),
            lock_ms=self._random.choice([None, 1_000, 4_000]),
            acknowledgements=entries,
        )
        generations = self._send(entries)
        for _ in range(_TRIES_MAX):
            self._double(wish)
            try:
                acquired = self._simulation.call(lambda instance: acquire(instance, self._group, wish), is_read=False)
            except PenstockError as error:
                self._scheduler.note("not acquired", error)
                self._scheduler.pause(self._random.choice([10.0, 500.0]))
                continue
            self._check(generations, acquired.acknowledged)
            self._simulation.count("share acquired")
            return acquired
        return None

    def _double(self, wish: AcquireWish) -> None:
        """Perhaps let the network bring the call once more, for nobody."""
        if self._random.random() < self._habits.doubled_rate:

            def again() -> None:
                try:
                    self._simulation.call(lambda instance: acquire(instance, self._group, wish), is_read=False)
                except PenstockError as error:
                    self._scheduler.note("not acquired again", error)

            delay_ms = self._random.choice([0.0, 50.0, 3_000.0, 60_000.0])
            self._scheduler.spawn(f"{self._name} again", again, delay_ms=delay_ms)

    def _told(self, acquired: Acquired) -> list[_Holding]:
        """The locks of the answer. Each record under them must be there as it was appended."""
        found = []
        for partition in acquired.partitions:
            key = partition.partition.key
            for lock in partition.locks:
                records = {
                    record.offset: (record.value or b"").decode()
                    for batch in lock.batches
                    for record in decode(memoryview(bytes(batch.data)))
                }
                for offset in RecordSet(lock.ranges).offsets():
                    value = self._oracle.value(key, offset)
                    expect(
                        records.get(offset) == value,
                        f"{self._name} got {records.get(offset)} at {offset} of {key}, and {value} was appended",
                    )
                holding = _Holding(
                    key=key,
                    topic=partition.partition.topic,
                    client_lock_id=lock.client_lock_id,
                    ranges=lock.ranges,
                )
                found.append(holding)
        return found

    def _dies_of(self, held: Sequence[_Holding]) -> bool:
        if self._random.random() < self._habits.death_rate:
            return True
        poison = self._habits.poison
        return poison is not None and any(
            self._oracle.value(each.key, offset).endswith(poison)
            for each in held
            for offset in RecordSet(each.ranges).offsets()
        )

    def _decide(self, held: _Holding) -> list[AckEntry]:
        """The acknowledgements of one lock: of the whole, or of parts."""
        bad = self._habits.bad
        failing = [
            offset
            for offset in RecordSet(held.ranges).offsets()
            if bad is not None and self._oracle.value(held.key, offset).endswith(bad)
        ]
        chance = self._random.random()
        if failing:
            failed = normalized((offset, offset + 1) for offset in failing)
            rest = RecordSet(held.ranges).minus(failed).ranges
            delay_ms = self._random.choice([None, 0, 700])
            release = self._entry(held, AckType.RELEASE, failed)
            release = replace(release, acknowledgement=replace(release.acknowledgement, delay_ms=delay_ms))
            return [release, *([self._entry(held, AckType.ACCEPT, rest)] if rest else [])]
        if chance < 0.6:
            return [self._entry(held, AckType.ACCEPT, None)]
        if chance < 0.7:
            return [self._entry(held, AckType.RENEW, None), self._entry(held, AckType.ACCEPT, None)]
        if chance < 0.8:
            middle = held.ranges[0][0] + 1
            first = RecordSet(held.ranges).only(((0, middle),)).ranges
            rest = RecordSet(held.ranges).minus(((0, middle),)).ranges
            kind = self._random.choice([AckType.RELEASE, AckType.REJECT])
            return [self._entry(held, AckType.ACCEPT, first), *([self._entry(held, kind, rest)] if rest else [])]
        if chance < 0.85:
            return [self._entry(held, AckType.REJECT, None)]
        if chance < 0.95:
            return [self._entry(held, AckType.RELEASE, None)]
        return []  # it forgets the lock

    def _entry(self, held: _Holding, kind: AckType, offsets: Ranges | None) -> AckEntry:
        lock_id, generation, handed_out, mark = parse_marked_lock_id(held.client_lock_id)
        return AckEntry(
            topic=held.topic,
            partition=held.key.partition,
            client_lock_id=held.client_lock_id,
            mark=mark,
            acknowledgement=Acknowledgement(
                lock_id=lock_id,
                type=kind,
                offsets=held.ranges if offsets is None and handed_out is None else offsets,
                reason="because",
                generation=generation,
                handed_out=handed_out,
            ),
        )

    def _acknowledge(self) -> None:
        entries, self._pending = tuple(self._pending), []
        if not entries:
            return
        generations = self._send(entries)
        for _ in range(_TRIES_MAX):
            try:
                outcomes = self._simulation.call(
                    lambda instance: acknowledge(instance, self._group, entries), is_read=False
                )
            except PenstockError as error:
                self._scheduler.note("not acknowledged", error)
                self._scheduler.pause(self._random.choice([10.0, 500.0]))
                continue
            self._check(generations, outcomes)
            return

    def _send(self, entries: Sequence[AckEntry]) -> dict[ShareKey, int]:
        """Tell the oracle what is about to be sent. The generations of the items by then."""
        keys = {self._key(entry): None for entry in entries}
        for entry in entries:
            self._oracle.sends(self._key(entry), entry.acknowledgement)
        return {key: self._oracle.generation(key) for key in keys}

    def _check(self, generations: dict[ShareKey, int], outcomes: Sequence[AckOutcome]) -> None:
        for each in outcomes:
            key = self._key(each.entry)
            self._simulation.count(f"share {each.entry.acknowledgement.type.value} {each.result.value}")
            self._oracle.answered(key, each.entry.acknowledgement, generations[key], each.ranges or (), each.result)

    def _key(self, entry: AckEntry) -> ShareKey:
        return next(key for key in self._oracle.partitions if key.partition == entry.partition)
