"""Transactional producers, of which two processes with one id fence each other, over partitions that all write to.

Each transaction writes one value to each of two partitions, and the number of the next transaction as a group's offset.
Whoever cannot learn what became of a commit begins another epoch, and is told for good.
"""

from typing import Any

from penstock_broker.begin_transactions import begin_transactions
from penstock_broker.broker import Broker
from penstock_broker.commit_transaction import GroupOffset, commit_transaction, stage
from penstock_broker.committed_offsets import committed_offsets
from penstock_broker.produce import ProduceEntry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, encode
from penstock_core.transaction import Transaction, TransactionalProducer
from tests.history import format as history
from tests.simulation.instance import EPOCH_MS
from tests.simulation.reader import SimulatedReader
from tests.simulation.violation import expect
from tests.simulation.workloads.observer import Observer
from tests.simulation.world import World

_TOPIC = "moved"
_PARTITIONS = 2


def install(world: World) -> None:
    random = world.scheduler.random
    world.topic(_TOPIC, partitions=_PARTITIONS)
    judge = _Judge(world)
    world.observers.append(judge.observe)
    world.final_checks.append(judge.check_end)
    for number in range(random.choice([1, 2])):
        for process in range(random.choice([1, 2, 2])):
            _Process(world, judge, TransactionalId(f"t{number}"), process).start()
    SimulatedReader(world, "tr", _TOPIC, is_topic_stable=True).start()
    Observer(world, "to", _TOPIC).start()


class _Judge:
    """What must hold of all transactions, at the effect of each call and at the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epochs: dict[TransactionalId, int] = {}
        self._committed: dict[TransactionalId, list[str]] = {}  # their texts, in order
        self.outcomes: dict[str, bool] = {}  # what the processes know of their texts

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "transactions" or isinstance(outcome, PenstockError):
            return
        if method == "begin_epoch":
            expect(outcome.epoch > self._epochs.get(arguments[0], -1), f"epoch {outcome.epoch} of {arguments[0]} again")
            self._epochs[arguments[0]] = outcome.epoch
        elif method == "commit" and outcome:
            self._commit(arguments[0])

    def _commit(self, transaction: Transaction) -> None:
        producer = transaction.producer
        newest = self._epochs[producer.transactional_id]
        expect(producer.epoch == newest, f"{producer} committed, and epoch {newest} has begun")
        texts = self._committed.setdefault(producer.transactional_id, [])
        expect(transaction.number == len(texts), f"transaction {transaction.number} of {producer} after {len(texts)}")
        values = {value.rpartition("/")[0] for value in self._world.truth.newest_values(transaction)}
        expect(len(values) == 1 and len(transaction.refs) == _PARTITIONS, f"{producer} committed {values}")
        texts += values

    def check_end(self) -> None:
        committed = [text for texts in self._committed.values() for text in texts]
        expect(len(committed) == len(set(committed)), f"a transaction was committed twice: {committed}")
        places = self._world.truth.places
        for text, is_committed in self.outcomes.items():
            for partition in range(_PARTITIONS):
                copies = len(places.get(f"{text}/{partition}", ()))
                expect(copies == is_committed, f"{text} is told to be {is_committed}, and stands {copies} times")
        for transactional_id, texts in self._committed.items():
            offsets = {each.offset for each in committed_offsets(self._world.stores, transactional_id, None)}
            expect(offsets == {len(texts)}, f"{transactional_id} has committed {len(texts)}, its offset is {offsets}")


class _Process:
    """One instance of a transactional producer."""

    def __init__(self, world: World, judge: _Judge, transactional_id: TransactionalId, process: int) -> None:
        self._world = world
        self._judge = judge
        self._id = transactional_id
        self._name = f"{transactional_id}.{process}"

    def start(self) -> None:
        self._world.work(self._name, self._run)

    def _run(self) -> None:
        random = self._world.scheduler.random
        state: tuple[int, int] | None = None
        for count in range(random.choice([3, 8])):
            self._world.scheduler.pause(random.uniform(0.0, 400.0))
            state = state or self._begin()
            if state is not None:
                state = self._transact(f"{self._name}-{count}", *state)

    def _begin(self) -> tuple[int, int] | None:
        """The epoch, and the number of the next transaction; None if the service does not answer for long."""
        for _ in range(20):
            try:
                state = self._world.call(lambda broker: begin_transactions(broker, self._id), is_read=False)
            except PenstockError:
                self._world.scheduler.pause(500.0)
            else:
                return state.epoch, state.number + 1
        return None

    def _transact(self, text: str, epoch: int, number: int) -> tuple[int, int] | None:
        """The state to go on with; None to begin anew."""
        producer = TransactionalProducer(transactional_id=self._id, epoch=epoch)
        # As if the transactions of one id were made from the records of one partition, each from the next.
        sends = [
            history.Send((_TOPIC, partition), f"{text}/{partition}", None, (self._id, 0, number, f"to {partition}"))
            for partition in range(_PARTITIONS)
        ]
        recorder = self._world.story.recorder
        ops = [*sends, history.Commit((_TOPIC, 0), number + 1)]
        operation = recorder.invoke(self._name, history.Function.TXN, ops, group=self._id)
        is_committed = self._try(producer, number, text)
        if is_committed is None:
            begun = self._begin()
            if begun is None or begun[0] != epoch + 1:  # else another process may have committed since
                recorder.maybe(operation, attempts=1)
                return begun
            is_committed = begun[1] > number
            self._world.count("outcome learnt")
        else:
            begun = (epoch, number + 1) if is_committed else None
        self._judge.outcomes[text] = is_committed
        (recorder.ok if is_committed else recorder.fail)(operation)
        self._world.count("transaction committed" if is_committed else "transaction refused")
        return begun

    def _try(self, producer: TransactionalProducer, number: int, text: str) -> bool | None:
        """Whether it was committed; None if nobody says."""
        random = self._world.scheduler.random
        entries = [self._entry(text, partition) for partition in range(_PARTITIONS)]
        staged = random.choice([0, 0, 1, 2])
        was_unanswered = False
        for _ in range(random.choice([1, 3, 6])):
            try:
                for index in range(staged):
                    self._world.call(
                        lambda broker, index=index: stage(  # type: ignore[misc]  # mypy cannot infer it
                            broker, producer, number, index, [entries[index]], Acks.QUORUM
                        ),
                        is_read=False,
                    )
                self._world.call(
                    lambda broker: self._commit(broker, producer, number, entries[staged:], staged), is_read=False
                )
            except PenstockError as error:
                was_unanswered |= error.maybe_applied
                if error.code is ErrorCode.PRODUCER_FENCED:
                    return None if was_unanswered else self._fenced()
                if not error.code.is_retriable:
                    return None if was_unanswered else False
                self._world.scheduler.pause(random.uniform(1.0, 300.0))
            else:
                return True
        return None

    def _fenced(self) -> bool:
        self._world.count("transaction fenced")
        return False

    def _entry(self, text: str, partition: int) -> ProduceEntry:
        now_ms = EPOCH_MS + int(self._world.scheduler.now_ms)
        data = encode([NewRecord(now_ms, None, f"{text}/{partition}".encode())])
        return ProduceEntry(topic=_TOPIC, partition=partition, data=data)

    def _commit(
        self, broker: Broker, producer: TransactionalProducer, number: int, entries: list[ProduceEntry], stages: int
    ) -> None:
        offset = GroupOffset(group=self._id, topic=_TOPIC, partition=0, offset=number + 1)
        commit_transaction(broker, producer, number, entries, [offset], stages, Acks.QUORUM)
