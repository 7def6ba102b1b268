"""The progress of a stream, without Spark: offsets to JSON and back, shares of a limit, and changing partitions."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.log.index import Jump
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_spark.plan.options import Subscription
from penstock_spark.plan.snapshot import take_snapshot
from penstock_spark.plan.stream_offsets import (
    OPEN,
    Extent,
    Position,
    divide,
    extents_of,
    from_json,
    next_positions,
    ranges_between,
    to_json,
    within,
)
from tests.support.service import key_of, new_topic, patient_instance, send

ID = TopicId("ab" * 10)


def position(partition: int, offset: int, topic: str = "orders") -> Position:
    return Position(topic=topic, key=PartitionKey(ID, Partition(partition)), offset=offset)


def extent(partition: int, start: int, end: int) -> Extent:
    key = PartitionKey(ID, Partition(partition))
    return Extent(topic="orders", key=key, start_offset=start, end_offset=end)


def test_offsets_are_json_as_the_kafka_source_has_it_with_the_topics_ids() -> None:
    positions = [position(10, 4), position(2, 17), position(0, 1, "bills")]

    text = json.dumps(to_json(positions))

    assert text == json.dumps({"bills": {"0": 1}, "orders": {"2": 17, "10": 4}, "#ids": {"bills": ID, "orders": ID}})
    assert sorted(from_json(json.loads(text)), key=lambda each: each.offset) == sorted(
        positions, key=lambda each: each.offset
    )


@pytest.mark.parametrize(
    "document", [{}, {"orders": {"0": 1}}, {"orders": {"x": 1}, "#ids": {"orders": ID}}, {"#ids": 3, "a": 4}]
)
def test_offsets_of_another_source_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="is no offset of a penstock stream"):
        from_json(document)


@given(waiting=st.lists(st.integers(0, 1_000), max_size=8), limit=st.integers(1, 2_000))
def test_shares_are_the_limit_or_all_there_is_and_none_is_above_what_waits(waiting: list[int], limit: int) -> None:
    shares = divide(waiting, limit)

    assert sum(shares) == min(limit, sum(waiting))
    assert all(0 <= share <= each for share, each in zip(shares, waiting, strict=True))


def test_a_limit_is_divided_in_proportion() -> None:
    assert divide([900, 100, 0], 100) == [90, 10, 0]
    assert divide([1, 1, 1], 1) == [1, 0, 0]


def test_a_micro_batch_ends_where_its_start_and_limit_say() -> None:
    extents = [extent(0, 0, 50), extent(1, 20, 30)]

    found = next_positions([position(0, 10)], extents, offsets_max=None, fails_on_data_loss=True)
    limited = next_positions([position(0, 10)], extents, offsets_max=10, fails_on_data_loss=True)

    assert [each.offset for each in found] == [50, 30]
    assert [each.offset for each in limited] == [18, 22], "partition 1 is new, and begins at its log start"


def test_partitions_of_a_later_generation_come_once_the_earlier_ones_are_in_the_micro_batch() -> None:
    extents = [replace(extent(0, 0, 10), turn=1), replace(extent(1, 0, 30), turn=1), replace(extent(2, 0, 5), turn=4)]
    extents += [extent(3, 0, 100), replace(extent(4, 0, 7), key=PartitionKey(TopicId("cd" * 10), Partition(0)))]
    start: list[Position] = []
    found: list[list[int]] = []
    for limit in (20, 30, 50, 1_000):
        start = next_positions(start, extents, offsets_max=limit, fails_on_data_loss=True)
        found.append([each.offset for each in start])
    assert found == [[4, 13, 0, 0, 3], [10, 30, 3, 0, 7], [10, 30, 5, 48, 7], [10, 30, 5, 100, 7]]


def test_extent_of_a_closed_partition_comes_before_those_that_take_records() -> None:
    instance = patient_instance()
    topic = new_topic(instance, partitions=1, ordering_on_change="wait")
    for partitions in (2, 1):
        alter_topic(instance, topic, partitions, {})
    found = extents_of(take_snapshot(instance, Subscription(topics=(topic,))))
    assert [each.turn for each in found] == [1, 2, 2, OPEN]


def test_a_target_bounds_what_is_read() -> None:
    bounded = within([extent(0, 0, 50), extent(1, 0, 9)], [extent(0, 0, 40)])

    assert bounded == [extent(0, 0, 40)]


def test_a_topic_created_again_is_not_taken_for_the_old_one() -> None:
    instance = patient_instance()
    new_topic(instance)
    send(instance, "orders", "old")
    start = [
        Position(topic="orders", key=each.key, offset=each.head.high_watermark)
        for each in take_snapshot(instance, Subscription(topics=("orders",)))
    ]
    instance.stores.log.delete_head(key_of(instance, "orders"))
    delete_topic(instance, "orders")
    new_topic(instance)
    send(instance, "orders", "new", "newer")
    extents = extents_of(take_snapshot(instance, Subscription(topics=("orders",))))

    with pytest.raises(PenstockError, match="it is deleted") as raised:
        next_positions(start, extents, offsets_max=None, fails_on_data_loss=True)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    [end] = next_positions(start, extents, offsets_max=None, fails_on_data_loss=False)
    heads = instance.stores.log.heads([end.key, *(each.key for each in start)])
    with pytest.raises(PenstockError, match="it is deleted"):
        ranges_between(heads, start, [end], fails_on_data_loss=True)
    [offset_range] = ranges_between(heads, start, [end], fails_on_data_loss=False)
    assert (offset_range.start_offset, offset_range.end_offset) == (0, 2)


def test_a_partition_that_came_after_a_micro_batch_was_planned_is_no_loss_when_that_runs_again() -> None:
    instance = patient_instance()
    new_topic(instance, partitions=2)
    send(instance, "orders", "a")
    start = [
        Position(topic="orders", key=each.key, offset=0)
        for each in take_snapshot(instance, Subscription(topics=("orders",)))
    ]

    heads = instance.stores.log.heads([each.key for each in start])
    [offset_range] = ranges_between(heads, start, [replace(start[0], offset=1)], fails_on_data_loss=True)

    assert (offset_range.key, offset_range.start_offset, offset_range.end_offset) == (start[0].key, 0, 1)


def test_micro_batches_step_over_a_jump_and_do_not_count_it() -> None:
    jump = Jump(start=Offset(10), end=Offset(1_000))
    extents = [replace(extent(0, 0, 1_008), jumps=(jump,))]
    ends: list[int] = []
    start = [position(0, 4)]
    for _ in range(4):
        start = next_positions(start, extents, offsets_max=6, fails_on_data_loss=True)
        ends.append(start[0].offset)
    assert ends == [10, 1_006, 1_008, 1_008]
    extents = [replace(extent(0, 0, 1_000), jumps=(jump,))]
    [end] = next_positions([position(0, 10)], extents, offsets_max=6, fails_on_data_loss=True)
    assert end.offset == 1_000, "a query that waits for new records does not stay before the jump"
