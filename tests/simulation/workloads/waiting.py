"""Readers wait for wake-ups on a topic that producers and a transactional producer write to at a slow pace.

The seed draws what may go wrong:

- `retried`: every fault of storage. Each producer repeats its request until it has an answer, so the wake-up comes with
  one of its tries. No wake-up is lost on its way.
- `plain`: producers without idempotence. Their writes are not late, and no function dies.
- `lossy`: every fault, and wake-ups are lost, late and doubled. Only the safety net is left.

Some readers look at the heads in place of the safety net's fetch, as members of a group do.
"""

from collections.abc import Callable
from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import NONCE_BYTES, Nonce, TransactionalId
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.records.produce import ProduceEntry
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction
from tests.history import format as history
from tests.simulation.clients.producer import ProducerChoices, start_producers
from tests.simulation.clients.waiting_reader import WaitingReader
from tests.simulation.engine.claims import SentValue
from tests.simulation.engine.faults import Fault
from tests.simulation.service.simulation import Simulation
from tests.support.service import batch

_TOPIC = "awaited"
_DEADLY = (Fault.LATE, Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
_TRIES_MAX = 20


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    mode = random.choice(["retried", "retried", "plain", "plain", "lossy"])
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 2, 7]))
    wake_ups = simulation.use_wake_ups(is_faulty=mode == "lossy")
    if mode == "plain":
        rates = simulation.faults.rates
        simulation.faults.set_rates({fault: 0.0 if fault in _DEADLY else rate for fault, rate in rates.items()})
    choices = ProducerChoices(
        records=[5, 10], acks=Acks.QUORUM, pace_ms=[20.0, 2_000.0, 20_000.0], is_idempotent=mode != "plain"
    )
    start_producers(simulation, topic, [f"w{number}" for number in range(random.choice([1, 2]))], choices)
    if mode != "plain" and random.random() < 0.5:
        transactor = _Transactor(simulation, topic)
        simulation.work("waker", transactor.run)
    for number in range(random.choice([1, 3])):
        reader = WaitingReader(
            simulation,
            wake_ups,
            f"wr{number}",
            topic,
            deliver=partial(_deliver_badly, simulation) if mode == "lossy" else _deliver,
            is_promised=partial(_is_promised, simulation, mode),
            look_ms=random.choice([None, 3_000.0, 15_000.0]),
        )
        reader.start()
        simulation.final_checks.append(reader.check_end)


def _deliver(wake: Callable[[], None]) -> None:
    wake()


def _deliver_badly(simulation: Simulation, wake: Callable[[], None]) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([0, 1, 1, 2])):
        delay_ms = random.choice([0.0, 100.0, 30_000.0])
        simulation.scheduler.spawn("wake-up", wake, delay_ms=delay_ms)


def _is_promised(simulation: Simulation, mode: str) -> bool:
    """True if no wake-up can have been lost.

    A producer that gave up may have appended, and taken the waiter, in a try whose function died. So may a producer
    without idempotence whose function timed out: its next try appends anew.
    """
    if mode == "plain":
        return not simulation.counts["function timeout"] and not simulation.counts["no answer"]
    sent = simulation.claims.sent.values()
    return mode == "retried" and not any(each.maybe and not each.acked for each in sent if each.topic == _TOPIC)


class _Transactor:
    """Commits transactions of one record each, and repeats each commit until it has an answer."""

    def __init__(self, simulation: Simulation, topic: str) -> None:
        self._simulation = simulation
        self._topic = topic
        self._random = simulation.scheduler.random

    def run(self) -> None:
        producer_id = TransactionalId("waker")
        state = begin_transactions(self._simulation.bare, producer_id)
        producer = TransactionalProducer(transactional_id=producer_id, epoch=state.epoch)
        for number in range(self._random.choice([2, 5])):
            self._simulation.scheduler.pause(self._random.uniform(0.0, 10_000.0))
            if not self._commit(producer, state.number + 1 + number):
                return

    def _commit(self, producer: TransactionalProducer, number: int) -> bool:
        simulation = self._simulation
        value = f"waker-{number}"
        partition = self._random.randrange(simulation.topics[self._topic])
        part = TransactionPart(
            producer=producer,
            number=number,
            entries=[ProduceEntry(topic=self._topic, partition=partition, data=batch(value))],
            acks=Acks.QUORUM,
            nonce=Nonce(self._random.randbytes(NONCE_BYTES)),
        )
        sent = SentValue(self._topic, partition, Acks.QUORUM, is_idempotent=True)
        simulation.claims.sent[value] = sent
        where = (self._topic, partition)
        operation = simulation.recorder.invoke(
            "waker", history.Function.SEND, [history.Send(where, value)], acks=history.Acks(Acks.QUORUM.value)
        )
        began_ms = simulation.scheduler.now_ms
        for _ in range(_TRIES_MAX):
            try:
                ranges = simulation.call(lambda instance: commit_transaction(instance, part, [], 0), is_read=False)
            except PenstockError as error:
                sent.maybe += error.maybe_applied
                simulation.scheduler.pause(50.0)
                continue
            for each in ranges:
                simulation.claims.acknowledge(value, each.base_offset, began_ms)
                simulation.recorder.ok(operation, [history.Send(where, value, each.base_offset)])
            if not ranges:  # they have expired
                sent.maybe += 1
                simulation.recorder.maybe(operation)
            return True
        if sent.maybe:
            simulation.recorder.maybe(operation)
        else:
            simulation.recorder.fail(operation)
        return False
