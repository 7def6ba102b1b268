"""Archiving as its run does it, in one process: whatever dies, meets another run or expires, each offset once."""

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

from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_spark.archive_plan import (
    Committed,
    Group,
    OffsetSpan,
    decode_plan,
    encode_plan,
    high_watermarks,
    make_plan,
)
from penstock_spark.archive_table import TableKind
from penstock_spark.archiving import Sizes, TopicArchived
from penstock_spark.iceberg_table import open_catalog
from tests.broker.setting import Intercepted, Killed, head_of, key_of
from tests.glue_jobs.archived import Mortal, World, place_of, row_of, same
from tests.glue_jobs.storages import SOME_STORAGE


@pytest.fixture(params=TableKind)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(folder=tmp_path, kind=request.param)


def test_a_topic_is_archived_row_for_row_and_by_day(world: World) -> None:
    world.fill()

    result = world.archive()

    assert same(world.rows(), world.expected())
    assert same(world.files(), world.expected())
    assert (result.records, result.expired_offsets) == (len(world.model), 0)
    assert result.commits > 1
    assert [each["offsets_left"] for each in world.told][-1] == 0


def test_a_second_run_archives_what_is_new_and_nothing_else(world: World) -> None:
    world.fill()
    world.archive()

    assert world.archive().commits == 0
    world.append(1, 5, day=9)
    again = world.archive()

    assert (again.commits, again.records) == (1, 5)
    assert same(world.rows(), world.expected())


@pytest.mark.parametrize("before_next", [False, True])
def test_each_offset_is_there_once_when_runs_are_killed_at_every_write(world: World, before_next: bool) -> None:
    world.fill()
    kills = 0
    while True:
        mortal = Mortal(before_next=before_next)
        lake = Intercepted(world.lake, put_new=mortal.write)
        catalog = world.catalog(commit_table=mortal.write, create_table=mortal.write)
        seen = world.files()
        try:
            world.archive(Sizes(group_bytes=800, commit_bytes=1_500), lake=lake, catalog=catalog)
        except Killed:
            kills += 1
            assert [*dict.fromkeys(map(place_of, world.files()))] == [*map(place_of, world.files())]
            assert set(map(place_of, seen)) <= set(map(place_of, world.files()))
        else:
            break

    assert kills > 20
    assert same(world.rows(), world.expected())
    assert same(world.files(), world.expected())


def test_a_run_that_starts_within_another_does_its_work_and_neither_does_it_twice(world: World) -> None:
    world.fill()
    inner: list[TopicArchived] = []

    def run_another(group: Group) -> None:
        if group.number == 1 and not inner:
            inner.append(world.archive())

    outer = world.archive(before_group=run_another)

    assert inner[0].records == len(world.model)
    assert outer.commits == 1
    assert same(world.rows(), world.expected())
    assert same(world.files(), world.expected())


def test_two_runs_that_commit_at_once_leave_one_commit(tmp_path: Path) -> None:
    world = World(folder=tmp_path, kind=TableKind.ICEBERG)
    world.append(0, 3)
    world.archive()
    world.append(0, 3)
    others: list[TopicArchived] = []

    def commit_after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        if not others:
            others.append(world.archive())
        return original(*arguments)

    world.archive(catalog=world.catalog(commit_table=commit_after_another))

    assert others[0].records == 3
    assert same(world.rows(), world.expected())
    assert [each.summary["penstock.commit"] for each in _table(world).snapshots() if each.summary] == ["1", "2"]


def test_a_commit_of_others_in_between_costs_only_another_look(tmp_path: Path) -> None:
    world = World(folder=tmp_path, kind=TableKind.ICEBERG)
    world.append(0, 3)
    world.archive()
    world.append(0, 2)
    changed: list[bool] = []

    def commit_after_a_delete(original: Callable[..., Any], *arguments: Any) -> Any:
        if not changed:
            changed.append(True)
            _table(world).delete("offset < 3")
        return original(*arguments)

    world.archive(catalog=world.catalog(commit_table=commit_after_a_delete))
    world.append(0, 1)
    world.archive()

    assert same(world.rows(), world.expected(3))


