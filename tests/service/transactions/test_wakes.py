"""Transactions wake the readers that wait for their records, at a repeat too, and where nobody knows the outcome."""

import json
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import Nonce, TransactionalId
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction
from tests.support.service import (
    LOST_ANSWER,
    START_MS,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    entry,
    head_of,
    new_topic,
    patient_instance,
    send,
    with_stores,
)

NAME = TransactionalId("ledger")


@pytest.fixture
def wake_ups() -> MemoryWakeUps:
    return MemoryWakeUps()


@pytest.fixture
def instance(clock: SteppedClock, wake_ups: MemoryWakeUps) -> Instance:
    instance = with_stores(patient_instance(clock), wake_ups=wake_ups)
    begin_transactions(instance, NAME)
    return instance


@pytest.fixture
def topic(instance: Instance) -> str:
    topic = new_topic(instance, partitions=2)
    entries = [FetchEntry(topic=topic, partition=number, offset=0, max_bytes=1_000) for number in (0, 1)]
    fetch(instance, entries, max_bytes=1_000, min_bytes=1, wait_ms=0, must_arm=True).all_ok()
    return topic


def part(topic: str) -> TransactionPart:
    return TransactionPart(
        producer=TransactionalProducer(transactional_id=NAME, epoch=0),
        number=START_MS,
        entries=[entry(topic, 0, batch("a", "b"))],
        acks=Acks.QUORUM,
        nonce=Nonce(b"n" * 16),
    )


def woken(wake_ups: MemoryWakeUps) -> list[tuple[int, int | None]]:
    events = [json.loads(each.event) for each in wake_ups.messages]
    wake_ups.messages.clear()
    return [(each["partition"], each["next_offset"]) for each in events]


def test_commit_wakes_the_readers_of_its_partitions(instance: Instance, topic: str, wake_ups: MemoryWakeUps) -> None:
    commit_transaction(instance, part(topic), [], 0)
    assert woken(wake_ups) == [(0, 2)]
    assert head_of(instance, topic).waiter_ms is not None, "a transaction cannot tell that it took a waiter: it stays"
    send(instance, topic, "c")
    assert woken(wake_ups) == [(0, 3)]
    send(instance, topic, "d")
    assert woken(wake_ups) == []


def test_repeated_commit_wakes_again(instance: Instance, topic: str, wake_ups: MemoryWakeUps) -> None:
    commit_transaction(instance, part(topic), [], 0)
    woken(wake_ups)
    commit_transaction(instance, part(topic), [], 0)
    assert woken(wake_ups) == [(0, 2)], "the first try may have died before it woke anybody"


def test_commit_that_nobody_can_tell_the_end_of_wakes_blindly(
    instance: Instance, topic: str, wake_ups: MemoryWakeUps
) -> None:
    def lost(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        raise LOST_ANSWER

    silent = Intercepted(instance.stores.transactions, commit=lost, get=lost)
    with pytest.raises(PenstockError) as caught:
        commit_transaction(another_instance(instance, transactions=silent), part(topic), [], 0)
    assert caught.value.maybe_applied
    assert woken(wake_ups) == [(0, None)]


def test_refused_commit_wakes_nobody(instance: Instance, topic: str, wake_ups: MemoryWakeUps) -> None:
    begin_transactions(instance, NAME)
    with pytest.raises(PenstockError):
        commit_transaction(instance, part(topic), [], 0)
    assert woken(wake_ups) == []
