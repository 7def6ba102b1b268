"""The recovery of zones while something else happens: it dies at any call, another one runs, and appends go on."""

import contextlib
import threading
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import Acks, ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.repair.recover_zones import ZoneRecovery
from tests.service.repair.zone_recovery import MINUTE_MS, holds_everything, run, status
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    read_all,
    send,
    zone_of,
)


@pytest.mark.parametrize("fault", [Killed(), LOST_ANSWER, UNAVAILABLE])
def test_recovery_harms_nothing_when_it_ends_before_or_after_any_of_its_calls(
    instance: Instance, clock: SteppedClock, topic: str, fault: BaseException
) -> None:
    """Each run gets one call further than the one before it, which ended there; the last gets through."""
    zone_of(instance, 2).is_down = False
    for after_effect in (False, True):
        for allowed in range(0, 400, 7):
            _run_until_fault(instance, fault, allowed, after_effect=after_effect)
            if status(instance, 2) is ZoneStatus.IN_SYNC:
                break
            clock.time_ms += MINUTE_MS
    while status(instance, 2) is not ZoneStatus.IN_SYNC:
        run(instance)
        clock.time_ms += MINUTE_MS
    assert holds_everything(instance, 2)
    assert [value for _, value in read_all(another_instance(instance), topic)] == [
        "before",
        *map(str, range(3 * TAIL_ROLL_REFS)),
    ]


def _run_until_fault(instance: Instance, fault: BaseException, allowed: int, *, after_effect: bool) -> None:
    lock = threading.Lock()
    left = allowed

    def hook(original: Any, *arguments: Any) -> Any:
        nonlocal left
        with lock:
            left -= 1
            is_fault = left < 0
        if is_fault and not after_effect:
            raise fault
        result = original(*arguments)
        if is_fault:
            raise fault
        return result

    store = Intercepted(instance.stores.zone_states, get=hook, change=hook, get_pass=hook, save_pass=hook)
    zones: list[SegmentStore] = [
        Intercepted(zone, put=hook, get=hook, get_whole=hook, overwrite=hook, list_keys=hook)
        for zone in instance.stores.zones
    ]
    log = Intercepted(instance.stores.log, heads=hook, pages=hook, mark_stored=hook)
    with contextlib.suppress(Killed, PenstockError):
        run(instance, zone_states=store, zones=zones, log=log)


def test_recovery_harms_nothing_when_two_run_at_once(instance: Instance, clock: SteppedClock, topic: str) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    inner: list[ZoneRecovery] = []

    def save_pass(original: Any, old: Any, new: Any) -> None:
        if not inner:
            inner.append(run(instance))
        original(old, new)

    outer = run(instance, zone_states=Intercepted(instance.stores.zone_states, save_pass=save_pass))
    assert (inner[0].in_sync, outer.in_sync) == (["c"], [])
    assert instance.stores.zone_states.get().version == 3


def test_zone_rejoins_while_appends_go_on(instance: Instance, clock: SteppedClock, topic: str) -> None:
    zone_of(instance, 2).is_down = False
    stop = threading.Event()
    sent: list[int] = [0, 0, 0]

    def append(number: int) -> None:
        other = another_instance(instance)
        while not stop.is_set() and sent[number] < 100:
            try:
                send(other, topic, f"{number}-{sent[number]}", acks=Acks.ALL)
            except PenstockError as error:  # the clock has jumped over the end of its window
                if error.maybe_applied:
                    raise
            else:
                sent[number] += 1

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            run(instance)
            clock.time_ms += MINUTE_MS
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    run(instance)
    assert status(instance, 2) is ZoneStatus.IN_SYNC
    assert min(sent) > 0
    assert holds_everything(instance, 2)
    assert len(read_all(another_instance(instance), topic)) == 1 + 3 * TAIL_ROLL_REFS + sum(sent)
