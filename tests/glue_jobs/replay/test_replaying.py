"""Replaying in one process: an archived topic's records arrive in order and once, although runs die or run twice."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import decode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.record_batch import Compression
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import TableKind, find_plan
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.replay.replay_lane import LaneResult, ReplayTarget, replay_lane
from penstock_spark.replay.replay_source import (
    IcebergRows,
    ParquetRows,
    RowSource,
    RowWindow,
    Selection,
    windows_of,
)
from penstock_spark.replay.replaying import (
    RESUMABLE_MS,
    ReplayRequest,
    ReplayResult,
    begin_replay,
    default_id,
    digest_of,
    digest_of_older_releases,
    placements_of,
    run_replay,
    turned,
)
from tests.glue_jobs.archived_topic import DAY_MS, START_MS, ArchivedTopic, Row
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    ask,
    head_of,
    new_topic,
    patient_instance,
)

NOW_MS = START_MS + 10 * DAY_MS
ALL = Selection()


@pytest.fixture
def clock() -> SteppedClock:
    clock = SteppedClock()
    clock.time_ms = float(NOW_MS)
    return clock


@pytest.fixture(params=TableKind)
def archived(request: pytest.FixtureRequest, tmp_path: Path, clock: SteppedClock) -> ArchivedTopic:
    """An archived topic of two partitions."""
    archived = ArchivedTopic(folder=tmp_path, kind=request.param, instance=patient_instance(clock))
    archived.fill()
    archived.archive()
    return archived


@pytest.fixture
def parquet(tmp_path: Path, clock: SteppedClock) -> ArchivedTopic:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.PARQUET, instance=patient_instance(clock))
    archived.fill()
    archived.archive()
    return archived


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_spark.replay.replay_lane.REQUEST_BYTES", 300)


def replay(
    archived: ArchivedTopic,
    instance: Instance | None = None,
    *,
    to: str = "copy",
    selection: Selection = ALL,
    by_key: bool = False,
    replay_id: str = "first",
    **changes: Any,
) -> ReplayResult:
    """One run of the replay, as the job does it."""
    instance = archived.instance if instance is None else instance
    topic = instance.topic_cache.read_through(to)
    table = archived.table()
    snapshot_id = table.pin(None)[1] if isinstance(table, IcebergTable) else None
    request = ReplayRequest(
        table=table.name,
        topic=to,
        topic_id=topic.topic_id,
        partitions=topic.writable_partitions,
        first=topic.first_writable,
        by_key=by_key,
        selection=selection,
    )
    note = begin_replay(
        archived.lake, replay_id, request, table.committed().number, snapshot_id, int(instance.clock.now_ms())
    )
    rows: RowSource = ParquetRows(uri=str(archived.folder / "lake"), storage=SOME_STORAGE, table=table.name)
    if isinstance(table, IcebergTable):
        location, pinned = table.pin(note.snapshot_id)
        rows = IcebergRows(storage=SOME_STORAGE, metadata_location=location, snapshot_id=pinned)
    *earlier, _ = placements_of(archived.lake, replay_id, request)
    target = ReplayTarget(
        replay_id=replay_id,
        topic=to,
        topic_id=topic.topic_id,
        partitions=topic.writable_partitions,
        first=topic.first_writable,
        earlier=tuple(earlier),
        by_key=by_key,
        compression=Compression.NONE,
        records_per_second=None,
        allows_expired=False,
    )

    def run_lanes(lanes: Any) -> list[LaneResult]:
        return [replay_lane(instance, rows, selection, replace(target, **changes), lane) for lane in lanes]

    def turn() -> None:
        nonlocal target
        target = turned(instance, archived.lake, request, target)

    windows = windows_of(plans(archived, note.commit), selection, 500)
    return run_replay(windows, run_lanes, 2_000, lambda *_, **__: None, turn)


def plans(archived: ArchivedTopic, commit: int) -> Iterator[Plan]:
    table = archived.table().name
    for number in range(1, commit + 1):
        plan = find_plan(archived.lake, table, number)
        assert plan is not None
        yield plan


def rows_in(instance: Instance, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """Key, value, timestamp and headers of the partition's records, by offset."""
    found: list[tuple[Any, ...]] = []
    offset = 0
    while offset < head_of(instance, topic, partition).high_watermark:
        fetched = ask(instance, topic, offset, partition=partition)
        found += [
            (each.key, each.value, each.timestamp, tuple(each.headers))
            for each in decode(fetched.data)
            if each.offset >= offset
        ]
        offset = fetched.next_offset
    return found