def test_a_table_that_was_rolled_back_is_archived_again_from_where_it_is(tmp_path: Path) -> None:
    world = World(folder=tmp_path, kind=TableKind.ICEBERG)
    for _ in range(3):
        world.append(0, 3)
        world.archive()
    table = _table(world)
    table.manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert len(world.rows()) == 3

    world.archive()

    assert same(world.rows(), world.expected())


def test_a_table_whose_own_snapshots_have_expired_goes_on_by_its_properties(tmp_path: Path) -> None:
    world = World(folder=tmp_path, kind=TableKind.ICEBERG)
    world.append(0, 3)
    world.archive()
    table = _table(world)
    mine = [each.snapshot_id for each in table.snapshots()]
    table.delete("offset < 3")
    table.maintenance.expire_snapshots().by_ids(mine).commit()
    world.append(0, 2)

    assert world.archive().records == 2

    assert [row[1] for row in world.rows()] == [3, 4]


def _table(world: World) -> Any:
    return world.catalog().load_table(("penstock", "web_orders"))


def test_what_expired_before_it_was_archived_is_told_and_the_rest_is_archived(world: World) -> None:
    world.fill()
    world.broker.log.raise_log_start(key_of(world.broker, world.topic), Offset(7))
    first = world.archive()  # begins where the topic begins then
    end = head_of(world.broker, world.topic).high_watermark
    world.append(0, 5)
    world.append(0, 5)
    world.broker.log.raise_log_start(key_of(world.broker, world.topic), Offset(end + 3))

    second = world.archive()

    assert (first.expired_offsets, second.expired_offsets) == (0, 3)
    expired = [each for each in world.told if each["event"] == "expired"]
    assert [each["offsets"] for each in expired] == [[{"partition": 0, "start_offset": end, "end_offset": end + 3}]]
    gone = range(end, end + 3)
    assert same(world.rows(), [row for row in world.expected(7) if row[0] or row[1] not in gone])
    assert world.archive().commits == 0


def test_what_expires_between_its_plan_and_its_group_is_told_and_archived_files_stay(world: World) -> None:
    world.fill()
    key = key_of(world.broker, world.topic)
    mortal = Intercepted(world.lake, put_new=_dies_at_data(3))
    with pytest.raises(Killed):
        world.archive(lake=mortal)
    saved = set(map(place_of, world.files()))
    world.broker.log.raise_log_start(key, Offset(20))

    result = world.archive()

    assert saved
    assert result.expired_offsets > 0
    found = set(map(place_of, world.rows()))
    assert found >= saved | {place_of(row) for row in world.expected(20)}
    assert same(world.rows(), [row for row in world.expected() if place_of(row) in found])
    assert any(each["event"] == "expired" for each in world.told)


def _dies_at_data(number: int) -> Callable[..., bool]:
    left = [number]

    def put_new(original: Callable[..., bool], path: str, content: Any) -> bool:
        left[0] -= "/data/" in path
        if not left[0]:
            raise Killed
        return original(path, content)

    return put_new


def test_a_topic_created_again_gets_a_table_of_its_own(world: World) -> None:
    world.append(0, 3)
    world.archive()
    delete_topic(world.broker, world.topic)
    world.broker.directory.forget(world.topic)
    created = create_topic(world.broker, world.topic, 2, {})
    world.append(0, 4)

    result = world.archive()

    assert (result.table, result.records) == (f"web_orders_{created.topic_id[:8]}", 4)
    assert len(world.files()) == 3


