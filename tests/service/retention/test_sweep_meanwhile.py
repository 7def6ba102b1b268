"""The sweep loses nothing when other processes work between its calls, or when it dies."""

from collections.abc import Callable
from itertools import count

import pytest

from penstock_core.ids import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.service.retention.sweeping import DAY_MS, garbage, objects, run, settle, with_hours
from tests.support.expiring import put
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    send,
)


def aged(clock: SteppedClock) -> tuple[Instance, str]:
    """A topic one append before its tail rolls, with pages behind it, all older than the grace; and garbage."""
    instance = with_hours(patient_instance(clock))
    topic = new_topic(instance)
    put(instance, topic, 3 * TAIL_ROLL_REFS - 1, clock.now_ms())
    garbage(instance, 3)
    clock.time_ms += DAY_MS + 1
    return instance, topic


def roll(instance: Instance, clock: SteppedClock) -> None:
    put(instance, "orders", 1, clock.now_ms())


def make_topic(instance: Instance, clock: SteppedClock) -> None:
    put(instance, new_topic(instance, "new"), TAIL_ROLL_REFS + 1, clock.now_ms())


def recreate(instance: Instance, clock: SteppedClock) -> None:
    delete_topic(instance, "orders")
    put(instance, new_topic(instance), TAIL_ROLL_REFS + 1, clock.now_ms())


def sweep_too(instance: Instance, _clock: SteppedClock) -> None:
    run(instance)


def let_expire(instance: Instance, clock: SteppedClock) -> None:
    truncate(instance, "orders", {0: 2 * TAIL_ROLL_REFS + 5})
    settle(instance, clock)
    settle(instance, clock)


@pytest.mark.slow
@pytest.mark.parametrize("act", [roll, make_topic, recreate, sweep_too, let_expire])
def test_nothing_live_is_lost_when_another_process_works_between_any_two_calls(
    act: Callable[[Instance, SteppedClock], None],
) -> None:
    """The ref that moves from the tail to a page between two reads is the classic one: `roll`. All of the reads of the
    index come first; the lists and deletes of the zones are behind them."""
    for place in range(16):
        clock = SteppedClock()
        instance, _ = aged(clock)
        acted: list[bool] = []

        def meanwhile(instance: Instance = instance, clock: SteppedClock = clock, acted: list[bool] = acted) -> None:
            act(another_instance(instance), clock)
            acted.append(True)

        run(interrupted_before(instance, place, meanwhile))
        assert acted
        for topic in instance.stores.topics.list():
            key = key_of(instance, topic.name)
            head = instance.stores.log.heads([key])[key]
            records = read_all(instance, topic.name, offset=head.log_start_offset)
            assert len(records) == head.next_offset - head.log_start_offset


def test_segment_of_an_append_in_flight_is_spared(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)

    def swept_meanwhile(original: Callable[..., Head], key: PartitionKey, ref: Ref, zones: int) -> Head:
        clock.time_ms += 29_000
        run(another_instance(instance))
        return original(key, ref, zones)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, append=swept_meanwhile))
    send(slow, topic, "x")
    assert read_all(instance, topic) == [(0, "x")]


@pytest.mark.slow
@pytest.mark.parametrize("is_applied", [False, True])
def test_sweep_that_dies_anywhere_loses_nothing_and_the_next_one_finishes(is_applied: bool) -> None:
    for place in count():
        clock = SteppedClock()
        instance, topic = aged(clock)
        before = read_all(instance, topic)
        with catch_kill() as was_killed:
            run(killed_at(instance, place, is_applied=is_applied))
        if not was_killed:
            break
        assert read_all(instance, topic) == before
        for _ in range(2):
            run(instance)
        assert objects(instance) == [len(before)] * 3
    assert place >= 16, "the sweep makes so many calls"


def test_sweep_reads_heads_before_pages(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 40, clock.now_ms())
    seen: list[str] = []

    def note(name: str) -> Callable[..., object]:
        def hook(original: Callable[..., object], *arguments: object) -> object:
            seen.append(name)
            return original(*arguments)

        return hook

    run(another_instance(instance, log=Intercepted(instance.stores.log, heads=note("heads"), pages=note("pages"))))
    assert seen == ["heads", "pages"]
