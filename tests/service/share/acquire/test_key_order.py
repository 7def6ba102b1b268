"""Order by key: while a record of a key is unfinished, no acquire hands out a later one of that key."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Semaphore
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.acquire.fresh_window import strays
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
from tests.support.interleaving import interrupted_before
from tests.support.poison import undecodable_batch
from tests.support.service import Intercepted, SteppedClock, another_instance, counted_instance, head_of, new_topic

STAYS = "nonce-01"
assert not strays(LockNonce(STAYS))


def put(instance: Instance, *keys: str, partition: int = 0) -> None:
    """A batch with one record for each key; "" is a record without a key."""
    records = [NewRecord(1_000, key.encode() or None, b"v") for key in keys]
    produce(instance, [ProduceEntry(topic="orders", partition=partition, data=encode(records))], Acks.QUORUM).all_ok()


@pytest.fixture
def fifo(instance: Instance) -> Instance:
    new_topic(instance)
    new_group(instance, ordering="key")
    return instance


def offsets(acquired: Acquired) -> list[int]:
    return sorted(offset for _, offset in offsets_in(acquired))


def test_one_record_of_each_key_at_a_time(fifo: Instance) -> None:
    put(fifo, "a", "b", "a", "", "b", "a", "")
    first = take(fifo)
    assert offsets(first) == [0, 1, 3, 6]
    assert offsets(take(fifo)) == []
    finish(fifo, first)
    second = take(fifo)
    assert offsets(second) == [2, 4]
    finish(fifo, second)
    assert offsets(take(fifo)) == [5]


def test_slow_record_holds_up_its_key_only(fifo: Instance) -> None:
    put(fifo, "slow", "b", "slow", "c")
    [lock] = locks_in(take(fifo))
    acknowledge(fifo, GROUP, [entry_of(lock, AckType.ACCEPT, ((1, 2), (3, 4)))])
    put(fifo, "slow", "b", "c")
    assert offsets(take(fifo)) == [5, 6]


def test_released_record_comes_before_those_behind_it(fifo: Instance, clock: SteppedClock) -> None:
    put(fifo, "a", "a")
    finish(fifo, take(fifo), AckType.RELEASE, delay_ms=5_000)
    waiting = take(fifo)
    assert (offsets(waiting), waiting.next_available_ms) == ([], 5_000)
    clock.sleep_ms(5_000)
    again = take(fifo)
    assert (offsets(again), locks_in(again)[0].grant.lock.deliveries) == ([0], 2)


def test_several_records_of_a_key_go_to_one_consumer_and_back_together(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, ordering="key", key_batch_max=3)
    put(instance, "a", "a", "a", "a", "b")
    [lock] = locks_in(take(instance))
    assert [*lock.grant.records.offsets()] == [0, 1, 2, 4]
    acknowledge(instance, GROUP, [entry_of(lock, AckType.RELEASE, ((1, 2),), delay_ms=0)])
    counts = {
        offset: each.grant.lock.deliveries
        for each in locks_in(take(instance))
        for offset in each.grant.records.offsets()
    }
    assert counts == {}, "record 0 is unfinished"
    acknowledge(instance, GROUP, [entry_of(lock, AckType.ACCEPT, ((0, 1),))])
    found = {
        offset: each.grant.lock.deliveries
        for each in locks_in(take(instance))
        for offset in each.grant.records.offsets()
    }
    assert found[1] == 2
    assert found.get(2, 1) == 1, "it was taken back uncounted"


def test_reads_and_writes_of_an_acquire_by_key(fifo: Instance) -> None:
    put(fifo, "a")
    counts: Counter[str] = Counter()
    counted = counted_instance(fifo, counts)
    held = take(counted)
    put(fifo, "b", "c")
    counts.clear()
    second = take(counted, nonce=STAYS, acknowledge=entries_of(held))
    assert len(offsets(second)) == 2
    assert counts == {"share.find_states": 2, "log.heads": 1, "zone.get": 1, "share.update": 1}


def test_batch_that_cannot_be_decoded_holds_up_nothing(fifo: Instance) -> None:
    put(fifo, "a")
    produce(fifo, [ProduceEntry(topic="orders", partition=0, data=undecodable_batch(3))], Acks.QUORUM).all_ok()
    put(fifo, "a", "b")
    assert offsets(take(fifo)) == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("place", range(8))
def test_keys_stay_in_order_whatever_comes_between(fifo: Instance, place: int) -> None:
    put(fifo, "a", "a", "b", "a", "b")
    other = another_instance(fifo)
    taken: list[int] = []

    def interfere() -> None:
        held = take(other)
        taken.extend(offsets(held))
        finish(other, held)

    mine = take(interrupted_before(fifo, place, interfere))
    keys = "aabab"
    for offset in offsets(mine):
        earlier = [each for each in range(offset) if keys[each] == keys[offset]]
        assert all(each in taken for each in earlier), (offset, taken)


@pytest.mark.parametrize("seed", range(10))
def test_every_key_is_finished_in_order_by_many_workers(instance: Instance, clock: SteppedClock, seed: int) -> None:
    chance = random.Random(seed)
    new_topic(instance, partitions=2)
    new_topic(instance, "dead")
    new_group(
        instance,
        ordering="key",
        key_batch_max=chance.choice((1, 3)),
        dead_letter_topic="dead",
        deliveries_max=4,
        retry_backoff_ms_min=1,
        retry_backoff_ms_max=50,
    )
    sent: list[Sequence[str]] = [[], []]
    for partition in range(2):
        keys = [chance.choice(("a", "b", "c", "")) for _ in range(30)]
        put(instance, *keys, partition=partition)
        sent[partition] = keys
    workers = [another_instance(instance) for _ in range(3)]
    finished: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(3_000):
        clock.time_ms += chance.choice((0, 5, 200))
        held = take(chance.choice(workers), chance.randint(1, 10), lock_ms=1_000)
        for lock in locks_in(held):
            partition = lock.partition.key.partition
            for offset in [*lock.grant.records.offsets()]:
                key = sent[partition][offset]
                earlier = [each for each in range(offset) if key and sent[partition][each] == key]
                mine = [found for place, found in offsets_in(held) if place == partition]
                assert all(each in finished[partition] or each in mine for each in earlier)
            if chance.random() < 0.1:
                clock.time_ms += 2_000  # the worker dies, and its lock ends
                continue
            fate = chance.choice((AckType.ACCEPT, AckType.ACCEPT, AckType.RELEASE))
            outcomes = acknowledge(chance.choice(workers), GROUP, [entry_of(lock, fate)])
            if fate is AckType.ACCEPT:
                for outcome in outcomes:
                    if outcome.result.value == "ok":
                        finished[partition] += [o for start, end in outcome.ranges or () for o in range(start, end)]
        for partition in range(2):
            unfinished = {*range(30)} - {*finished[partition]}
            left = {o for start, end in state_of_or_none(instance, partition) for o in range(start, end)}
            finished[partition] += [each for each in unfinished if each not in left]
        if all(len(each) == 30 for each in finished.values()):
            break
    assert all(sorted(each) == [*range(30)] for each in finished.values())


def state_of_or_none(instance: Instance, partition: int) -> Sequence[tuple[int, int]]:
    """The unfinished ranges of a partition, with all fresh records."""
    try:
        state = state_of(instance, partition)
    except KeyError:
        return ((0, 30),)
    return (*state.unfinished(), (state.position, 30))


def test_dead_letter_leaves_the_order(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, ordering="key", dead_letter_topic="dead")
    put(instance, "a", "a")
    finish(instance, take(instance), AckType.REJECT)
    assert offsets(take(instance)) == [1]
    assert head_of(instance, "dead").next_offset == 1


def test_records_keep_their_keys_when_the_index_is_throttled(fifo: Instance) -> None:
    for _ in range(40):
        put(fifo, "a")
    assert head_of(fifo, "orders").tail_base > 0

    def refuse(_original: object, *_: object) -> None:
        raise PenstockError(ErrorCode.THROTTLED, "too many reads")

    throttled = another_instance(fifo, log=Intercepted(fifo.stores.log, pages=refuse))
    assert offsets(take(throttled)) == []
    assert offsets(take(fifo)) == [0]
    assert offsets(take(fifo)) == []


def test_slow_repeat_that_takes_nothing_leaves_the_lock_that_another_try_has_taken(
    fifo: Instance, clock: SteppedClock
) -> None:
    """The network sent the acquire twice. The lock of the first record ended between the looks of both."""
    nonces = (LockNonce(f"nonce-{number}") for number in range(99))
    nonce = next(each for each in nonces if not strays(each) and murmur2(each.encode()) % 2)  # looks at suspects first
    for key in "baa":
        put(fifo, key)
    reads, fast = Semaphore(), list[Acquired]()

    def lock_first(original: Callable[..., Any], *arguments: Any) -> Any:
        """Others finish the record of b while the slow try reads, and lock the first of a."""
        if reads.acquire(blocking=False):
            finish(fifo, take(fifo, 1))
            take(fifo, 1, lock_ms=1_000)
        return original(*arguments)

    def take_meanwhile(original: Callable[..., Any], *arguments: Any) -> Any:
        if not fast:
            clock.time_ms += 5_000
            fast.append(take(fifo, nonce=nonce, bytes_max=1))
        return original(*arguments)

    slow = another_instance(
        fifo,
        zones=[Intercepted(zone, get=lock_first) for zone in fifo.stores.zones],
        share=Intercepted(fifo.stores.share, update=take_meanwhile),
    )
    answers = [take(slow, nonce=nonce, bytes_max=1), *fast]
    assert [offsets(each) for each in answers] == [[1], [1]]
    assert offsets(take(fifo)) == []
