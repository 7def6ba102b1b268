"""A sweep of several runs: marks that wait in the archive, and a cursor behind which the next run goes on."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ListedKeys
from penstock_service.retention.sweep import sweep
from penstock_service.retention.sweep_cursor import SweepCursor, encode_cursor
from tests.service.compaction.test_archive import archive_of
from tests.service.retention.sweeping import BUDGET_MS, DAY_MS, garbage, objects, run
from tests.support.expiring import put
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    new_topic,
    read_all,
    send,
    with_stores,
    zone_of,
)


def test_many_segments_are_swept_by_marks_that_do_not_stay_in_memory(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 300, clock.now_ms())
    dead = garbage(instance, 50)
    clock.time_ms += DAY_MS + 1
    more = [new_topic(instance, name) for name in ("more", "most")]
    for each in more:
        put(instance, each, 60, clock.now_ms() - DAY_MS - 1)
    counts: Counter[str] = Counter()
    done = sweep(counted_instance(instance, counts), budget_ms=BUDGET_MS, live_max=40)
    assert (done.prefixes, done.rounds, done.deleted) == (256, 1, 3 * 50)
    assert counts["archive.put"] == 1, "the marks of the first topic, and the others are younger than the cutoff"
    assert len(read_all(instance, topic)) == 300
    assert not archive_of(instance).segments, "marks go with their sweep"
    assert not set(dead) & set(zone_of(instance, 0).segments)


def test_sweep_out_of_time_goes_on_where_it_stopped(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    garbage(instance, 200)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    seen = [run(patient, budget_ms=300) for _ in range(3)]
    assert [part.is_finished for part in seen] == [False, False, True]
    assert sum(part.prefixes for part in seen) == 256
    assert objects(instance) == [0] * 3
    assert instance.stores.cursors.get("sweep") is None


def test_index_is_read_in_several_runs_and_nothing_live_goes_whatever_happens_between(
    instance: Instance, clock: SteppedClock
) -> None:
    topics = [new_topic(instance, f"t{number}", partitions=2) for number in range(4)]
    for name in topics:
        for _ in range(TAIL_ROLL_REFS - 2):
            send(instance, name, "x", partition=1)
    dead = garbage(instance, 40)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., object], *arguments: object) -> object:
        clock.time_ms += 10
        return original(*arguments)

    patient = with_stores(instance, log=Intercepted(instance.stores.log, heads=slow))
    runs = [run(patient, budget_ms=15)]
    assert (runs[0].is_finished, runs[0].prefixes, runs[0].deleted) == (False, 0, 0)
    assert archive_of(instance).segments, "marks of the first run"
    for name in topics:  # refs of the tail move to a page, and a new topic comes in between
        send(instance, name, *("y" for _ in range(3)), partition=1)
        for _ in range(3):
            send(instance, name, "z", partition=1)
    send(instance, new_topic(instance, "t1-new"), "young")
    while not runs[-1].is_finished:
        runs.append(sweep(another_instance(patient), budget_ms=15))
        assert len(runs) < 50
    assert len(runs) == 3, "two runs read the index, and the third one sweeps"
    assert sum(each.live for each in runs) == 4 * (TAIL_ROLL_REFS - 2)
    assert sum(each.deleted for each in runs) == 3 * len(dead)
    for name in topics:
        assert len(read_all(instance, name, 1)) == TAIL_ROLL_REFS - 2 + 6
    assert len(read_all(instance, "t1-new")) == 1
    assert not archive_of(instance).segments
    assert instance.stores.cursors.get("sweep") is None


def test_sweep_begins_anew_when_its_marks_are_gone_and_refuses_damaged_ones(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 20, clock.now_ms())
    dead = garbage(instance, 5)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    assert not run(patient, budget_ms=100).is_finished
    marks = archive_of(instance).segments
    [(marks_id, body)] = marks.items()
    marks[marks_id] = body[:-1] + bytes([body[-1] ^ 1])
    with pytest.raises(PenstockError, match="are damaged"):
        run(patient)
    marks.clear()
    assert not run(patient).is_finished
    assert instance.stores.cursors.get("sweep") is None
    done = run(patient)
    assert done.is_finished
    assert len(read_all(instance, topic)) == 20
    assert not set(dead) & set(zone_of(instance, 0).segments)


def test_sweep_that_took_too_long_begins_anew(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, clock.now_ms())
    clock.time_ms += 9 * DAY_MS
    instance.stores.cursors.put("sweep", encode_cursor(SweepCursor(cutoff_ms=0, since_ms=0, at=None)))
    assert run(instance).rounds == 1
    assert len(read_all(instance, topic)) == 5


def test_sweep_says_so_when_the_time_does_not_suffice_for_the_index(instance: Instance) -> None:
    new_topic(instance)
    garbage(instance)
    with pytest.raises(PenstockError, match="nothing was swept"):
        run(instance, budget_ms=0, grace_ms=-1)
    assert objects(instance) == [1] * 3
