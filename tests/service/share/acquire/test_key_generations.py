"""Order by key across changes of partitions, where changes begin generations (docs/protocol/partitions)."""

import random
from collections import Counter
from collections.abc import Mapping
from zlib import crc32

import pytest

from penstock_core.ids import LockNonce
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.acquire.fresh_window import in_turn, strays
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.list_offsets import OffsetSpec
from tests.service.share.sharing import (
    GROUP,
    entries_of,
    entry_of,
    finish,
    locks_in,
    new_group,
    state_of,
    take,
    values_in,
)
from tests.support.service import SteppedClock, another_instance, counted_instance, new_topic

WAITS = {"ordering_on_change": "wait"}


@pytest.fixture
def fifo(instance: Instance) -> Instance:
    """A topic of two partitions whose changes wait, and its share group by key."""
    new_topic(instance, partitions=2)
    alter_topic(instance, "orders", None, WAITS)
    new_group(instance, ordering="key")
    return instance


def send(instance: Instance, key: str, value: str) -> None:
    """One record, to the partition of its key in the newest generation."""
    topic = instance.topic_cache.read_through("orders")
    partition = topic.writable_place(crc32(key.encode()))
    data = encode([NewRecord(1_000, key.encode(), value.encode())])
    produce(instance, [ProduceEntry(topic="orders", partition=partition, data=data)], Acks.QUORUM).all_ok()


def change(instance: Instance, partitions: int) -> None:
    """A new generation."""
    alter_topic(another_instance(instance), "orders", partitions, {})
    instance.topic_cache.read_through("orders")


def test_later_generation_waits_for_records_that_were_never_handed_out(fifo: Instance) -> None:
    place = crc32(b"a") % 2
    for number in range(4):
        send(fifo, "a", f"old {number}")
    change(fifo, 3)
    send(fifo, "c", "new")
    nonce = next(f"nonce-{number}" for number in range(10, 99) if _first_look(f"nonce-{number}")[1] >= 2)
    first = take(fifo, 1, nonce=nonce)
    assert values_in(first) == ["old 0"]
    assert state_of(fifo, place).position == 1
    finish(fifo, first)
    second = take(fifo, 1, nonce=f"{nonce}-2")
    assert values_in(second) == ["old 1"]
    assert values_in(take(fifo)) + values_in(take(fifo)) == ["new"]
    assert state_of(fifo, place).position == 4


def test_key_waits_until_its_older_records_are_finished_and_other_keys_do_not(fifo: Instance) -> None:
    send(fifo, "a", "old a")
    slow = take(fifo)
    change(fifo, 3)
    for key in ("a", "b", "c"):
        send(fifo, key, f"new {key}")
    assert sorted(values_in(take(fifo)) + values_in(take(fifo)) + values_in(take(fifo))) == ["new b", "new c"]
    finish(fifo, slow)
    assert values_in(take(fifo)) == ["new a"]


def test_poison_record_of_an_older_generation_holds_up_its_key_only(fifo: Instance, clock: SteppedClock) -> None:
    send(fifo, "poison", "old")
    change(fifo, 5)
    for number in range(3):
        finish(fifo, take(fifo), AckType.RELEASE)
        send(fifo, "poison", f"behind {number}")
        send(fifo, "other", f"free {number}")
        handled = take(fifo)
        assert values_in(handled) == [f"free {number}"]
        finish(fifo, handled)
        clock.sleep_ms(3_600_000)


def test_rejected_record_of_an_older_generation_has_left_the_order(fifo: Instance) -> None:
    send(fifo, "a", "old")
    change(fifo, 3)
    finish(fifo, take(fifo), AckType.REJECT)
    send(fifo, "a", "new")
    assert values_in(take(fifo)) == ["new"]


def test_records_that_are_gone_hold_nothing_back(fifo: Instance) -> None:
    send(fifo, "a", "gone")
    change(fifo, 3)
    send(fifo, "a", "new")
    truncate(fifo, "orders", {crc32(b"a") % 2: 1})
    assert values_in(take(fifo)) == ["new"]


def test_consumer_is_told_to_look_again_while_an_older_record_is_unfinished(
    fifo: Instance, clock: SteppedClock
) -> None:
    send(fifo, "a", "old")
    slow = take(fifo, lock_ms=300_000)
    change(fifo, 3)
    send(fifo, "a", "new")
    assert take(fifo).next_available_ms == 1_000
    clock.sleep_ms(100_000)
    assert take(fifo).next_available_ms == 10_000
    finish(fifo, slow)
    assert values_in(take(fifo)) == ["new"]


def test_armed_consumer_is_told_to_look_again_too(fifo: Instance) -> None:
    send(fifo, "a", "old")
    take(fifo, lock_ms=300_000)
    change(fifo, 3)
    send(fifo, "a", "new")
    waiting = take(fifo, must_arm=True)
    assert (values_in(waiting), waiting.next_available_ms) == ([], 1_000)


def test_repeat_gets_its_locks_back_when_an_older_partition_was_reset_meanwhile(fifo: Instance) -> None:
    send(fifo, "a", "old")
    finish(fifo, take(fifo))
    change(fifo, 3)
    send(fifo, "a", "new")
    place = crc32(b"a") % 3
    nonce = next(f"nonce-{number}" for number in range(10, 99) if _first_look(f"nonce-{number}") == (0, 2 + place))
    assert values_in(take(fifo, nonce=nonce)) == ["new"]
    reset_share_group(fifo, GROUP, "orders", ShareResetTo(end=OffsetSpec.EARLIEST), [0, 1])
    assert values_in(take(fifo, nonce=nonce)) == ["new"]


