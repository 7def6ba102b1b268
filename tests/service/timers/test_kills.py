"""A writer and a promoter are killed before and after each storage call: each record comes once, and in time."""

from collections.abc import Callable, Iterator

import pytest

from penstock_core.ids import PartitionKey
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.timers.promote import promote_partition
from penstock_service.timers.promote_due import promote_due
from tests.service.timers.delays import FOREVER_MS, delay, place
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.service import SteppedClock, key_of, new_topic, read_all

COUNT = 20  # more than a page of refs


def fresh() -> tuple[Instance, SteppedClock, str]:
    clock = SteppedClock()
    instance = memory_instance(clock=clock)
    return instance, clock, new_topic(instance)


def kills(act: Callable[[Instance], object], *, is_applied: bool) -> Iterator[tuple[Instance, SteppedClock, str]]:
    """Stages after `act` was killed at each of its calls in turn."""
    for number in range(1_000):
        instance, clock, topic = fresh()
        for each in range(COUNT):
            delay(instance, topic, clock.now_ms(), str(each), number=each)
        with catch_kill() as was_killed:
            act(killed_at(instance, number, is_applied=is_applied))
        if not was_killed:
            assert number > 3
            return
        yield instance, clock, topic
    raise AssertionError("the act never comes to its end")


@pytest.mark.parametrize("is_applied", [False, True])
def test_writer_that_dies_and_is_repeated_schedules_once(is_applied: bool) -> None:
    def write(instance: Instance) -> None:
        delay(instance, "orders", 1_000_500, "new", number=99)

    for instance, clock, topic in kills(write, is_applied=is_applied):
        write(instance)
        clock.time_ms += 1_000
        assert promote_due(instance, budget_ms=1_000).failures == 0
        values = [value for _, value in read_all(instance, topic)]
        assert values == [*map(str, range(COUNT)), "new"]


@pytest.mark.parametrize("is_applied", [False, True])
def test_promoter_that_dies_loses_and_doubles_nothing(is_applied: bool) -> None:
    for instance, _, topic in kills(lambda killed: promote_due(killed, budget_ms=1_000), is_applied=is_applied):
        assert promote_due(instance, budget_ms=1_000).failures == 0
        assert [value for _, value in read_all(instance, topic)] == [*map(str, range(COUNT))]


def test_promoter_that_others_interrupt_anywhere_keeps_the_order() -> None:
    """Before each call of one promoter, another one promotes all, and an operator cancels one timer."""
    for number in range(1_000):
        instance, clock, topic = fresh()
        for each in range(3):
            delay(instance, topic, clock.now_ms(), str(each), number=each)
        key, due_ms = key_of(instance, topic), clock.now_ms()
        was_called: list[int] = []

        def meanwhile(
            instance: Instance = instance, key: PartitionKey = key, due_ms: int = due_ms, calls: list[int] = was_called
        ) -> None:
            calls.append(1)
            instance.stores.timers.cancel(key, place(due_ms, 1), due_ms)
            promote_partition(instance, key, 0, FOREVER_MS)

        promote_due(interrupted_before(instance, number, meanwhile), budget_ms=1_000)
        assert [value for _, value in read_all(instance, topic)] in (["0", "2"], ["0", "1", "2"])
        if not was_called:
            assert number > 3
            return
    raise AssertionError("the promoter never comes to its end")
