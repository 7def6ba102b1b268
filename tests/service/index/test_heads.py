"""The shards of a partition's timers, merged: in order, none passed over, and never empty while one waits."""

from collections import Counter

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import TIMER_SHARDS
from penstock_core.log.timer import PlaceRange, Timer
from penstock_service.index.heads import waiting_timers
from penstock_service.instance.instance import Instance
from tests.support.refusals import refused
from tests.support.service import UNAVAILABLE, Intercepted, counted_instance, with_stores
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
ALL = PlaceRange(0, 10**9)


def put(instance: Instance, timers: list[Timer]) -> list[Timer]:
    for timer in timers:
        instance.stores.timers.put(timer)
    return sorted(timers, key=lambda timer: timer.place)


@pytest.mark.parametrize("limit", [1, 7, 64, 1_000])
def test_walk_meets_every_timer_once_and_in_order(instance: Instance, limit: int) -> None:
    timers = put(instance, [timer_at(KEY, 1_000 + number % 50, number) for number in range(300)])
    assert {timer.place.shard for timer in timers} == set(range(TIMER_SHARDS))
    found: list[Timer] = []
    places = ALL
    while part := waiting_timers(instance, KEY, places, limit):
        assert len(part) <= limit
        found += part
        places = places._replace(after=part[-1].place)
    assert found == timers


def test_timers_of_one_shard_alone_are_found(instance: Instance) -> None:
    timers = put(instance, [each for number in range(900) if (each := timer_at(KEY, 5, number)).place.shard == 2])
    part = waiting_timers(instance, KEY, ALL, 80)
    assert list(part) == timers[: len(part)]
    assert part


def test_look_asks_each_shard_once_for_its_share(instance: Instance) -> None:
    put(instance, [timer_at(KEY, 5, number) for number in range(20)])
    counts: Counter[str] = Counter()
    waiting_timers(counted_instance(instance, counts), KEY, ALL, 900)
    assert counts == {"timers.waiting": TIMER_SHARDS}


def test_shard_that_cannot_be_read_is_not_passed_over(instance: Instance) -> None:
    put(instance, [timer_at(KEY, 5, number) for number in range(20)])

    def failing(original: object, key: PartitionKey, shard: int, *arguments: object) -> object:
        if shard == 5:
            raise UNAVAILABLE
        return original(key, shard, *arguments)  # type: ignore[operator]

    broken = with_stores(instance, timers=Intercepted(instance.stores.timers, waiting=failing))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: waiting_timers(broken, KEY, ALL, 900))
