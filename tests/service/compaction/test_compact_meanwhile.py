"""Compaction while something else happens: another run, a repair, a removal, an answer that is lost."""

from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionState
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import COMPACTION_LEASE_MS
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.service.compaction.written_topic import APPENDS, FOR_EVER, HOUR_MS, pages_of, run, written
from tests.support.interleaving import interrupted_before
from tests.support.service import (
    LOST_ANSWER,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    key_of,
    patient_instance,
    read_all,
    zone_of,
)


def test_second_run_is_told_that_the_partition_is_held_until_the_lease_expires(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    key = key_of(instance, topic)
    assert instance.stores.compaction.acquire(key, clock.now_ms(), clock.now_ms() + COMPACTION_LEASE_MS) is not None
    assert run(instance, topic).is_held
    clock.time_ms += COMPACTION_LEASE_MS + 1
    assert run(instance, topic).runs == 1


def test_released_lease_is_free_at_once_and_its_item_stays_for_the_cleanings_it_notes(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    saved: list[CompactionState] = []

    def save(original: Any, key: PartitionKey, state: CompactionState) -> Any:
        saved.append(state)
        return original(key, state)

    watched = another_instance(instance, compaction=Intercepted(instance.stores.compaction, save=save))
    assert not run(watched, topic).is_held
    assert not run(watched, topic).is_held, "the next run need not wait"
    for state in saved:
        assert clock.now_ms() - COMPACTION_LEASE_MS <= state.deadline_ms < clock.now_ms(), "its item expires by this"


def test_paused_run_is_fenced_by_its_successor(instance: Instance, topic: str, clock: SteppedClock) -> None:
    records = read_all(instance, topic)

    def meanwhile(original: Any, *arguments: Any) -> Any:
        clock.time_ms += COMPACTION_LEASE_MS + 1
        assert run(instance, topic).runs == 1
        return original(*arguments)

    paused = another_instance(instance, archive=Intercepted(instance.stores.archive, upload=meanwhile))
    done = run(paused, topic)
    assert (done.runs, done.refused) == (0, 1)
    assert read_all(instance, topic) == records


def test_run_that_slept_too_long_before_its_swap_gives_up(instance: Instance, topic: str, clock: SteppedClock) -> None:
    def sleepy(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        clock.time_ms += 25 * HOUR_MS
        sweep(instance, budget_ms=FOR_EVER)

    paused = another_instance(instance, archive=Intercepted(instance.stores.archive, upload=sleepy))
    assert run(paused, topic).refused == 1
    assert len(read_all(instance, topic)) == 2 * APPENDS


def test_swap_whose_answer_was_lost_is_found_to_be_done(instance: Instance, topic: str) -> None:
    def lost(original: Any, *arguments: Any) -> bool:
        assert original(*arguments)
        return bool(original(*arguments))  # the driver's repeat is refused

    assert (
        run(another_instance(instance, compaction=Intercepted(instance.stores.compaction, swap=lost)), topic).runs == 1
    )


def test_swap_of_unknown_outcome_is_a_failure_that_the_next_run_mends(instance: Instance, topic: str) -> None:
    def lost(original: Any, *arguments: Any) -> bool:
        original(*arguments)
        raise LOST_ANSWER

    done = run(another_instance(instance, compaction=Intercepted(instance.stores.compaction, swap=lost)), topic)
    assert (done.runs, done.failures) == (0, 1)
    assert run(instance, topic).runs == 0
    assert len(read_all(instance, topic)) == 2 * APPENDS


def test_bits_that_a_repair_sets_meanwhile_do_not_waste_the_work(instance: Instance, clock: SteppedClock) -> None:
    zone_of(instance, 2).is_down = True
    topic = written(instance, clock)
    zone_of(instance, 2).is_down = False
    [first, *_] = pages_of(instance, topic)

    def repaired(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        assert instance.stores.log.mark_stored(key_of(instance, topic), {first.located()[3]: 0b111})

    other = another_instance(instance, archive=Intercepted(instance.stores.archive, upload=repaired))
    assert run(other, topic).runs == 1
    assert len(pages_of(instance, topic)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("what", ["truncated", "deleted", "expired"])
def test_removal_that_comes_anywhere_between_is_kept(clock: SteppedClock, what: str) -> None:
    """At storage calls all over the run: truncation and retention to its end, or the deletion of the topic."""
    place = 1
    while True:
        instance = patient_instance(clock)
        topic = written(instance, clock)
        key, met = key_of(instance, topic), [False]

        def act(instance: Instance = instance, topic: str = topic, met: list[bool] = met) -> None:
            met[0] = True
            if what == "deleted":
                delete_topic(another_instance(instance), topic)
            else:
                truncate(another_instance(instance), topic, {0: 100})
            if what != "truncated":
                for _ in range(3):
                    retain(instance, budget_ms=FOR_EVER)
                    clock.time_ms += 61_000
                clock.time_ms += 25 * HOUR_MS
                sweep(instance, budget_ms=FOR_EVER)

        done = run(interrupted_before(instance, place, act), topic)
        if not met[0]:
            assert place > 80
            return
        if what == "deleted":
            for _ in range(3):
                retain(instance, budget_ms=FOR_EVER)
                clock.time_ms += 61_000
            assert not instance.stores.log.pages(key, Offset(0), 1_000)
        else:
            records = read_all(instance, topic, offset=100)
            assert records == [(number, f"{number // 2}{'ab'[number % 2]}") for number in range(100, 2 * APPENDS)]
            with pytest.raises(PenstockError):
                ask(instance, topic, 99)
        assert not done.failures, done.errors
        place += 7
