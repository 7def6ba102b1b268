"""Operators change the partitions of a topic that waits, while keyed producers write and a group reads.

The topic has ordering_on_change=wait. Alterations die and come late, answers are lost, and members of the group crash
between reading and committing. Two things must hold. No append takes effect in an older generation after one in a newer
generation did. And a group meets the records of one producer and key for the first time in the order in which they were
sent.

The group begins before the first change, as one with auto_offset_reset="latest" does: it commits where it starts. Its
members begin at the end of a partition without a commit, unless that came late. They leave and join again. They read
with a filter: they commit behind the records that match, and pass the others.

Before, the topic had more partitions, without the setting. The operator who took them died before their heads closed,
and one producer has not heard of it.

A ledger writes transactions to partitions that it looks up. So it comes to closed partitions, too, and ends what an
operator who died has begun.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.producer.batching.producer_batch import ProducerBatch
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.ids import NONCE_BYTES, Nonce, PartitionKey, TransactionalId
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, GROUP_CHECK_MS_MAX
from penstock_core.records.codec import decode
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.heartbeat import HeartbeatRequest, heartbeat, leave
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import ProduceEntry
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction
from tests.history import format as history
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.reader import Observer, SimulatedReader
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.service import batch

_TOPIC = "turning"
_GROUP = "turners"
_BEFORE = 4  # partitions; then 2 of them take records
_STALE = 3  # the partition that a producer still writes to
_KEYS = 6
_PASSED = 3  # the filter takes no record whose number is a multiple of it
_SESSION_MS = 6_000
_END = (ErrorCode.UNKNOWN_MEMBER, ErrorCode.MEMBER_FENCED)


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.topic(_TOPIC, partitions=_BEFORE)
    _begin_to_wait(simulation.bare)
    order = _Order(simulation)
    simulation.storage.observers.append(order.observe)
    for number in range(3):
        producer = SimulatedProducer(
            simulation,
            f"g{number}",
            _TOPIC,
            records=random.choice([20, 40]),
            acks=Acks.QUORUM if Acks.QUORUM in simulation.acks_allowed else random.choice(simulation.acks_allowed),
            pace_ms=random.choice([20.0, 200.0]),
            is_idempotent=True,
            key_of=_key_of,
            is_partitioning_by_key=True,
        )
        producer.start(delay_ms=random.uniform(0.0, 4_000.0))
    acks = random.choice(simulation.acks_allowed)
    _StaleProducer(simulation, "gs", _TOPIC, records=20, acks=acks, pace_ms=400.0).start()
    simulation.scheduler.spawn("ledger", _Ledger(simulation).run)
    SimulatedReader(simulation, "gr", _TOPIC, is_topic_stable=True).start()
    Observer(simulation, "go", _TOPIC).start()

    def resize() -> None:
        for _ in range(random.choice([1, 2, 4])):
            simulation.scheduler.pause(random.uniform(50.0, 3_000.0))
            SimulatedAdmin(simulation, "turner").add_partitions(_TOPIC, random.choice([1, 2, 3]))

    for number in range(random.choice([1, 2])):
        simulation.work(f"turner{number}", resize)
    starts = [CommitEntry(topic=_TOPIC, partition=number, offset=0) for number in range(_BEFORE)]
    commit_offsets(simulation.bare, _GROUP, starts).all_ok()
    for number in range(random.choice([1, 2])):
        member = GenerationMember(simulation, order, f"gm{number}")
        simulation.scheduler.spawn(member.name, member.run)
    simulation.final_checks.append(order.check_end)


def _begin_to_wait(instance: Instance) -> None:
    """An operator takes two partitions, and dies before their heads close. The next one lets changes wait."""
    old = instance.topic_cache.read_through(_TOPIC)
    instance.stores.topics.replace(old, old.with_writable(2))
    instance.topic_cache.forget(_TOPIC)
    alter_topic(instance, _TOPIC, None, {"ordering_on_change": "wait"})


def _number(value: str) -> int:
    return int(value.rpartition("-")[2])


def _key_of(value: str) -> str:
    return f"k{_number(value) % _KEYS}"


def _matches(value: str) -> bool:
    return _number(value) % _PASSED != 0


class _StaleProducer(SimulatedProducer):
    """Writes to one partition, whatever the topic says."""

    def _append(self, value: str) -> ProducerBatch | None:
        now_ms = int(self._scheduler.now_ms)
        if not self._queues.partitions:
            self._queues.update(_BEFORE, 10_000, BATCH_BYTES_DEFAULT_MAX)
        time_ms = EPOCH_MS + now_ms
        batch = self._accumulator.append(self._queues, _STALE, None, value.encode(), (), time_ms, now_ms)
        if batch is not None:
            batch.is_pinned = True
        return batch


class _Ledger:
    """Commits a transaction of two partitions now and then, by a view of the topic that may be old."""

    _ID = TransactionalId("ledger")

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._sent = 0

    def run(self) -> None:
        topic = self._simulation.bare.topic_cache.read_through(_TOPIC)
        for _ in range(self._random.choice([4, 12])):
            self._simulation.scheduler.pause(self._random.uniform(50.0, 1_500.0))
            with suppress(PenstockError):
                state = self._simulation.call(partial(self._begin, Begin(nonce=self._nonce())), is_read=False)
                self._transact(state, [*{topic.first_writable, topic.writable_end - 1}])
            if self._random.random() < 0.5:
                topic = self._simulation.bare.topic_cache.read_through(_TOPIC)

    def _transact(self, state: TransactionState, partitions: Sequence[int]) -> None:
        values = {f"ledger-{self._sent + index}": partition for index, partition in enumerate(partitions)}
        self._sent += len(values)
        sends = [history.Send((_TOPIC, partition), value) for value, partition in values.items()]
        recorder = self._simulation.recorder
        operation = recorder.invoke("ledger", history.Function.SEND, sends, acks=history.Acks.QUORUM)
        try:
            self._simulation.call(partial(self._commit, state, self._nonce(), values), is_read=False)
            self._simulation.count("transaction in a generation")
        finally:
            recorder.maybe(operation, attempts=1)

    def _begin(self, begin: Begin, instance: Instance) -> TransactionState:
        return begin_transactions(instance, self._ID, begin)

    def _commit(
        self, state: TransactionState, nonce: Nonce, values: Mapping[str, int], instance: Instance
    ) -> Sequence[object]:
        part = TransactionPart(
            producer=TransactionalProducer(transactional_id=self._ID, epoch=state.epoch),
            number=state.number + 1,
            entries=[ProduceEntry(topic=_TOPIC, partition=each, data=batch(value)) for value, each in values.items()],
            acks=Acks.QUORUM,
            nonce=nonce,
        )
        return commit_transaction(instance, part, [], 0)

    def _nonce(self) -> Nonce:
        return Nonce(self._random.randbytes(NONCE_BYTES))


class _Order:
    """The order in which the group meets records for the first time, and the generations that appends went to."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._newest = 0  # the first partition of the newest generation that has a record
        self._met: dict[str, None] = {}

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if label == "log" and method in ("append", "append_in_sequence") and outcome.is_appended:
            self._append([arguments[0]])
        elif (label, method, outcome) == ("transactions", "commit", True):
            self._append([*arguments[0].refs])

    def _append(self, keys: Sequence[PartitionKey]) -> None:
        topic = self._simulation.bare.topic_cache.read_through(_TOPIC)
        starts = {
            max(each for each in topic.generations if each <= key.partition)
            for key in keys
            if key.topic_id == topic.topic_id
        }
        expect(len(starts) < 2, f"one transaction wrote to generations {starts}")
        for start in starts:
            expect(start >= self._newest, f"{keys} took an append after partition {self._newest} did")
            self._newest = start

    def meet(self, value: str) -> None:
        """A member of the group handles a record."""
        self._met.setdefault(value)

    def check_end(self) -> None:
        """Read on to the end, as one last member does. Then compare what was met with what was sent."""
        instance = self._simulation.undisturbed()
        topic = instance.topic_cache.read_through(_TOPIC)
        alter_topic(instance, _TOPIC, topic.writable_partitions, {})
        last = GenerationMember(self._simulation, self, "last", instance)
        clock = self._simulation.scheduler
        for _ in range(200):
            last.step()
            if len(last.held) == instance.topic_cache.read_through(_TOPIC).partitions and not last.has_read:
                break
            clock.now_ms += GROUP_CHECK_MS_MAX
        else:
            expect(False, f"the group reads {sorted(last.held)} of {topic}, and not to the end")
        if len(topic.generations) > 1:
            self._simulation.count("generation read")
        for key, values in self._sent():
            met = [each for each in self._met if each in values]
            expect(met == values, f"{key} was sent as {values}, and met as {met}")

    def _sent(self) -> Iterator[tuple[tuple[str, str], list[str]]]:
        """The acknowledged records by producer and key, in the order in which they were sent."""
        found: dict[tuple[str, str], list[str]] = {}
        for value, sent in self._simulation.claims.sent.items():
            if sent.topic == _TOPIC and sent.acked and _matches(value):
                found.setdefault((value.rpartition("-")[0], _key_of(value)), []).append(value)
        return iter(found.items())


