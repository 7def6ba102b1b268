"""Sweep: remove the segments that no live ref names, from every zone and the archive.

This is the only place that removes objects (ADR 5). To it, garbage of appends that died and data that expired are the
same thing. One round has five steps:

1. It notes the time.
2. It reads the names of all topics.
3. Of each partition it reads *first the timers, then the head, then its pages*.
4. It lists the objects.
5. It deletes the objects that are older than the grace and that no live ref names.

No live segment is ever deleted, for these reasons:

1. A segment that is older than the grace (24 h) at the round's beginning was committed before it, or never will be. No
   writer sends an update that long after its put: not in a function, and not on a machine that slept in between
   (update_window.py). So all its refs are in the index by then.
2. Refs move one way only, from a timer to the tail, from there to a page, at once. If a ref is in the tail when the
   round reads the head, the round sees it there. If it has left the tail by then, it is in a page, and the round reads
   pages later. A round that read pages first would miss a ref that rolls between the two reads.
3. Topics and partitions made after step 2 hold segments that are younger than the round. Their age spares them.
4. A ref is dead if it lies wholly below the safe log start (retain.py), where no function reads. It is also dead if its
   topic is deleted.
5. If a page is missing that should be there, or a head of a topic that exists, the round deletes nothing at all.
6. If an object is older than everything that the index has ever known, this index did not write it. Then the table is
   empty, new, or another store's, perhaps with topics created again under their old names. The round counts such
   objects and leaves them. The index's age is kept (index_age.py), so the objects that a deleted topic left are still
   known as the index's own.

Two sweeps at once, a sweep that dies, and a ref that dies during the round only leave more to the next round.

Memory and time of a run are bounded (docs/protocol/retention). A run that marks too much, or runs out of time, puts its
marks into objects of the archive and saves a cursor that names them. The next run goes on there. It reads the marks of
a few folders of keys at a time (sweep_folders.py). A sweep of many runs keeps the time of its first one. This is safe
for two more reasons:

7. A segment that is older than that time and live when an object of it is listed was live at the first run, and its
   refs were in the index. A ref moves forward only, and the next run reads each partition's head before its pages.
8. The next run sweeps only if every object of marks is there whole. Otherwise it begins anew.

How far a sweep has come, as it is stored between two runs.

```
{"cutoff_ms": 1700000000000, "since_ms": 1690000000000, "marks": [["hour", "<32 hex>"]], "at": ["orders", 32],
 "folder": ["hour", 472222]}
```
`at` is the first partition that is not marked, and null once all are. Only then may the run sweep by the marks.
`folder` is the first folder of keys that is not swept: the value of its layout, and its number. The hours come first.

A cursor without marks that is at the first partition tells the folder only: its sweep had all marks in memory, and died
with them. A cursor of an earlier release begins a new sweep.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import (
    LOG_START_GRACE_MS,
    SWEEP_CYCLE_MS_MAX,
    SWEEP_GRACE_MS,
    SWEEP_LIVE_MAX,
    SWEEP_PARTITIONS_AT_ONCE,
)
from penstock_core.log.topic import Topic
from penstock_core.storage.keys import KeyLayout
from penstock_service.index.reader import note_index_age
from penstock_service.instance.instance import Instance
from penstock_service.retention.mark_live import LiveSegments, Marks, MarksReader, mark_portion, put_marks
from penstock_service.retention.sweep_folders import Folder, find_folders, sweep_folder, swept_stores

_JOB = "sweep"
_FIRST_PARTITION = ("", 0)
_FIRST_FOLDER = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The counts of one run.

    `folders` counts the folders of keys that were swept, and `failures` the lists and deletes that a zone refused.
    `old_keys` counts the listed objects that have keys of an earlier release.
    `rounds` is 1 if the run read a part of the index, which named `live` segments.
    `foreign` counts objects that were left because they are older than everything that the index knows.
    """

    folders: int = 0
    rounds: int = 0
    live: int = 0
    listed: int = 0
    old_keys: int = 0
    deleted: int = 0
    foreign: int = 0
    failures: int = 0
    is_finished: bool = True


