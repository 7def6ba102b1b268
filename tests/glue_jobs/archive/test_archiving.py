"""Archiving in one process, as a run does it: each offset is there once, whether runs die, meet, or find expired
records."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.archive.archive_plan import (
    CommittedFiles,
    Group,
    OffsetSpan,
    decode_plan,
    encode_plan,
    high_watermarks,
    make_plan,
)
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import ArchiveResult, Sizes
from penstock_spark.archive.iceberg_table import open_catalog
from tests.glue_jobs.archived_topic import ArchivedTopic, DyingWriter, place_of, row_of, same
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.restoring import jump
from tests.support.service import Intercepted, Killed, head_of, key_of


@pytest.fixture(params=TableKind)
def archived(request: pytest.FixtureRequest, tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(folder=tmp_path, kind=request.param)


def test_a_topic_is_archived_row_for_row_and_by_day(archived: ArchivedTopic) -> None:
    archived.fill()

    result = archived.archive()

    assert same(archived.rows(), archived.expected())
    assert same(archived.files(), archived.expected())
    assert (result.records, result.expired_offsets) == (len(archived.model), 0)
    assert result.commits > 1
    assert [each["offsets_left"] for each in archived.events][-1] == 0


def test_a_second_run_archives_what_is_new_and_nothing_else(archived: ArchivedTopic) -> None:
    archived.fill()
    archived.archive()

    assert archived.archive().commits == 0
    archived.append(1, 5, day=9)
    again = archived.archive()

    assert (again.commits, again.records) == (1, 5)
    assert same(archived.rows(), archived.expected())


@pytest.mark.parametrize("before_next", [False, True])
def test_each_offset_is_there_once_when_runs_are_killed_at_every_write(
    archived: ArchivedTopic, before_next: bool
) -> None:
    archived.fill()
    kills = 0
    while True:
        mortal = DyingWriter(before_next=before_next)
        lake = Intercepted(archived.lake, put_new=mortal.write)
        catalog = archived.catalog(commit_table=mortal.write, create_table=mortal.write)
        before = archived.files()
        try:
            archived.archive(Sizes(group_bytes=800, commit_bytes=1_500), lake=lake, catalog=catalog)
        except Killed:
            kills += 1
            assert [*dict.fromkeys(map(place_of, archived.files()))] == [*map(place_of, archived.files())]
            assert set(map(place_of, before)) <= set(map(place_of, archived.files()))
        else:
            break

    assert kills > 20
    assert same(archived.rows(), archived.expected())
    assert same(archived.files(), archived.expected())


def test_a_run_that_starts_within_another_does_its_work_and_neither_does_it_twice(archived: ArchivedTopic) -> None:
    archived.fill()
    inner: list[ArchiveResult] = []

    def run_another(group: Group) -> None:
        if group.number == 1 and not inner:
            inner.append(archived.archive())

    outer = archived.archive(before_group=run_another)

    assert inner[0].records == len(archived.model)
    assert outer.commits == 1
    assert same(archived.rows(), archived.expected())
    assert same(archived.files(), archived.expected())


def test_two_runs_that_commit_at_once_leave_one_commit(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)
    archived.append(0, 3)
    archived.archive()
    archived.append(0, 3)
    others: list[ArchiveResult] = []

    def commit_after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        if not others:
            others.append(archived.archive())
        return original(*arguments)

    archived.archive(catalog=archived.catalog(commit_table=commit_after_another))

    assert others[0].records == 3
    assert same(archived.rows(), archived.expected())
    assert [each.summary["penstock.commit"] for each in _table(archived).snapshots() if each.summary] == ["1", "2"]


def test_commit_reads_the_table_again_when_another_writer_commits_in_between(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)
    archived.append(0, 3)
    archived.archive()
    archived.append(0, 2)
    changed: list[bool] = []

    def commit_after_a_delete(original: Callable[..., Any], *arguments: Any) -> Any:
        if not changed:
            changed.append(True)
            _table(archived).delete("offset < 3")
        return original(*arguments)

    archived.archive(catalog=archived.catalog(commit_table=commit_after_a_delete))
    archived.append(0, 1)
    archived.archive()

    assert same(archived.rows(), archived.expected(3))


def test_a_table_that_was_rolled_back_is_archived_again_from_where_it_is(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)
    for _ in range(3):
        archived.append(0, 3)
        archived.archive()
    table = _table(archived)
    table.manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert len(archived.rows()) == 3

    archived.archive()

    assert same(archived.rows(), archived.expected())


def test_a_table_whose_own_snapshots_have_expired_goes_on_by_its_properties(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)
    archived.append(0, 3)
    archived.archive()
    table = _table(archived)
    mine = [each.snapshot_id for each in table.snapshots()]
    table.delete("offset < 3")
    table.maintenance.expire_snapshots().by_ids(mine).commit()
    archived.append(0, 2)

    assert archived.archive().records == 2

    assert [row[1] for row in archived.rows()] == [3, 4]


def _table(archived: ArchivedTopic) -> Any:
    return archived.catalog().load_table(("penstock", "web_orders"))


def test_expired_offsets_are_reported_and_the_rest_is_archived_when_retention_came_first(
    archived: ArchivedTopic,
) -> None:
    archived.fill()
    archived.instance.stores.log.raise_log_start(key_of(archived.instance, archived.topic), Offset(7))
    first = archived.archive()  # begins at the topic's start at that time
    end = head_of(archived.instance, archived.topic).high_watermark
    archived.append(0, 5)
    archived.append(0, 5)
    archived.instance.stores.log.raise_log_start(key_of(archived.instance, archived.topic), Offset(end + 3))

    second = archived.archive()

    assert (first.expired_offsets, second.expired_offsets) == (0, 3)
    expired = [each for each in archived.events if each["event"] == "expired"]
    assert [each["offsets"] for each in expired] == [[{"partition": 0, "start_offset": end, "end_offset": end + 3}]]
    gone = range(end, end + 3)
    assert same(archived.rows(), [row for row in archived.expected(7) if row[0] or row[1] not in gone])
    assert archived.archive().commits == 0


def test_expired_offsets_are_reported_and_files_stay_when_retention_comes_after_the_plan(
    archived: ArchivedTopic,
) -> None:
    archived.fill()
    key = key_of(archived.instance, archived.topic)
    mortal = Intercepted(archived.lake, put_new=_dies_at_data(3))
    with pytest.raises(Killed):
        archived.archive(lake=mortal)
    saved = set(map(place_of, archived.files()))
    archived.instance.stores.log.raise_log_start(key, Offset(20))

    result = archived.archive()

    assert saved
    assert result.expired_offsets > 0
    found = set(map(place_of, archived.rows()))
    assert found >= saved | {place_of(row) for row in archived.expected(20)}
    assert same(archived.rows(), [row for row in archived.expected() if place_of(row) in found])
    assert any(each["event"] == "expired" for each in archived.events)


def _dies_at_data(number: int) -> Callable[..., bool]:
    left = [number]

    def put_new(original: Callable[..., bool], path: str, content: Any) -> bool:
        left[0] -= "/data/" in path
        if not left[0]:
            raise Killed
        return original(path, content)

    return put_new


def test_a_topic_created_again_gets_a_table_of_its_own(archived: ArchivedTopic) -> None:
    archived.append(0, 3)
    archived.archive()
    delete_topic(archived.instance, archived.topic)
    archived.instance.topic_cache.forget(archived.topic)
    created = create_topic(archived.instance, archived.topic, 2, {})
    archived.append(0, 4)

    result = archived.archive()

    assert (result.table, result.records) == (f"web_orders_{created.topic_id[:8]}", 4)
    assert len(archived.files()) == 3


def test_a_topic_whose_table_is_of_the_other_kind_is_refused(archived: ArchivedTopic) -> None:
    archived.append(0, 3)
    archived.archive()
    archived.kind = TableKind.ICEBERG if archived.kind is TableKind.PARQUET else TableKind.PARQUET

    with pytest.raises(PenstockError, match=r"is archived as .*: give the same --catalog") as raised:
        archived.archive()
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_an_index_that_was_set_back_is_refused(archived: ArchivedTopic) -> None:
    archived.append(0, 3)
    topic = archived.instance.stores.topics.list()[0]
    ahead = CommittedFiles(number=1, next_offsets={0: 9, 1: 0})

    with pytest.raises(PenstockError, match="ends at 3, and is archived up to 9") as raised:
        make_plan(
            archived.instance,
            topic,
            ahead,
            high_watermarks(archived.instance, topic),
            group_bytes=1_000,
            commit_bytes=1_000,
        )
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_table_ahead_of_a_restore_goes_on_behind_the_jump(archived: ArchivedTopic) -> None:
    archived.append(0, 3)
    jump(archived.instance, 9, 1, topic=archived.topic)
    archived.append(0, 2)
    topic = archived.instance.topic_cache.read_through(archived.topic)
    ahead = CommittedFiles(number=1, next_offsets={0: 9, 1: 0})
    until = high_watermarks(archived.instance, topic)
    plan = make_plan(archived.instance, topic, ahead, until, group_bytes=1_000, commit_bytes=1_000)
    assert plan is not None
    spans = [(each.partition, each.start_offset, each.end_offset) for group in plan.groups for each in group.spans]
    assert spans == [(0, 1_009, 1_011), (1, 0, 1_001)]
    assert plan.next_offsets == until
    archived.archive()
    assert same(archived.rows(), archived.expected())


def test_a_plan_is_read_back_as_it_was_put(archived: ArchivedTopic) -> None:
    archived.fill()
    archived.instance.stores.log.raise_log_start(key_of(archived.instance, archived.topic), Offset(7))
    topic = archived.instance.stores.topics.list()[0]
    committed = CommittedFiles(number=4, next_offsets={0: 2, 1: 0})
    ends = high_watermarks(archived.instance, topic)

    plan = make_plan(archived.instance, topic, committed, ends, group_bytes=700, commit_bytes=9_000)

    assert plan is not None
    assert plan.expired
    assert len(plan.groups) > 2
    assert decode_plan(encode_plan(plan)) == plan


def test_a_partition_that_was_added_is_archived_from_its_beginning(archived: ArchivedTopic) -> None:
    archived.append(0, 3)
    archived.append(1, 4)
    archived.instance.stores.log.raise_log_start(key_of(archived.instance, archived.topic, 1), Offset(1))
    topic = archived.instance.stores.topics.list()[0]
    committed = CommittedFiles(number=1, next_offsets={0: 3})

    plan = make_plan(archived.instance, topic, committed, {0: 3, 1: 4}, group_bytes=9, commit_bytes=9)

    assert plan is not None
    assert [each.spans for each in plan.groups] == [(OffsetSpan(partition=1, start_offset=1, end_offset=4),)]
    assert plan.expired == (OffsetSpan(partition=1, start_offset=0, end_offset=1),)
    assert plan.next_offsets == {0: 3, 1: 4}


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 4), st.integers(0, 2)),
    st.tuples(st.just("archive"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.booleans(), st.just(0), st.just(0)),
    st.tuples(st.just("expire"), st.integers(0, 1), st.integers(1, 4), st.just(0)),
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
def test_the_table_equals_a_model_for_any_appends_kills_and_removals(steps: list[tuple[str, int, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        archived = ArchivedTopic(folder=Path(folder), kind=TableKind.PARQUET)
        may_be_gone: set[tuple[int, int]] = set()
        for step, number, count, day in steps:
            if step == "append":
                archived.append(number, count, day)
            elif step == "expire":
                head = head_of(archived.instance, archived.topic, number)
                log_start = min(head.log_start_offset + count, head.high_watermark)
                archived.instance.stores.log.raise_log_start(
                    key_of(archived.instance, archived.topic, number), Offset(log_start)
                )
                archived_places = set(map(place_of, archived.files()))
                may_be_gone |= {(number, each) for each in range(log_start)} - archived_places
            elif step == "archive":
                archived.archive()
            else:
                mortal = DyingWriter(before_next=bool(number))
                with suppress(Killed):
                    archived.archive(lake=Intercepted(archived.lake, put_new=mortal.write))
        archived.archive()
        found = archived.files()

    places = set(map(place_of, found))
    assert same(found, [row for row in archived.expected() if place_of(row) in places])
    assert len(places) == len(found)
    assert set(map(place_of, archived.model)) - places <= may_be_gone


@pytest.mark.parametrize("spec", ["glue:", "hive"])
def test_catalog_is_refused_when_its_name_is_malformed(spec: str) -> None:
    with pytest.raises(PenstockError, match="give glue:<database>, a database's URL"):
        open_catalog(spec, SOME_STORAGE)


def test_a_topic_is_archived_into_glue_s_catalog(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)
    glue = replace(SOME_STORAGE, region="us-east-1", access_key="test", secret_key="test")
    others: list[ArchiveResult] = []
    with mock_aws():
        catalog, namespace = open_catalog("glue:stage", glue)
        archived.open_catalog = lambda: open_catalog("glue:stage", glue)
        archived.append(0, 3)
        archived.archive()
        archived.append(1, 4)

        def commit_after_another(original: Callable[..., Any], *arguments: Any) -> Any:
            if not others:
                others.append(archived.archive())
            return original(*arguments)

        archived.archive(catalog=archived.catalog(commit_table=commit_after_another))

        found = catalog.load_table((namespace, "web_orders")).scan().to_arrow()
        assert namespace == "stage"
    assert others[0].records == 4
    assert same(sorted(map(row_of, found.to_pylist()), key=place_of), archived.expected())
