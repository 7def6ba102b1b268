"""A sweep of several runs: marks that wait in the archive, and a cursor behind which the next run goes on."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.storage.keys import KeyLayout
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ListedKeys
from penstock_service.retention.sweep import SweepCursor, encode_cursor, sweep
from tests.service.compaction.test_archive import archive_of
from tests.service.retention.sweeping import BUDGET_MS, DAY_MS, folders, garbage, objects, run, with_hours
from tests.support.expiring import HOUR_MS, put
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    new_topic,
    patient_instance,
    read_all,
    send,
    with_stores,
    zone_of,
)


@pytest.fixture(params=KeyLayout)
def instance(request: pytest.FixtureRequest, clock: SteppedClock) -> Instance:
    """An instance whose zones are ordinary buckets, and one whose zones are directory buckets."""
    plain = patient_instance(clock)
    return with_hours(plain) if request.param is KeyLayout.BY_HOUR else plain


def flipped(body: bytes, place: int) -> bytes:
    changed = bytearray(body)
    changed[place] ^= 1
    return bytes(changed)


def is_by_hour(instance: Instance) -> bool:
    return instance.stores.zones[0].layout is KeyLayout.BY_HOUR


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
    assert (done.rounds, done.deleted) == (1, 3 * 50)
    objects_of_marks = 1 + is_by_hour(instance)  # a directory bucket's marks are there by hour, too
    assert counts["archive.put"] == objects_of_marks, "the first topic's; the others are younger than the cutoff"
    assert len(read_all(instance, topic)) == 300
    assert not archive_of(instance).segments, "marks go with their sweep"
    assert not set(dead) & set(zone_of(instance, 0).segments)


def test_sweep_out_of_time_goes_on_where_it_stopped(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    for _ in range(40):
        garbage(instance, 5)
        clock.time_ms += HOUR_MS
    clock.time_ms += DAY_MS + 1
    count = folders(instance)

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    seen = [run(patient, budget_ms=5 * count // 4) for _ in range(3)]
    assert [part.is_finished for part in seen] == [False, False, True]
    assert sum(part.folders for part in seen) == count
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
    assert (runs[0].is_finished, runs[0].folders, runs[0].deleted) == (False, 0, 0)
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


@pytest.mark.parametrize("place", [7, 11, 19, -1])  # in the table's checksum, a folder's number, its checksum, an id
def test_sweep_begins_anew_when_its_marks_are_gone_and_refuses_damaged_ones(
    instance: Instance, clock: SteppedClock, place: int
) -> None:
    topic = new_topic(instance)
    dead = []
    for _ in range(20):
        put(instance, topic, 1, clock.now_ms())
        dead += garbage(instance, 2)
        clock.time_ms += HOUR_MS
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    assert not run(patient, budget_ms=30).is_finished
    marks = archive_of(instance).segments
    assert len(marks) == 1 + is_by_hour(instance)
    for marks_id, body in [*marks.items()]:
        marks[marks_id] = flipped(body, place)
    with pytest.raises(PenstockError, match="are damaged"):
        run(patient)
    marks.clear()
    assert not run(patient).is_finished
    assert instance.stores.cursors.get("sweep") is None
    done = run(patient)
    assert done.is_finished
    assert len(read_all(instance, topic)) == 20
    assert not set(dead) & set(zone_of(instance, 0).segments)


@pytest.mark.parametrize("text", ["17", '{"cutoff_ms": 0, "since_ms": 0, "marks": [], "at": null, "prefix": 8}'])
def test_sweep_begins_anew_behind_a_cursor_of_an_earlier_release(
    instance: Instance, clock: SteppedClock, text: str
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, clock.now_ms())
    garbage(instance, 3)
    clock.time_ms += DAY_MS + 1
    instance.stores.cursors.put("sweep", text)
    assert run(instance).deleted == 3 * 3
    assert len(read_all(instance, topic)) == 5


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