def test_a_topic_whose_table_is_of_the_other_kind_is_refused(world: World) -> None:
    world.append(0, 3)
    world.archive()
    world.kind = TableKind.ICEBERG if world.kind is TableKind.PARQUET else TableKind.PARQUET

    with pytest.raises(PenstockError, match=r"is archived as .*: give the same --catalog") as raised:
        world.archive()
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_an_index_that_was_set_back_is_refused(world: World) -> None:
    world.append(0, 3)
    topic = world.broker.topics.list()[0]
    ahead = Committed(number=1, next_offsets={0: 9, 1: 0})

    with pytest.raises(PenstockError, match="ends at 3, and is archived up to 9") as raised:
        make_plan(
            world.broker, topic, ahead, high_watermarks(world.broker, topic), group_bytes=1_000, commit_bytes=1_000
        )
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_plan_is_read_back_as_it_was_put(world: World) -> None:
    world.fill()
    world.broker.log.raise_log_start(key_of(world.broker, world.topic), Offset(7))
    topic = world.broker.topics.list()[0]
    committed = Committed(number=4, next_offsets={0: 2, 1: 0})
    ends = high_watermarks(world.broker, topic)

    plan = make_plan(world.broker, topic, committed, ends, group_bytes=700, commit_bytes=9_000)

    assert plan is not None
    assert plan.expired
    assert len(plan.groups) > 2
    assert decode_plan(encode_plan(plan)) == plan


def test_a_partition_that_was_added_is_archived_from_its_beginning(world: World) -> None:
    world.append(0, 3)
    world.append(1, 4)
    world.broker.log.raise_log_start(key_of(world.broker, world.topic, 1), Offset(1))
    topic = world.broker.topics.list()[0]
    committed = Committed(number=1, next_offsets={0: 3})

    plan = make_plan(world.broker, topic, committed, {0: 3, 1: 4}, group_bytes=9, commit_bytes=9)

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
        world = World(folder=Path(folder), kind=TableKind.PARQUET)
        may_be_gone: set[tuple[int, int]] = set()
        for step, number, count, day in steps:
            if step == "append":
                world.append(number, count, day)
            elif step == "expire":
                head = head_of(world.broker, world.topic, number)
                log_start = min(head.log_start_offset + count, head.high_watermark)
                world.broker.log.raise_log_start(key_of(world.broker, world.topic, number), Offset(log_start))
                archived = set(map(place_of, world.files()))
                may_be_gone |= {(number, each) for each in range(log_start)} - archived
            elif step == "archive":
                world.archive()
            else:
                mortal = Mortal(before_next=bool(number))
                with suppress(Killed):
                    world.archive(lake=Intercepted(world.lake, put_new=mortal.write))
        world.archive()
        found = world.files()

    places = set(map(place_of, found))
    assert same(found, [row for row in world.expected() if place_of(row) in places])
    assert len(places) == len(found)
    assert set(map(place_of, world.model)) - places <= may_be_gone


@pytest.mark.parametrize("spec", ["glue:", "hive"])
def test_a_catalog_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(PenstockError, match="give glue:<database>, a database's URL"):
        open_catalog(spec, SOME_STORAGE)


def test_a_topic_is_archived_into_glue_s_catalog(tmp_path: Path) -> None:
    world = World(folder=tmp_path, kind=TableKind.ICEBERG)
    glue = replace(SOME_STORAGE, region="us-east-1", access_key="test", secret_key="test")
    others: list[TopicArchived] = []
    with mock_aws():
        catalog, namespace = open_catalog("glue:stage", glue)
        world.open_catalog = lambda: open_catalog("glue:stage", glue)
        world.append(0, 3)
        world.archive()
        world.append(1, 4)

        def commit_after_another(original: Callable[..., Any], *arguments: Any) -> Any:
            if not others:
                others.append(world.archive())
            return original(*arguments)

        world.archive(catalog=world.catalog(commit_table=commit_after_another))

        found = catalog.load_table((namespace, "web_orders")).scan().to_arrow()
        assert namespace == "stage"
    assert others[0].records == 4
    assert same(sorted(map(row_of, found.to_pylist()), key=place_of), world.expected())