def content(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(key, value, timestamp_ms, tuple(headers)) for _, _, key, value, timestamp_ms, headers in rows]


def expected(archived: ArchivedTopic, partition: int) -> list[tuple[Any, ...]]:
    return content([row for row in archived.expected() if row[0] == partition])


def test_records_arrive_as_they_were_in_the_partitions_that_they_were_in(archived: ArchivedTopic) -> None:
    new_topic(archived.instance, "copy", partitions=2)

    total = replay(archived)

    assert [rows_in(archived.instance, "copy", each) for each in (0, 1)] == [
        expected(archived, each) for each in (0, 1)
    ]
    assert (total.appended, total.repeated) == (len(archived.model), 0)


def test_records_go_by_key_and_those_of_a_source_partition_keep_their_order(archived: ArchivedTopic) -> None:
    new_topic(archived.instance, "copy", partitions=3)

    total = replay(archived, by_key=True)

    def target_of(row: Row) -> int:
        return row[0] if row[2] is None else partition_for_key(row[2], 3)

    for target in range(3):
        found = rows_in(archived.instance, "copy", target)
        by_source = [content([r for r in archived.expected() if r[0] == s and target_of(r) == target]) for s in (0, 1)]
        assert sorted(found, key=repr) == sorted(by_source[0] + by_source[1], key=repr)
        for part in by_source:
            assert [each for each in found if each in part] == part
    assert total.appended == len(archived.model)


