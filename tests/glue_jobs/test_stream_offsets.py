"""How far a stream goes, without Spark: offsets to JSON and back, shares of a limit, partitions that come and go."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.delete_topic import delete_topic
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicId
from penstock_core.keys import PartitionKey
from penstock_spark.options import Subscription
from penstock_spark.snapshot import take_snapshot
from penstock_spark.stream_offsets import (
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
from tests.broker.setting import key_of, new_topic, patient_broker, send

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


def test_a_target_bounds_what_is_read() -> None:
    bounded = within([extent(0, 0, 50), extent(1, 0, 9)], [extent(0, 0, 40)])

    assert bounded == [extent(0, 0, 40)]


def test_a_topic_created_again_is_not_taken_for_the_old_one() -> None:
    broker = patient_broker()
    new_topic(broker)
    send(broker, "orders", "old")
    start = [
        Position(topic="orders", key=each.key, offset=each.head.high_watermark)
        for each in take_snapshot(broker, Subscription(topics=("orders",)))
    ]
    broker.log.delete_head(key_of(broker, "orders"))
    delete_topic(broker, "orders")
    new_topic(broker)
    send(broker, "orders", "new", "newer")
    extents = extents_of(take_snapshot(broker, Subscription(topics=("orders",))))

    with pytest.raises(PenstockError, match="it is deleted") as raised:
        next_positions(start, extents, offsets_max=None, fails_on_data_loss=True)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    [end] = next_positions(start, extents, offsets_max=None, fails_on_data_loss=False)
    heads = broker.log.heads([end.key, *(each.key for each in start)])
    with pytest.raises(PenstockError, match="it is deleted"):
        ranges_between(heads, start, [end], fails_on_data_loss=True)
    [wanted] = ranges_between(heads, start, [end], fails_on_data_loss=False)
    assert (wanted.start_offset, wanted.end_offset) == (0, 2)


def test_a_partition_that_came_after_a_micro_batch_was_planned_is_no_loss_when_that_runs_again() -> None:
    broker = patient_broker()
    new_topic(broker, partitions=2)
    send(broker, "orders", "a")
    start = [
        Position(topic="orders", key=each.key, offset=0)
        for each in take_snapshot(broker, Subscription(topics=("orders",)))
    ]

    heads = broker.log.heads([each.key for each in start])
    [wanted] = ranges_between(heads, start, [replace(start[0], offset=1)], fails_on_data_loss=True)

    assert (wanted.key, wanted.start_offset, wanted.end_offset) == (start[0].key, 0, 1)
