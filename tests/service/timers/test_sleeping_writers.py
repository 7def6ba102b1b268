"""A program that embeds the service sleeps after any of its calls. Each timer that it acknowledges comes (G12).

Its messages are lost: only the run of each minute delivers, and it forgets minutes that are over (docs/adr/0039).
"""

from collections.abc import Callable

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import NONCE_BYTES, Nonce, TransactionalId
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.retention.retain import retain
from penstock_service.timers.promote_due import promote_due
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction, stage
from tests.service.timers.delays import delay, delayed
from tests.support.interleaving import asleep_after
from tests.support.service import SteppedClock, another_instance, head_of, new_topic, patient_instance

MINUTE = 60_000
HOUR = 60 * MINUTE
NAME = TransactionalId("ledger")
CALLS_MAX = 24  # no write here makes so many

Write = Callable[[Instance, int], object]
Meanwhile = Callable[[Instance, SteppedClock], None]


def put(instance: Instance, due_ms: int) -> None:
    delay(instance, "orders", due_ms, "precious", partition=1)


def stage_and_commit(instance: Instance, due_ms: int) -> None:
    def part(*entries: ProduceEntry) -> TransactionPart:
        producer = TransactionalProducer(transactional_id=NAME, epoch=0)
        return TransactionPart(
            producer=producer, number=number, entries=entries, acks=Acks.QUORUM, nonce=Nonce(bytes(NONCE_BYTES))
        )

    state = instance.stores.transactions.get(NAME)
    assert state is not None
    number = state.number + 1
    stage(instance, part(delayed("orders", due_ms, "precious", partition=1)), 0)
    commit_transaction(instance, part(), [], 1)


def is_acknowledged(write: Write, delay_ms: int, meanwhile: Meanwhile, place: int) -> bool | None:
    """Whether the write was acknowledged though its program slept after that call: then its record has come.

    None if it makes no such call.
    """
    clock, slept = SteppedClock(), list[bool]()
    clock.time_ms = 1_790_000_000_000.0
    instance = patient_instance(clock)
    new_topic(instance, partitions=2)
    begin_transactions(instance, NAME)
    others, due_ms = another_instance(instance), clock.now_ms() + delay_ms

    def sleep() -> None:
        slept.append(True)
        meanwhile(others, clock)

    try:
        write(asleep_after(instance, place, sleep), due_ms)
    except PenstockError:
        return False
    for _ in range(60):
        clock.time_ms = max(clock.time_ms + MINUTE, due_ms)
        promote_due(others, budget_ms=40_000)
    came = head_of(instance, "orders", partition=1).next_offset
    assert came == 1, f"acknowledged after a sleep behind call {place}, and {came} records came"
    assert not slept or others.topic_cache.read_through("orders").partitions == 2, "no list names its partition"
    return True if slept else None


def outcomes(write: Write, delay_ms: int, meanwhile: Meanwhile) -> set[bool | None]:
    return {is_acknowledged(write, delay_ms, meanwhile, place) for place in range(CALLS_MAX)}


def promote_each_minute(others: Instance, clock: SteppedClock) -> None:
    for _ in range(40):
        clock.time_ms += MINUTE
        promote_due(others, budget_ms=40_000)


def drain(others: Instance, clock: SteppedClock) -> None:
    alter_topic(others, "orders", 1, {})
    for _ in range(4):
        clock.time_ms += HOUR
        retain(others, budget_ms=60_000.0)


@pytest.mark.parametrize("write", [put, stage_and_commit])
def test_delayed_record_comes_when_its_writer_slept_over_its_minute(write: Write) -> None:
    """A sleep behind the last check is harmless, and the writer learns of one before it."""
    assert outcomes(write, 1_000, promote_each_minute) == {True, False, None}


@pytest.mark.parametrize("write", [put, stage_and_commit])
def test_delayed_record_is_in_no_partition_that_went_while_its_writer_slept(write: Write) -> None:
    assert outcomes(write, 24 * HOUR, drain) == {True, False, None}
