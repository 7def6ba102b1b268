"""The workers of the share groups. The run kills and freezes their processes, wherever they are (`tormenting`).

Most handlers are quick, some are slower than a lock. Poison always fails. Some records are released with a delay,
rejected, or renewed by hand.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from penstock import Producer, Reject, ShareConsumer, Transformer
from penstock.errors import LockLostError
from penstock.model.share import ShareRecord
from penstock.producer.transaction import Transaction
from penstock.share.settings import WaitMode
from tests.chaos.clients.clients import DELIVERY_TIMEOUT_MS, Target, run_all
from tests.chaos.clients.queue_topics import EFFECTS, LANES, LATER, MOVERS, POOL, SEVENS, is_poison
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.clients.values import made_of, make_value, name_of
from tests.chaos.exchanges.shares import DEFAULT_LOCK_MS
from tests.chaos.recording import RecordingTransport
from tests.history.recorder import Recorder

SLOTS = ("a", "b", "c")
_GROUPS_OF_SLOT = {"a": (POOL, LANES), "b": (POOL, LANES, SEVENS), "c": (POOL, MOVERS)}
_QUICK_S, _SLOW_S = 0.02, 1.5 * DEFAULT_LOCK_MS / 1_000
_SLOW_SHARE, _RELEASED_SHARE, _REJECTED_SHARE, _RENEWED_SHARE = 0.02, 0.04, 0.03, 0.05
_CONCURRENCY = 3
_LATER_SHARE = 0.2  # of the transactions also send a delayed record
_DELAY_MS_MAX = 4_000


class PoisonError(Exception):
    """A handler fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """One life of one worker process."""

    target: Target
    recorder: Recorder
    name: str
    chance: Random
    stop: StopFile

    def consumer(self, group: str, wait: WaitMode) -> ShareConsumer:
        process = f"{self.name}.{group}"
        transport = RecordingTransport(self.target.transport(), self.recorder, process)
        return ShareConsumer(
            transport=transport, group_id=group, acknowledge="explicit", max_records=20, wait=wait, drain_ms=5_000
        )


def run_share_workers(target: Target, slot: str, life: int, seed: int, stop: StopFile) -> None:
    """A process's entry: the workers of a slot, until `stop` or until it is killed."""
    logging.getLogger("penstock.share").setLevel(logging.CRITICAL)  # poison would fill the run's output
    name = f"worker-{slot}.{life}"
    with target.recorder(name) as recorder:
        it = _Life(target=target, recorder=recorder, name=name, chance=Random(f"{seed}.{slot}.{life}"), stop=stop)
        run_all([_BODIES[group](it) for group in _GROUPS_OF_SLOT[slot]])


def _run_pool(life: _Life, group: str) -> None:
    """Handlers in threads. `run` acknowledges by itself."""
    consumer = life.consumer(group, "wake")

    def handle(record: ShareRecord) -> None:
        if _work(life, consumer, record):
            raise PoisonError(record.offset)

    stopper = _stopping(life.stop, consumer)
    run_all([lambda: consumer.run(handle, concurrency=_CONCURRENCY), stopper])


def _run_by_hand(life: _Life, group: str) -> None:
    """Polls a few records at a time, and acknowledges each."""
    with life.consumer(group, "poll") as consumer:
        while not life.stop.is_set():
            for record in consumer.poll(max_records=5, timeout_ms=500):
                try:
                    fails = _work(life, consumer, record)
                    if fails:
                        consumer.release(record)
                    elif consumer.is_held(record):
                        consumer.accept(record)
                except LockLostError:
                    continue
                except Reject as rejection:
                    if consumer.is_held(record):
                        consumer.reject(record, rejection.reason)


def _work(life: _Life, consumer: ShareConsumer, record: ShareRecord) -> bool:
    """Handle a record. Return whether the handler fails; it may have acknowledged the record by itself."""
    name, chance = name_of(record.value), life.chance.random()
    if is_poison(name):
        return True
    time.sleep(_SLOW_S if life.chance.random() < _SLOW_SHARE else life.chance.uniform(0, _QUICK_S))
    if chance < _RELEASED_SHARE:
        consumer.release(record, delay_ms=life.chance.choice([0, 300, 2_000]))
    elif chance < _RELEASED_SHARE + _REJECTED_SHARE:
        raise Reject(life.chance.choice(["", f"{name} is refused"]))
    elif chance < _RELEASED_SHARE + _REJECTED_SHARE + _RENEWED_SHARE:
        consumer.renew(record)
    return False


def _run_movers(life: _Life, group: str) -> None:
    """Makes one effect of each record, in a transaction that accepts the record."""
    transport = RecordingTransport(life.target.transport(), life.recorder, f"{life.name}.{group}.effects")
    with (
        life.consumer(group, "wake") as consumer,
        Producer(
            transport=transport, transactional_id="chaos-movers", delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        ) as producer,
    ):

        def move(record: ShareRecord, transaction: Transaction) -> None:
            if is_poison(name_of(record.value)):
                raise PoisonError(record.offset)
            effect = made_of(life.name, record.topic, record.partition, record.offset)
            transaction.send(EFFECTS, make_value(f"{effect}"), partition=record.partition)
            if life.chance.random() < _LATER_SHARE:
                later = f"{life.name}-{record.partition}-{record.offset}-{record.delivery_count}"
                transaction.send(LATER, make_value(later), delay_ms=life.chance.randrange(_DELAY_MS_MAX))
            time.sleep(life.chance.uniform(0, _QUICK_S))

        transformer = Transformer(consumer, producer, move)
        while not life.stop.is_set():
            try:
                transformer.run_once(timeout_ms=500)
            except PoisonError:
                continue  # its transaction was aborted, and its records released


def _stopping(stop: StopFile, consumer: ShareConsumer) -> Callable[[], None]:
    def wait() -> None:
        while not (stop.wait(0.2) or consumer.is_stopped):
            continue
        consumer.stop()

    return wait


_BODIES: dict[str, Callable[[_Life], Callable[[], None]]] = {
    POOL: lambda life: partial(_run_pool, life, POOL),
    LANES: lambda life: partial(_run_by_hand, life, LANES),
    SEVENS: lambda life: partial(_run_by_hand, life, SEVENS),
    MOVERS: lambda life: partial(_run_movers, life, MOVERS),
}
