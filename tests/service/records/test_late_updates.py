"""A process that sleeps between its put and its update, longer than the sweep waits, appends nothing by that update."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import APPEND_MS_MAX, STORAGE_REPEAT_MS_MAX, SWEEP_GRACE_MS
from penstock_core.zones.zone_state import FUNCTION_MS_MAX, Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.retention.sweep import sweep
from tests.service.records.test_idempotence import crowd, numbered
from tests.service.transactions.test_transactions import begin, commit
from tests.support.service import (
    FrozenClock,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    batch,
    entry,
    new_topic,
    read_all,
)

DAY_AND_AN_HOUR_MS = SWEEP_GRACE_MS + 3_600_000


def _sleeping(instance: Instance, clock: FrozenClock, sleep: Callable[[], object]) -> Instance:
    """An instance whose process sleeps once, at the end of its first put."""
    is_awake = False

    def put(original: Any, *arguments: Any) -> Any:
        nonlocal is_awake
        original(*arguments)
        if not is_awake:
            is_awake = True
            sleep()

    first, *others = instance.stores.zones
    return another_instance(instance, clock=clock, zones=[Intercepted(first, put=put), *others])


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("stopped", ["monotonic", "wall", "none"])
def test_append_is_refused_when_its_process_slept_since_the_put(
    instance: Instance, clock: SteppedClock, is_idempotent: bool, stopped: str
) -> None:
    topic = new_topic(instance)
    frozen = FrozenClock(clock)

    def sleep() -> None:
        clock.time_ms += DAY_AND_AN_HOUR_MS
        if stopped == "monotonic":
            frozen.frozen_ms += DAY_AND_AN_HOUR_MS
        if stopped == "wall":
            frozen.set_back_ms += DAY_AND_AN_HOUR_MS
        assert sweep(another_instance(instance), budget_ms=60_000).is_finished

    slow = _sleeping(instance, frozen, sleep)
    sent = entry(topic, 0, numbered(0, "a") if is_idempotent else batch("a"))
    [refused] = produce(slow, [sent], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert (refused.code, refused.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    [again] = produce(slow, [sent], Acks.QUORUM)
    assert again == appended(0, 1)
    assert read_all(instance, topic) == [(0, "a")], "what is acknowledged can be read"


def test_append_looks_at_the_clocks_before_each_update(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    crowd(instance, topic)

    def sleeps(original: Any, *arguments: Any) -> Any:
        clock.time_ms += DAY_AND_AN_HOUR_MS
        return original(*arguments)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, evicted_producer=sleeps))
    before = read_all(instance, topic)
    [refused] = produce(slow, [entry(topic, 0, numbered(0, "late", producer_id=99))], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert (refused.code, refused.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    assert read_all(instance, topic) == before


def test_transaction_is_refused_when_its_process_slept_since_the_put(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    frozen = FrozenClock(clock)
    slow = _sleeping(instance, frozen, lambda: frozen.freeze(DAY_AND_AN_HOUR_MS))
    producer = begin(instance)
    with pytest.raises(PenstockError) as caught:
        commit(slow, producer, 0, entry(topic, 0, batch("a")))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    commit(slow, producer, 0, entry(topic, 0, batch("a")))
    assert read_all(instance, topic) == [(0, "a")]


def test_writer_names_no_segment_later_than_the_barrier_of_a_zone_assumes() -> None:
    assert APPEND_MS_MAX + STORAGE_REPEAT_MS_MAX <= FUNCTION_MS_MAX
