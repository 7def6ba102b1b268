"""Many workers on a share group, by chance: some die, are slow, repeat calls or lose answers. G11 holds."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.hand_over import HandedLock
from tests.service.share.sharing import GROUP, entry_of, locks_in, new_group, take
from tests.support.interleaving import catch_kill, killed_at
from tests.support.service import LOST_ANSWER, Intercepted, SteppedClock, another_instance, ask, filled_topic, new_topic

RECORDS, PARTITIONS, LOCK_MS = 40, 2, 1_000


class World:
    """What the workers know: the records that they hold, and what the service has told them."""

    def __init__(self, instance: Instance, clock: SteppedClock, chance: random.Random) -> None:
        self.instance, self.clock, self.chance = instance, clock, chance
        self.held: list[HandedLock] = []
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.handed: Counter[tuple[int, int]] = Counter()

    def step(self) -> None:
        """One worker does something."""
        self.clock.time_ms += self.chance.choice((0, 1, 20, 300))
        act = self.chance.choice((self.acquire, self.acquire, self.acknowledge, self.acknowledge, self.forget))
        act()

    def acquire(self) -> None:
        nonce = f"{self.chance.getrandbits(48):012x}"
        count = self.chance.randint(1, 8)
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            worker = self.chance.choice((another_instance(self.instance), self.failing()))
            found: list[HandedLock] = []
            with catch_kill(), suppress(PenstockError):
                found = locks_in(take(worker, count, nonce=nonce, lock_ms=LOCK_MS))
        for lock in found:
            self.take_over(lock)

    def take_over(self, lock: HandedLock) -> None:
        """The worker has a lock: nothing of it was accepted, and no other worker's lock holds it too."""
        partition = lock.partition.key.partition
        for offset in lock.grant.records.offsets():
            assert not self.accepted[partition, offset], "an accepted record comes again"
            self.handed[partition, offset] += 1
        self.held.append(lock)

    def acknowledge(self) -> None:
        if not self.held:
            return
        lock = self.held.pop(self.chance.randrange(len(self.held)))
        offsets = [*lock.grant.records.offsets()]
        some = tuple((offset, offset + 1) for offset in offsets if self.chance.random() < 0.8) or None
        kind = self.chance.choice((AckType.ACCEPT, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT))
        for _ in range(self.chance.choice((1, 1, 2))):
            for outcome in acknowledge(another_instance(self.instance), GROUP, [entry_of(lock, kind, some)]):
                if kind is AckType.ACCEPT and outcome.result is AckResult.OK:
                    for start, end in outcome.ranges or ():
                        self.accepted.update((lock.partition.key.partition, offset) for offset in range(start, end))

    def forget(self) -> None:
        """A worker dies with its locks."""
        if self.held and self.chance.random() < 0.3:
            self.held.pop(self.chance.randrange(len(self.held)))

    def failing(self) -> Instance:
        """A worker that dies at one of its next calls, or loses an answer."""
        if self.chance.random() < 0.5:
            return killed_at(self.instance, self.chance.randrange(10), is_applied=self.chance.random() < 0.5)
        lost = [self.chance.random() < 0.2]

        def lose(original: Callable[..., Any], *arguments: Any) -> Any:
            result = original(*arguments)
            if lost.pop() if lost else False:
                raise LOST_ANSWER
            return result

        return another_instance(self.instance, share=Intercepted(self.instance.stores.share, update=lose))

    def dead_letters(self) -> Counter[tuple[int, int]]:
        """Partition and offset of each dead letter."""
        found: Counter[tuple[int, int]] = Counter()
        for partition in range(PARTITIONS):
            for record in decode(ask(self.instance, "dead", partition=partition).data):
                headers = {name.removeprefix(HEADER_PREFIX): (value or b"").decode() for name, value in record.headers}
                found[int(headers["partition"]), int(headers["offset"])] += 1
        return found


@pytest.mark.parametrize("seed", range(12))
def test_each_record_is_accepted_once_or_a_dead_letter_once(instance: Instance, clock: SteppedClock, seed: int) -> None:
    chance = random.Random(seed)
    filled_topic(instance, partitions=PARTITIONS, records=RECORDS)
    new_topic(instance, "dead", PARTITIONS)
    new_group(
        instance,
        dead_letter_topic="dead",
        deliveries_max=chance.choice((2, 5)),
        retry_backoff_ms_min=1,
        retry_backoff_ms_max=100,
        in_flight_max=chance.choice((5, 20_000)),
    )
    world = World(instance, clock, chance)
    for _ in range(100):
        for _ in range(40):
            world.step()
        if len(world.accepted) + world.dead_letters().total() == RECORDS * PARTITIONS:
            break
    dead = world.dead_letters()
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    assert set(dead) | set(world.accepted) == everything
    assert not set(dead) & set(world.accepted)
    assert set(dead.values()) <= {1}
    assert set(world.accepted.values()) == {1}
