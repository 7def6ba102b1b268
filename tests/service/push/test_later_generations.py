"""An ordered subscription delivers the older generations of a topic before it begins a later one."""

from collections import Counter

import pytest

from penstock_core.limits import GROUP_CHECK_MS_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_service.topics.alter_topic import alter_topic, truncate
from tests.support.push_deliveries import Deliveries
from tests.support.service import Counted, another_instance, with_stores

AWAY = Failed(failure=Failure.AWAY, error="it is away")


class Target:
    """Notes the values that it handles, in their order. While it `is_away`, it handles none of partition 0."""

    def __init__(self) -> None:
        self.is_away = True
        self.handled: list[bytes | None] = []

    def __call__(self, batch: PushBatch) -> Answer:
        values = [each.record.value for each in batch.records]
        if self.is_away and b"old" in values:
            return AWAY
        self.handled += values
        return Answered()


def turned(concurrency: int) -> tuple[Deliveries, Target]:
    deliveries = Deliveries(partitions=2, settings={"concurrency": concurrency, "batch_records": 1})
    deliveries.answer = target = Target()
    alter_topic(another_instance(deliveries.instance), "orders", None, {"ordering_on_change": "wait"})
    deliveries.append("old", partition=0)
    alter_topic(deliveries.instance, "orders", 3, {})
    for partition in (2, 3, 4):
        deliveries.append(f"new {partition}", partition=partition)
    return deliveries, target


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_later_generation_waits_until_the_older_one_is_delivered(concurrency: int) -> None:
    deliveries, target = turned(concurrency)
    deliveries.run(for_ms=120_000)
    assert target.handled == []
    target.is_away = False
    deliveries.run()
    assert target.handled[0] == b"old"
    assert sorted(target.handled[1:], key=str) == [b"new 2", b"new 3", b"new 4"]
    deliveries.append("newer", partition=4)
    deliveries.run()
    assert target.handled[-1] == b"newer"


def test_later_generation_begins_when_the_older_records_are_gone() -> None:
    deliveries, target = turned(2)
    truncate(deliveries.instance, "orders", {0: 1})
    deliveries.run(for_ms=2 * GROUP_CHECK_MS_MAX)
    assert len(target.handled) == 3


def test_generations_come_one_after_the_other() -> None:
    deliveries, target = turned(3)
    alter_topic(another_instance(deliveries.instance), "orders", 1, {})
    deliveries.append("newest", partition=5)
    target.is_away = False
    deliveries.run()
    assert [target.handled[0], target.handled[-1]] == [b"old", b"newest"]


def test_partition_that_was_begun_costs_no_look_at_older_ones() -> None:
    deliveries, target = turned(1)
    target.is_away = False
    deliveries.run()
    counts: Counter[str] = Counter()
    counted = Counted(deliveries.instance.stores.push, "push", counts)
    deliveries.instance = with_stores(deliveries.instance, push=counted)
    deliveries.append("more", partition=3)
    counts.clear()
    deliveries.run()
    assert target.handled[-1] == b"more"
    assert counts["push.find_deliveries"] == 1