def test_instance_with_an_old_view_holds_back_what_it_acknowledges_beside(fifo: Instance) -> None:
    """It looks at a partition of a generation that it does not know, because a lock there is acknowledged."""
    beside = next(key for key in "bcdefgh" if crc32(key.encode()) % 3 == crc32(b"a") % 3)
    send(fifo, "a", "old a")
    take(fifo)
    other = another_instance(fifo)
    other.topic_cache.get("orders")
    change(fifo, 3)
    send(fifo, beside, "new beside")
    taken = take(fifo)
    assert values_in(taken) == ["new beside"]
    send(fifo, "a", "new a")
    assert not strays(LockNonce("nonce-01"))
    assert values_in(take(other, nonce="nonce-01", acknowledge=entries_of(taken))) == []


def test_topic_that_is_gone_holds_nothing_back(fifo: Instance) -> None:
    send(fifo, "a", "old")
    change(fifo, 3)
    send(fifo, "b", "new")
    taken = take(fifo)
    other = another_instance(fifo)
    delete_topic(fifo, "orders")
    assert values_in(take(other, acknowledge=entries_of(taken))) == []


def test_older_offsets_hold_the_later_generation_back_after_a_reset(fifo: Instance) -> None:
    send(fifo, "a", "old")
    finish(fifo, take(fifo))
    change(fifo, 3)
    send(fifo, "a", "new")
    reset_share_group(fifo, GROUP, "orders", ShareResetTo(end=OffsetSpec.EARLIEST), None)
    again = take(fifo)
    assert values_in(again) == ["old"]
    assert values_in(take(fifo)) == []
    finish(fifo, again)
    assert values_in(take(fifo)) == ["new"]


def test_topic_without_generations_costs_the_same_reads_as_before(fifo: Instance) -> None:
    send(fifo, "a", "v")
    counts: Counter[str] = Counter()
    counted = counted_instance(fifo, counts)
    counted.topic_cache.get("orders")
    counts.clear()
    assert values_in(take(counted)) == ["v"]
    before = counts["log.heads"], counts["share.find_states"]
    change(fifo, 3)
    send(fifo, "b", "w")
    counted.topic_cache.read_through("orders")
    counts.clear()
    assert "w" in values_in(take(counted))
    assert (counts["log.heads"], counts["share.find_states"]) == (before[0] + 1, before[1] + 1)


def test_group_without_order_waits_for_nothing(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    alter_topic(instance, "orders", None, WAITS)
    new_group(instance)
    send(instance, "a", "old")
    change(instance, 3)
    send(instance, "a", "new")
    assert sorted(values_in(take(instance)) + values_in(take(instance))) == ["new", "old"]


@pytest.mark.parametrize("seed", range(10))
def test_no_record_is_handed_out_before_an_earlier_one_of_its_key_is_finished(
    fifo: Instance, clock: SteppedClock, seed: int
) -> None:
    """Workers on several instances, with views of different ages, while the partitions change again and again."""
    chance = random.Random(seed)
    instances = [fifo, *(another_instance(fifo) for _ in range(2))]
    sent: Counter[str] = Counter()
    done: Counter[str] = Counter()
    held: list[Acquired] = []
    for _ in range(70):
        for key in chance.choices("abcdefgh", k=chance.choice([0, 1, 4])):
            send(chance.choice(instances), key, f"{key}{sent[key]}")
            sent[key] += 1
        if chance.random() < 0.1:
            change(chance.choice(instances), chance.choice([1, 2, 3, 4]))
        instance = chance.choice(instances)
        acquired = take(instance, chance.choice([1, 2, 100]), lock_ms=60_000)
        _check_order(acquired, done)
        held.append(acquired)
        if chance.random() < 0.7:
            _end(instance, held.pop(chance.randrange(len(held))), done, chance)
        clock.sleep_ms(chance.choice([1, 500, 20_000]))
    for _ in range(2_000):
        while held:
            _end(fifo, held.pop(), done, chance)
        if done == sent:
            break
        clock.sleep_ms(60_000)
        held.append(take(fifo))
        _check_order(held[-1], done)
    assert done == sent


def _first_look(nonce: str) -> tuple[int, int]:
    return next(in_turn([5], LockNonce(nonce)))


def _values_by_offset(acquired: Acquired) -> Mapping[tuple[int, int], str]:
    return {
        (lock.partition.key.partition, record.offset): (record.value or b"").decode()
        for lock in locks_in(acquired)
        for batch in lock.batches
        for record in decode(batch.data)
        if record.offset in {*lock.grant.records.offsets()}
    }


def _check_order(acquired: Acquired, done: Counter[str]) -> None:
    for value in _values_by_offset(acquired).values():
        assert int(value[1:]) <= done[value[0]], f"{value} was handed out while {done[value[0]]} records were finished"


def _end(instance: Instance, acquired: Acquired, done: Counter[str], chance: random.Random) -> None:
    """Accept or release each record of the acquire that is still locked for it."""
    values = _values_by_offset(acquired)
    for lock in locks_in(acquired):
        partition = lock.partition.key.partition
        for offset in lock.grant.records.offsets():
            kind = AckType.ACCEPT if chance.random() < 0.7 else AckType.RELEASE
            [outcome] = acknowledge(instance, GROUP, [entry_of(lock, kind, ((offset, offset + 1),))])
            if kind is AckType.ACCEPT and outcome.result is AckResult.OK:
                value = values[partition, offset]
                done[value[0]] = max(done[value[0]], int(value[1:]) + 1)