def sweep(
    instance: Instance,
    *,
    budget_ms: float,
    grace_ms: int = SWEEP_GRACE_MS,
    log_start_grace_ms: int = LOG_START_GRACE_MS,
    live_max: int = SWEEP_LIVE_MAX,
) -> SweepResult:
    """One run from the cursor on, while the time allows.

    It reads the index once, however many runs that takes. Then it costs one list call for each bucket, one for each
    folder in it, and one more for each further 1,000 objects. If not all is done in one run, or more than `live_max`
    segments live, it puts an object of marks for each `live_max` and each layout of keys, and reads them again by
    folder. A zone that fails is counted, and the next sweep meets it again. Raises what reading the index raises, and
    CORRUPT_SEGMENT if it has a gap. Raises INTERNAL if the time is too short for the first portion of partitions: then
    nothing was deleted.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    cutoff_ms = instance.clock.now_ms() - grace_ms
    cursor = parse_cursor(instance.stores.cursors.get(_JOB), cutoff_ms, cutoff_ms - SWEEP_CYCLE_MS_MAX)
    if cursor.since_ms is None:
        known_ms = note_index_age(instance.stores.cursors, instance.stores.topics.list())
        cursor = replace(cursor, since_ms=cutoff_ms if known_ms is None else known_ms)
    live = LiveSegments(since_ms=cursor.since_ms or 0, cutoff_ms=cursor.cutoff_ms)
    total = SweepResult()
    if cursor.at is not None:
        cursor = _mark(instance, live, cursor, log_start_grace_ms, deadline_ms, live_max)
        total = replace(total, rounds=1, live=live.count)
        if cursor.at is not None:
            return replace(total, is_finished=False)
    try:
        return _sweep(instance, live, cursor, deadline_ms, total)
    except PenstockError as error:
        if not error.facts.get("is_missing"):
            raise
        instance.stores.cursors.clear(_JOB)  # another sweep has removed the marks: the next run begins anew
        return replace(total, is_finished=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCursor:
    """Segments of `[since_ms, cutoff_ms)` are swept, from `folder` on. `at` is None once every partition is marked.

    `since_ms` is None before the first run has looked. The marks hold for these two times only.
    """

    cutoff_ms: int
    since_ms: int | None = None
    marks: Sequence[Marks] = ()
    at: tuple[str, int] | None = _FIRST_PARTITION
    folder: tuple[str, int] = _FIRST_FOLDER


def _mark(
    instance: Instance,
    live: LiveSegments,
    cursor: SweepCursor,
    log_start_grace_ms: int,
    deadline_ms: float,
    live_max: int,
) -> SweepCursor:
    """Marks from the cursor on, and gives the cursor behind it. Its `at` stays if the time was up before the end."""
    portions = list(_portions(instance, cursor.at or ("", 0)))
    for number, (topic, keys) in enumerate(portions):
        if instance.clock.monotonic_ms() >= deadline_ms:
            if not number:
                raise PenstockError(
                    ErrorCode.INTERNAL, "the time is too short to read a part of the index, nothing was swept"
                )
            return _save(instance, live, replace(cursor, at=(str(topic.name), int(keys[0].partition))))
        mark_portion(instance, topic, keys, live, log_start_grace_ms)
        if len(live.ids) > live_max:
            cursor = replace(cursor, marks=(*cursor.marks, *_put_marks(instance, live)))
    cursor = replace(cursor, at=None)
    return _save(instance, live, cursor) if cursor.marks else cursor


def _portions(instance: Instance, start: tuple[str, int]) -> Iterator[tuple[Topic, list[PartitionKey]]]:
    """The partitions from `start` on, in the order of topic names, few at a time."""
    for topic in sorted(instance.stores.topics.list(), key=lambda each: each.name):
        keys = [
            PartitionKey(topic.topic_id, partition)
            for partition in topic.all_partitions()
            if (topic.name, partition) >= start
        ]
        for at in range(0, len(keys), SWEEP_PARTITIONS_AT_ONCE):
            yield topic, keys[at : at + SWEEP_PARTITIONS_AT_ONCE]


def _save(instance: Instance, live: LiveSegments, cursor: SweepCursor) -> SweepCursor:
    """Puts the marks that are in memory, then the cursor that names them."""
    if live.ids:
        cursor = replace(cursor, marks=(*cursor.marks, *_put_marks(instance, live)))
    instance.stores.cursors.put(_JOB, encode_cursor(cursor))
    return cursor


def _put_marks(instance: Instance, live: LiveSegments) -> list[Marks]:
    """Moves the marks from memory into an object for each layout of keys that the stores have."""
    layouts = sorted({store.layout for store in swept_stores(instance.stores)}, key=lambda layout: layout.value)
    marks = [put_marks(instance, live.ids, layout) for layout in layouts]
    live.ids.clear()
    return marks


def _sweep(
    instance: Instance, live: LiveSegments, cursor: SweepCursor, deadline_ms: float, total: SweepResult
) -> SweepResult:
    """Sweeps the folders from the cursor on, by the marks in memory, or by those in objects if there are any."""
    found = find_folders(instance, cursor.cutoff_ms)
    total = replace(total, failures=total.failures + len(found.errors))
    reader = MarksReader(instance.stores.archive, cursor.marks)
    for folders in found.steps(cursor.folder):
        if instance.clock.monotonic_ms() >= deadline_ms:
            _save(instance, live, cursor)
            return replace(total, is_finished=False)
        if cursor.marks:
            live.ids = set(reader.read(folders[0].layout, range(folders[0].number, folders[-1].number + 1)))
        total = _sweep_folders(instance, folders, live, total)
        layout, number = folders[-1].position
        cursor = replace(cursor, folder=(layout, number + 1))
        if cursor.marks:
            live.ids = set()
        # Marks in memory die with the run: then the next one marks again, and goes on at this folder.
        instance.stores.cursors.put(_JOB, encode_cursor(cursor) if cursor.marks else encode_folder(cursor))
    instance.stores.cursors.clear(_JOB)
    if cursor.marks:
        instance.stores.archive.delete([each.segment_id for each in cursor.marks])
    return total


def _sweep_folders(
    instance: Instance, folders: Sequence[Folder], live: LiveSegments, total: SweepResult
) -> SweepResult:
    earlier = [zone.earlier for zone in instance.stores.zones]
    places = [(store, folder.name) for folder in folders for store in folder.stores]
    results = instance.executor.map(lambda place: sweep_folder(*place, live), places)
    done = results.ok
    return replace(
        total,
        folders=total.folders + len(folders),
        listed=total.listed + sum(each.listed for each in done),
        old_keys=total.old_keys
        + sum(
            each.listed
            for (store, _), each in zip(places, results, strict=True)
            if store in earlier and not isinstance(each, PenstockError)
        ),
        deleted=total.deleted + sum(each.deleted for each in done),
        foreign=total.foreign + sum(each.foreign for each in done),
        failures=total.failures + len(results.errors),
    )


def encode_cursor(cursor: SweepCursor) -> str:
    """The JSON above."""
    return json.dumps(
        {
            "cutoff_ms": cursor.cutoff_ms,
            "since_ms": cursor.since_ms,
            "marks": [[each.layout.value, each.segment_id.hex()] for each in cursor.marks],
            "at": cursor.at,
            "folder": cursor.folder,
        }
    )


def encode_folder(cursor: SweepCursor) -> str:
    """The JSON of a cursor that tells its folder only, for a sweep whose marks are in memory."""
    return encode_cursor(SweepCursor(cutoff_ms=cursor.cutoff_ms, folder=cursor.folder))


def parse_cursor(text: str | None, cutoff_ms: int, oldest_ms: int) -> SweepCursor:
    """The stored cursor. Without one, or if its cutoff is before `oldest_ms`, a new sweep with this cutoff."""
    fields: Any = None if text is None else json.loads(text)
    if not isinstance(fields, dict) or "folder" not in fields or fields["cutoff_ms"] < oldest_ms:
        return SweepCursor(cutoff_ms=cutoff_ms)
    at = None if fields["at"] is None else (fields["at"][0], fields["at"][1])
    folder = (fields["folder"][0], fields["folder"][1])
    if not fields["marks"] and at == _FIRST_PARTITION:
        return SweepCursor(cutoff_ms=cutoff_ms, folder=folder)
    return SweepCursor(
        cutoff_ms=fields["cutoff_ms"],
        since_ms=fields["since_ms"],
        marks=tuple(
            Marks(layout=KeyLayout(layout), segment_id=SegmentId(bytes.fromhex(name)))
            for layout, name in fields["marks"]
        ),
        at=at,
        folder=folder,
    )