class GenerationMember:
    """A member of the group: it beats, reads what it holds, and commits, or dies before and joins anew."""

    def __init__(self, simulation: Simulation, order: _Order, name: str, sure: Instance | None = None) -> None:
        self.name = name
        self.held: dict[PartitionKey, list[int]] = {}  # the lease's epoch, and the next offset
        self.has_read = False
        self._simulation = simulation
        self._order = order
        self._sure = sure
        self._lives = 0
        self._forget()

    def run(self) -> None:
        random = self._simulation.scheduler.random
        while not self._simulation.is_over:
            self._simulation.scheduler.pause(random.uniform(20.0, 800.0))
            if random.random() < 0.05:
                self._forget()
            elif random.random() < 0.05:
                self._leave()
            with suppress(PenstockError):
                self.step()

    def step(self) -> None:
        """One heartbeat, and then one fetch and one commit for each partition held."""
        self._beat()
        self.has_read = False
        for key in [*self.held]:
            if key in self.held:
                self._read(key)

    def offset_to_commit(self, returned: Sequence[int], position: int) -> int | None:
        """As the SDK's members commit: behind the last record returned, or what they have passed without one."""
        return returned[-1] + 1 if returned else position

    def _call(self, run: Any, *, is_read: bool) -> Any:
        if self._sure is not None:
            return run(self._sure)
        return self._simulation.call(run, is_read=is_read)

    def _forget(self) -> None:
        self._lives += 1
        self.held.clear()
        self._sequence, self._epoch, self._session, self._is_complete = 0, 0, 0, False

    def _leave(self) -> None:
        beat = HeartbeatRequest(member_id=f"{self.name}.{self._lives}", sequence=self._sequence + 1, epoch=self._epoch)
        self._forget()
        with suppress(PenstockError):
            self._call(lambda instance: leave(instance, _GROUP, beat), is_read=False)

    def _beat(self) -> None:
        self._sequence += 1
        beat = HeartbeatRequest(
            member_id=f"{self.name}.{self._lives}",
            sequence=self._sequence,
            epoch=self._epoch,
            session=self._session,
            subscription=parse_subscription([_TOPIC], []) if not self._epoch else None,
            owned=None if self._is_complete or not self._epoch else frozenset(self.held),
            config={"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": 500},
        )
        try:
            told = self._call(lambda instance: heartbeat(instance, _GROUP, beat), is_read=False)
        except PenstockError as error:
            if error.code in _END or self._epoch == 0:
                self._forget()
            raise
        self._epoch, self._session, self._is_complete = told.epoch, told.session, told.is_complete
        for key in told.revoked:
            self.held.pop(key, None)
        for lease in told.granted:
            is_at_end = lease.offset is None and lease.partition not in told.late
            start = self._end_of(lease.partition) if is_at_end else lease.offset or 0
            self.held[lease.partition] = [lease.epoch, start]

    def _end_of(self, key: PartitionKey) -> int:
        """Where a consumer with auto_offset_reset="latest" begins."""
        return self._simulation.bare.stores.log.heads([key])[key].next_offset

    def _read(self, key: PartitionKey) -> None:
        epoch, offset = self.held[key]
        entry = FetchEntry(topic=_TOPIC, partition=key.partition, offset=offset, max_bytes=1_000)
        [found] = self._call(
            lambda instance: fetch(instance, [entry], max_bytes=1_000, min_bytes=1, wait_ms=0), is_read=True
        )
        if not isinstance(found, FetchResult) or key not in self.held:
            return
        values = {each.offset: (each.value or b"").decode() for each in decode(bytes(found.data))}
        matching = [each for each, value in values.items() if each >= offset and _matches(value)]
        for each in matching:
            self._order.meet(values[each])
        self.has_read = self.has_read or found.next_offset > offset
        self.held[key][1] = found.next_offset
        behind = self.offset_to_commit(matching, found.next_offset)
        if behind is None:
            return
        commit = CommitEntry(topic=_TOPIC, partition=key.partition, offset=behind, lease_epoch=epoch)
        [error] = self._call(
            lambda instance: commit_offsets(instance, _GROUP, [commit], f"{self.name}.{self._lives}", None),
            is_read=False,
        )
        if isinstance(error, PenstockError):
            self.held.pop(key, None)
            self._is_complete = False