@pytest.mark.parametrize("ordering", ["none", "wait"])
def test_records_go_by_key_to_the_partitions_that_take_records_when_others_drain(
    parquet: ArchivedTopic, ordering: str
) -> None:
    new_topic(parquet.instance, "copy", partitions=3, ordering_on_change=ordering)
    alter_topic(parquet.instance, "copy", 2, {})
    first = 3 if ordering == "wait" else 0

    assert replay(parquet, by_key=True).appended == len(parquet.model)
    assert replay(parquet, by_key=True, replay_id="first").repeated == len(parquet.model)

    found = [head_of(parquet.instance, "copy", each).next_offset for each in range(3 + 2 * (ordering == "wait"))]
    assert sum(found[first : first + 2]) == sum(found) == len(parquet.model)


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("dies", [True, False])
def test_each_record_arrives_once_and_in_order_when_generations_open_meanwhile(
    parquet: ArchivedTopic, by_key: bool, dies: bool
) -> None:
    """The same id stays right, whether the run goes on or dies at the change and is made again."""
    new_topic(parquet.instance, "copy", partitions=2, ordering_on_change="wait")
    appends = 0

    def changes_it(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal appends
        appends += 1
        if appends in (3, 8):
            alter_topic(another_instance(parquet.instance), "copy", {3: 3, 8: 2}[appends], {})
        result = original(*arguments)
        if dies and appends in (5, 9):
            raise Killed
        return result

    log = Intercepted(parquet.instance.stores.log, append_in_sequence=changes_it)
    total = None
    for _ in range(4):
        with suppress(Killed):
            total = replay(parquet, another_instance(parquet.instance, log=log), by_key=by_key)
            break
    assert total is not None
    assert parquet.instance.topic_cache.read_through("copy").generations == (0, 2, 5)
    assert replay(parquet, by_key=by_key).appended == 0
    found = [row for each in range(7) for row in rows_in(parquet.instance, "copy", each)]
    assert sorted(map(repr, found)) == sorted(map(repr, content(parquet.expected())))
    for partition in (0, 1):  # a key of one source partition kept its order
        for key in {row[0] for row in expected(parquet, partition)}:
            sent = [row for row in expected(parquet, partition) if row[0] == key]
            if key is not None or not by_key:
                assert [row for row in found if row in sent] == sent


def test_replay_is_refused_when_draining_partitions_would_mix_its_numbers(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    replay(parquet, selection=Selection(partitions=(0,)))
    alter_topic(parquet.instance, "copy", 1, {})
    with pytest.raises(PenstockError, match="had 2 writable partitions from 0 on when replay 'first' began"):
        replay(parquet, selection=Selection(partitions=(0,)))


def test_digest_of_a_request_does_not_depend_on_the_targets_partitions(parquet: ArchivedTopic) -> None:
    request = ReplayRequest(table="t", topic="o", topic_id="i", partitions=2, by_key=True, selection=ALL)
    assert digest_of(replace(request, first=2, partitions=5)) == digest_of(request)
    assert digest_of(replace(request, by_key=False)) != digest_of(request)
    assert digest_of_older_releases(request) == "f5fe237cf9b72679"
    assert digest_of_older_releases(replace(request, first=2)) != digest_of_older_releases(request)


def test_replay_that_an_older_release_began_goes_on_under_its_id(parquet: ArchivedTopic) -> None:
    request = ReplayRequest(table="t", topic="o", topic_id="i", partitions=2, by_key=True, selection=ALL)
    assert default_id(parquet.lake, request) == digest_of(request)
    older = digest_of_older_releases(request)
    note = {"request_digest": older, "commit": 1, "snapshot_id": None, "started_ms": NOW_MS}
    parquet.lake.put(f"t/_penstock/replays/{older}.json", json.dumps(note).encode())
    assert default_id(parquet.lake, request) == older
    assert begin_replay(parquet.lake, older, request, 2, None, NOW_MS).commit == 1


def test_a_topic_is_replayed_into_itself_once(parquet: ArchivedTopic) -> None:
    before = [rows_in(parquet.instance, parquet.topic, each) for each in (0, 1)]

    replay(parquet, to=parquet.topic)

    assert [rows_in(parquet.instance, parquet.topic, each) for each in (0, 1)] == [each * 2 for each in before]


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("by_key", [False, True])
def test_each_record_arrives_once_when_runs_are_killed_at_every_append(
    parquet: ArchivedTopic, by_key: bool, takes_effect: bool
) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    runs = effects = 0

    def dies(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal effects
        if effects and not takes_effect:
            raise Killed
        effects += 1
        result = original(*arguments)
        if takes_effect:
            raise Killed
        return result

    while True:
        runs += 1
        effects = 0
        mortal = another_instance(
            parquet.instance, log=Intercepted(parquet.instance.stores.log, append_in_sequence=dies)
        )
        try:
            replay(parquet, mortal, by_key=by_key)
        except Killed:
            continue
        break

    assert runs > 5
    found = [rows_in(parquet.instance, "copy", each) for each in (0, 1)]
    if by_key:
        assert sorted(found[0] + found[1], key=repr) == sorted(content(parquet.expected()), key=repr)
    else:
        assert found == [expected(parquet, each) for each in (0, 1)]


def test_each_record_arrives_once_when_answers_are_lost_and_storage_fails(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    calls = 0

    def fails(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 1:
            raise UNAVAILABLE
        result = original(*arguments)
        if calls % 3 == 2:
            raise LOST_ANSWER
        return result

    replay(
        parquet,
        another_instance(parquet.instance, log=Intercepted(parquet.instance.stores.log, append_in_sequence=fails)),
    )

    assert [rows_in(parquet.instance, "copy", each) for each in (0, 1)] == [expected(parquet, each) for each in (0, 1)]
    assert calls > 6


def test_a_run_beside_another_of_the_same_replay_appends_nothing_twice(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    others: list[ReplayResult] = []
    calls = 0

    def runs_another(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            others.append(replay(parquet))
        return original(*arguments)

    mine = replay(
        parquet,
        another_instance(
            parquet.instance, log=Intercepted(parquet.instance.stores.log, append_in_sequence=runs_another)
        ),
    )

    assert others[0].repeated > 0
    assert mine.repeated > 0
    assert [rows_in(parquet.instance, "copy", each) for each in (0, 1)] == [expected(parquet, each) for each in (0, 1)]


def test_replay_leaves_out_records_that_were_archived_after_it_began(archived: ArchivedTopic) -> None:
    new_topic(archived.instance, "copy", partitions=2)
    before = [expected(archived, each) for each in (0, 1)]
    replay(archived)
    archived.append(0, 5)
    archived.archive()

    assert replay(archived).appended == 0

    assert [rows_in(archived.instance, "copy", each) for each in (0, 1)] == before


SELECTIONS = [
    Selection(partitions=(1,)),
    Selection(starts=((0, 5), (1, 3)), ends=((0, 31),)),
    Selection(from_ms=START_MS + DAY_MS),
    Selection(from_ms=START_MS + 1, to_ms=START_MS + 2 * DAY_MS + 1),
    Selection(partitions=(0,), ends=((0, 20),), to_ms=START_MS + DAY_MS),
]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_replay_sends_the_selected_records_only(archived: ArchivedTopic, selection: Selection) -> None:
    new_topic(archived.instance, "copy", partitions=2)

    replay(archived, selection=selection)

    starts, ends = dict(selection.starts), dict(selection.ends)
    selected = [
        row
        for row in archived.expected()
        if (selection.partitions is None or row[0] in selection.partitions)
        and starts.get(row[0], 0) <= row[1] < ends.get(row[0], 10_000)
        and (selection.from_ms or 0) <= row[4] < (selection.to_ms or NOW_MS)
    ]
    assert 0 < len(selected) < len(archived.model)
    for partition in (0, 1):
        assert rows_in(archived.instance, "copy", partition) == content(
            [row for row in selected if row[0] == partition]
        )


def test_records_that_retention_would_remove_are_refused_unless_expired_ones_are_allowed(
    parquet: ArchivedTopic,
) -> None:
    new_topic(parquet.instance, "copy", partitions=2, retention_ms=9 * DAY_MS)

    with pytest.raises(PenstockError, match=r"timestamp 1\d+, and topic 'copy' keeps 777600000 ms") as raised:
        replay(parquet)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert head_of(parquet.instance, "copy").high_watermark == 0

    assert replay(parquet, allows_expired=True).appended == len(parquet.model)


def test_the_rate_is_kept(parquet: ArchivedTopic, clock: SteppedClock) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    started_ms = clock.time_ms

    total = replay(parquet, selection=Selection(partitions=(0,)), records_per_second=2.0)

    assert clock.time_ms - started_ms == pytest.approx(total.appended * 500, abs=500)


def test_an_id_stands_for_the_options_that_it_was_begun_with(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    replay(parquet)

    with pytest.raises(PenstockError, match="replay 'first' of table 'web_orders' was begun with other options"):
        replay(parquet, selection=Selection(partitions=(0,)))


def test_replay_is_refused_when_it_began_too_long_ago(parquet: ArchivedTopic, clock: SteppedClock) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    replay(parquet)
    clock.time_ms += RESUMABLE_MS + 1

    with pytest.raises(PenstockError, match="began 144 hours ago: its topic may have forgotten"):
        replay(parquet)


def test_replay_is_refused_when_its_topic_was_deleted_since(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)

    with pytest.raises(PenstockError, match="topic 'copy' was deleted since the replay into it began"):
        replay(parquet, topic_id="another")


def test_windows_join_groups_up_to_their_size(parquet: ArchivedTopic) -> None:
    [plan] = plans(parquet, 1)

    found = windows_of([plan], ALL, 800)

    spans = [each for group in plan.groups for each in group.spans]
    assert {each: (windows[0].start_offset, windows[-1].end_offset) for each, windows in found.items()} == {
        partition: (
            min(each.start_offset for each in spans if each.partition == partition),
            max(each.end_offset for each in spans if each.partition == partition),
        )
        for partition in (0, 1)
    }
    assert sum(map(len, found.values())) < len(spans)
    for windows in found.values():
        assert all(isinstance(each, RowWindow) and each.stored_bytes <= 800 for each in windows)


def test_lanes_of_different_replays_and_partitions_are_different_producers() -> None:
    from penstock_spark.replay.replay_lane import producer_id_of

    ids = {producer_id_of(replay_id, partition) for replay_id in ("a", "b") for partition in range(100)}

    assert len(ids) == 200
    assert all(0 <= each < 2**63 for each in ids)
