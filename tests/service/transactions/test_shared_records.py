"""Accepted records of share groups in a transaction: finished with its output, or not at all."""

from collections import Counter
from collections.abc import Sequence

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Nonce
from penstock_core.share.acknowledge import AckType
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.transactions.begin_transactions import TransactionPart
from penstock_service.transactions.commit_transaction import commit_transaction
from penstock_service.transactions.share_commits import Acceptance
from tests.service.share.sharing import (
    GROUP,
    entries_of,
    entry_of,
    finish,
    locks_in,
    new_group,
    offsets_in,
    state_of,
    take,
)
from tests.service.transactions.test_transactions import begin
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    START_MS,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    filled_topic,
    new_topic,
    read_all,
    with_stores,
)


@pytest.fixture
def work(instance: Instance) -> Instance:
    """The topic orders with ten records and a share group, and the topic bills."""
    filled_topic(instance, records=10)
    new_topic(instance, "bills")
    new_group(instance)
    return instance


def acceptances(acquired: Acquired) -> list[Acceptance]:
    return [Acceptance(group=GROUP, entry=each) for each in entries_of(acquired)]


def commit(
    instance: Instance,
    producer: TransactionalProducer,
    number: int,
    accepted: Sequence[Acceptance],
    value: str = "bill",
) -> None:
    """One transaction that writes a bill and accepts the records."""
    part = TransactionPart(
        producer=producer,
        number=START_MS + number,
        entries=[entry("bills", 0, batch("bill"))],
        acks=Acks.QUORUM,
        nonce=Nonce(number.to_bytes(16)),
    )
    commit_transaction(instance, part, (), 0, accepted)


def bills(instance: Instance) -> list[str]:
    return [value for _, value in read_all(instance, "bills")]


def test_records_are_finished_with_the_output_that_they_led_to(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    commit(work, producer, 0, acceptances(held))
    assert bills(work) == ["bill"]
    assert state_of(work).unfinished() == ()
    assert [each.result.value for each in finish(work, held)] == ["done"]


def test_lock_that_was_lost_aborts_the_whole(work: Instance, clock: SteppedClock) -> None:
    producer, held = begin(work), take(work, 1, lock_ms=1_000)
    clock.sleep_ms(60_000)
    other = take(work, 1)
    while offsets_in(other) != offsets_in(held):
        other = take(work, 1)
    refused(ErrorCode.LOCK_LOST, lambda: commit(work, producer, 0, acceptances(held)))
    assert bills(work) == []
    finish(work, other)
    refused(ErrorCode.LOCK_LOST, lambda: commit(work, producer, 0, acceptances(held)))
    assert bills(work) == [], "another consumer has finished the record"


def test_finished_records_count_once(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    finish(work, held)
    refused(ErrorCode.LOCK_LOST, lambda: commit(work, producer, 0, acceptances(held)))
    assert bills(work) == []


def test_part_of_a_lock_and_several_locks_of_one_partition(work: Instance) -> None:
    producer = begin(work)
    [first], [second] = locks_in(take(work, 3)), locks_in(take(work, 3))
    accepted = [
        Acceptance(group=GROUP, entry=entry_of(first, AckType.ACCEPT, ((0, 1),))),
        Acceptance(group=GROUP, entry=entry_of(first, AckType.ACCEPT, ((2, 3),))),
        Acceptance(group=GROUP, entry=entry_of(second)),
    ]
    commit(work, producer, 0, accepted)
    assert state_of(work).unfinished() == ((1, 2),)


def test_repeated_commit_is_answered_as_the_first(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    accepted = acceptances(held)
    commit(work, producer, 0, accepted)
    commit(work, producer, 0, accepted)
    assert bills(work) == ["bill"]


def test_renewed_lock_is_still_ours(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    finish(work, held, AckType.RENEW, lock_ms=60_000)
    commit(work, producer, 0, acceptances(held))
    assert bills(work) == ["bill"]


@pytest.mark.parametrize("place", range(10))
def test_other_consumers_between_disturb_nothing(work: Instance, place: int) -> None:
    producer, held = begin(work), take(work, 4)

    def interfere() -> None:
        finish(work, take(another_instance(work), 2))

    commit(interrupted_before(work, place, interfere), producer, 0, acceptances(held))
    assert bills(work) == ["bill"]


@pytest.mark.parametrize("place", range(12))
@pytest.mark.parametrize("is_applied", [False, True])
def test_transaction_that_dies_is_done_or_not(work: Instance, place: int, is_applied: bool) -> None:
    producer, held = begin(work), take(work, 4)
    with catch_kill():
        commit(killed_at(work, place, is_applied=is_applied), producer, 0, acceptances(held))
    assert len(bills(work)) == (1 if not state_of(work).open else 0)
    commit(work, producer, 0, acceptances(held))
    assert bills(work) == ["bill"]
    assert state_of(work).open == 0


def test_lost_answer_says_so(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)

    def lose(_original: object, _transaction: object) -> bool:
        raise LOST_ANSWER

    def unread(_original: object, _name: object) -> object:
        raise LOST_ANSWER

    lossy = another_instance(work, transactions=Intercepted(work.stores.transactions, commit=lose, get=unread))
    with pytest.raises(PenstockError) as caught:
        commit(lossy, producer, 0, acceptances(held))
    assert caught.value.maybe_applied


def test_too_many_locks_of_one_partition(instance: Instance) -> None:
    filled_topic(instance, records=40)
    new_topic(instance, "bills")
    new_group(instance)
    producer = begin(instance)
    held = [take(instance, 1) for _ in range(20)]
    accepted = [each for acquired in held for each in acceptances(acquired)]
    refused(ErrorCode.TRANSACTION_TOO_LARGE, lambda: commit(instance, producer, 0, accepted))


def test_unknown_group_and_topic(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    [acceptance] = acceptances(held)
    unknown = Acceptance(group="nobody", entry=acceptance.entry)
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: commit(work, producer, 0, [unknown]))
    assert bills(work) == []


def test_calls_of_a_transaction_with_shared_records(work: Instance) -> None:
    producer, held = begin(work), take(work, 4)
    counts: Counter[str] = Counter()
    counted = counted_instance(work, counts)
    commit(counted, producer, 0, acceptances(held))
    assert counts["share.find_states"] == counts["transactions.commit"] == 1
    assert counts["share.update"] == 0


def test_consumer_that_waits_for_a_key_is_woken(clock: SteppedClock, instance: Instance) -> None:
    wake_ups = MemoryWakeUps()
    instance = with_stores(instance, wake_ups=wake_ups)
    filled_topic(instance, records=4)
    new_topic(instance, "bills")
    new_group(instance, ordering="key")
    producer, held = begin(instance), take(instance)
    take(instance, must_arm=True)
    commit(instance, producer, 0, acceptances(held))
    assert [message.channel.split("/")[-1] for message in wake_ups.messages] == ["share"]
