"""Replaying in one process: an archived topic's records arrive in order and once, although runs die or run twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.records.partitioner import partition_for_key
from penstock_service.retention.retain import retain
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.replay.replay_source import (
    RowWindow,
    Selection,
    windows_of,
)
from penstock_spark.replay.replaying import (
    RESUMABLE_MS,
    ReplayResult,
)
from tests.glue_jobs.archived_topic import DAY_MS, START_MS, ArchivedTopic, Row
from tests.glue_jobs.replay.replays import ALL, NOW_MS, content, expected, plans, replay, rows_in
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    new_topic,
    patient_instance,
)

pytestmark = pytest.mark.usefixtures("small_requests")


def test_records_arrive_as_they_were_in_the_partitions_that_they_were_in(archived: ArchivedTopic) -> None:
    new_topic(archived.instance, "copy", partitions=2)

    total = replay(archived)

    assert [rows_in(archived.instance, "copy", each) for each in (0, 1)] == [
        expected(archived, each) for each in (0, 1)
    ]
    assert (total.appended, total.repeated) == (len(archived.model), 0)


def test_records_of_a_typed_and_rebuilt_table_arrive_as_they_were(tmp_path: Path, clock: SteppedClock) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG, instance=patient_instance(clock))
    archived.fill()
    archived.archive(schema=("json", '{"properties": {"n": {"type": "integer"}}}'))  # no value fits
    archived.append(1, 3)
    archived.archive(schema=("json", '{"properties": {"key": {"type": "string"}, "value": {}, "m": {}}}'))
    archived.rebuild(("json", '{"properties": {"timestamp": {"type": "number"}}}'))
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


def test_old_records_live_their_full_time_from_the_replay(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2, retention_ms=9 * DAY_MS)
    assert replay(parquet).appended == len(parquet.model)
    assert retain(parquet.instance, budget_ms=60_000).refs_expired == 0


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
