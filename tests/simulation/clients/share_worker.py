"""A worker of a share group: it acquires, handles, and acknowledges. It may be slow, or die with its locks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import AckEntry, AckOutcome, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.share_partitions import parse_marked_lock_id
from tests.history.recorder import OpenOperation
from tests.simulation.clients.share_history import ShareRecord
from tests.simulation.oracle.shares import ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_TRIES_MAX = 4
_BYTES_MAX = 100_000
_FORGETS_RATE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHabits:
    """How workers of a run behave.

    - It acquires `acquires` times before it handles what it has got: from several partitions, as a rule.
    - `records_max`, `work_ms` and `lock_ms` are drawn for each acquire.
    - `death_rate` is the share of acquires that it dies with.
    - `doubled_rate` is the share of calls that come a second time, up to a minute late.
    - `acknowledges_at_once` is the share of acknowledgements that do not wait for the next acquire.
    - Values that end with `poison` kill their worker. The handler of those that end with `bad` always fails.
    """

    records_max: Sequence[int]
    work_ms: Sequence[float]
    death_rate: float
    doubled_rate: float
    poison: str | None
    bad: str | None
    acknowledges_at_once: float = 0.3
    lock_ms: Sequence[int | None] = (None, 1_000, 4_000)
    acquires: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lock that the worker was told of, and its records."""

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
        self.group = group
        self.name = name
        self._habits = habits
        self._record = ShareRecord(simulation.recorder, group, oracle.config.lock_ms)
        self._pending: list[AckEntry] = []
        self._asked_ms = 0.0  # when the newest try of an acquire began
        self._keys: dict[tuple[str, int], ShareKey] = {}  # of each lock that it was told of, and its partition

    def run(self, rounds: int) -> None:
        """Acquire so many times, or until the worker dies."""
        for _ in range(rounds):
            held = [each for _ in range(self._habits.acquires) for each in self._taken()]
            if not held:
                self._scheduler.pause(self._random.choice([5.0, 200.0, 1_500.0]))
                continue
            if self._dies_of(held):
                self._simulation.count("share worker died")
                return
            self.handle(held)
        self._acknowledge()

    def _taken(self) -> list[Holding]:
        acquired = self.acquire()
        return [] if acquired is None else self.told(acquired)

    def handle(self, held: Sequence[Holding]) -> None:
        """Work on the records, and decide. The next acquire carries the acknowledgements, if they do not go at once."""
        self._scheduler.pause(self._random.choice(self._habits.work_ms))
        self._pending = [entry for each in held for entry in self._decide(each)]
        if self._random.random() < self._habits.acknowledges_at_once:
            self._acknowledge()

    def acquire(self, *, must_arm: bool = False) -> Acquired | None:
        """One acquire, tried again with its nonce. A repeat says so, as the SDK does."""
        entries, self._pending = tuple(self._pending), []
        wish = AcquireWish(
            nonce=LockNonce(f"{self._random.randrange(16**8):08x}"),
            records_max=self._random.choice(self._habits.records_max),
            bytes_max=self._random.choice([100, 1_000, _BYTES_MAX]),
            lock_ms=self._random.choice(self._habits.lock_ms),
            acknowledgements=entries,
            must_arm=must_arm,
        )
        generations = self.sends(entries)
        for tries in range(_TRIES_MAX):
            run = partial(acquire, group_name=self.group, wish=replace(wish, is_repeat=tries > 0))
            self._double(run, entries, wish.nonce)
            operation = self._record.asks(self.name, entries, wish.nonce)
            self._asked_ms = self._scheduler.now_ms
            try:
                acquired = self._simulation.call(run, is_read=False, is_judged=bool(entries))
            except PenstockError as error:
                self._scheduler.note("not acquired", error)
                if self._gives_up(operation, error):
                    return None
                continue
            self._record.is_told(operation, acquired.acknowledged, acquired)
            self._check(generations, acquired.acknowledged)
            self._simulation.count("share acquired")
            return acquired
        return None

    def _gives_up(self, operation: OpenOperation, error: PenstockError) -> bool:
        """After a pause. A worker that is told that nothing was changed may forget what it has asked for."""
        (self._simulation.recorder.maybe if error.maybe_applied else self._simulation.recorder.fail)(operation)
        self._scheduler.pause(self._random.choice([10.0, 500.0]))
        return not error.maybe_applied and self._random.random() < _FORGETS_RATE

    def _double(
        self, run: Callable[[Instance], object], entries: Sequence[AckEntry], nonce: LockNonce | None = None
    ) -> None:
        """Perhaps let the network bring the call once more, for nobody."""
        if self._random.random() < self._habits.doubled_rate:

            def again() -> None:
                self._simulation.recorder.maybe(self._record.asks(self.name, entries, nonce))
                self._simulation.attempt("not done again", run, is_judged=bool(entries))

            delay_ms = self._random.choice([0.0, 50.0, 500.0, 3_000.0, 60_000.0])
            self._scheduler.spawn(f"{self.name} again", again, delay_ms=delay_ms)

    def told(self, acquired: Acquired) -> list[Holding]:
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
                self._keys[lock.client_lock_id, key.partition] = key
                for offset in RecordSet(lock.ranges).offsets():
                    self._check_record(key, offset, records.get(offset))
                holding = Holding(
                    key=key,
                    topic=partition.partition.topic,
                    client_lock_id=lock.client_lock_id,
                    ranges=lock.ranges,
                )
                found.append(holding)
        return found

    def _check_record(self, key: ShareKey, offset: int, found: str | None) -> None:
        place = key.partition_key
        value = self._oracle.value(place, offset)
        is_removed = found is None and self._oracle.is_removed(place, offset)
        expect(is_removed or found == value, f"{self.name} got {found} at {offset} of {key}, and {value} was appended")
        self._simulation.oracle.expiries.check_delivered(self.name, value, self._asked_ms)
        expect(self._oracle.takes(place, offset), f"{self.name} got {found} at {offset} of {key}: no filter takes it")

    def _dies_of(self, held: Sequence[Holding]) -> bool:
        if self._random.random() < self._habits.death_rate:
            return True
        poison = self._habits.poison
        return poison is not None and any(
            self._oracle.value(each.key.partition_key, offset).endswith(poison)
            for each in held
            for offset in RecordSet(each.ranges).offsets()
        )

    def _decide(self, held: Holding) -> list[AckEntry]:
        """The acknowledgements of one lock: of the whole, or of parts."""
        bad = self._habits.bad
        failing = [
            offset
            for offset in RecordSet(held.ranges).offsets()
            if bad is not None and self._oracle.value(held.key.partition_key, offset).endswith(bad)
        ]
        chance = self._random.random()
        if failing:
            failed = normalized((offset, offset + 1) for offset in failing)
            rest = RecordSet(held.ranges).minus(failed).ranges
            delay_ms = self._random.choice([None, 0, 700])
            release = self.entry(held, AckType.RELEASE, failed)
            release = replace(release, acknowledgement=replace(release.acknowledgement, delay_ms=delay_ms))
            return [release, *([self.entry(held, AckType.ACCEPT, rest)] if rest else [])]
        if chance < 0.6:
            return [self.entry(held, AckType.ACCEPT, None)]
        if chance < 0.7:
            return [self.entry(held, AckType.RENEW, None), self.entry(held, AckType.ACCEPT, None)]
        if chance < 0.8:
            middle = held.ranges[0][0] + 1
            first = RecordSet(held.ranges).only(((0, middle),)).ranges
            rest = RecordSet(held.ranges).minus(((0, middle),)).ranges
            kind = self._random.choice([AckType.RELEASE, AckType.REJECT])
            return [self.entry(held, AckType.ACCEPT, first), *([self.entry(held, kind, rest)] if rest else [])]
        if chance < 0.85:
            return [self.entry(held, AckType.REJECT, None)]
        if chance < 0.95:
            return [self.entry(held, AckType.RELEASE, None)]
        return []  # it forgets the lock

    def entry(self, held: Holding, kind: AckType, offsets: Ranges | None) -> AckEntry:
        """The acknowledgement of the lock, or of some of its records."""
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
        generations = self.sends(entries)
        for _ in range(_TRIES_MAX):
            self._double(lambda instance: acknowledge(instance, self.group, entries), entries)
            operation = self._record.asks(self.name, entries)
            try:
                outcomes = self._simulation.call(
                    lambda instance: acknowledge(instance, self.group, entries), is_read=False
                )
            except PenstockError as error:
                self._scheduler.note("not acknowledged", error)
                if self._gives_up(operation, error):
                    return
                continue
            self._record.is_told(operation, outcomes)
            self._check(generations, outcomes)
            return

    def sends(self, entries: Sequence[AckEntry]) -> dict[ShareKey, int]:
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
        return self._keys[entry.client_lock_id, entry.partition]
