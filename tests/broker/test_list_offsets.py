"""Offsets by time against a plain list, whatever the timestamps, pages and truncation."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.list_offsets import ListedOffset, OffsetSpec, list_offsets, listed
from penstock_broker.produce import produce
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, encode
from tests.broker.setting import Intercepted, another_instance, batch, entry, new_topic, patient_broker, send

TIMES = st.integers(0, 30)
APPENDS = st.lists(
    st.lists(st.lists(TIMES, min_size=1, max_size=3), min_size=1, max_size=2),  # batches of timestamps
    max_size=70,
)


def _listed(broker: Broker, topic: str, spec: OffsetSpec | int, partition: int | None = 0) -> list[ListedOffset]:
    return listed(list_offsets(broker, topic, spec, partition))


@settings(max_examples=200)
@given(appends=APPENDS, asked=st.lists(st.integers(0, 32), min_size=1, max_size=6), cut=st.integers(0, 100))
def test_list_offsets_finds_the_first_record_at_or_after_a_time(
    appends: list[list[list[int]]], asked: list[int], cut: int
) -> None:
    broker = patient_broker()
    topic = new_topic(broker)
    times: list[int] = []
    for batches in appends:
        data = [
            encode([NewRecord(time, None, b"v" * 40) for time in stamps], Compression(len(times) % 5))
            for stamps in batches
        ]
        produce(broker, [entry(topic, 0, *data)], Acks.LEADER)
        times += [time for stamps in batches for time in stamps]
    start = len(times) * cut // 100
    truncate(broker, topic, {0: start})
    for time in asked:
        expected = next((offset for offset in range(start, len(times)) if times[offset] >= time), None)
        [found] = _listed(broker, topic, time)
        assert found.offset == expected
        assert found.timestamp_ms == (None if expected is None else times[expected])
    [earliest], [latest] = (_listed(broker, topic, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    assert (earliest.offset, latest.offset) == (start, len(times))


def test_list_offsets_answers_every_partition_in_order_when_none_is_named(broker: Broker) -> None:
    topic = new_topic(broker, partitions=3)
    send(broker, topic, "a", "b", partition=1)
    assert _listed(broker, topic, OffsetSpec.LATEST, None) == [
        ListedOffset(partition=Partition(number), offset=Offset(end)) for number, end in enumerate([0, 2, 0])
    ]
    assert [item.offset for item in _listed(broker, topic, 5, None)] == [None, 0, None]


def test_list_offsets_halves_its_way_through_pages_when_times_rise(broker: Broker) -> None:
    topic = new_topic(broker)
    for number in range(16 * 64):
        produce(broker, [entry(topic, 0, batch("v", timestamp_ms=number))], Acks.LEADER)
    queries: list[int] = []

    def pages(original: Any, *arguments: Any) -> Any:
        queries.append(arguments[1])
        return original(*arguments)

    watched = another_instance(broker, log=Intercepted(broker.log, pages=pages))
    [found] = _listed(watched, topic, 700)
    assert found.offset == 700
    assert len(queries) <= 8, "64 pages take 6 halvings or 7, and one query to read on"


@pytest.mark.parametrize("spec", [OffsetSpec.EARLIEST, OffsetSpec.LATEST, 0])
@pytest.mark.parametrize("partition", [0, None])
def test_list_offsets_is_of_the_new_topic_when_the_remembered_one_was_deleted(
    broker: Broker, spec: OffsetSpec | int, partition: int | None
) -> None:
    topic = new_topic(broker)
    send(broker, topic, "a", "b", "c")
    stale = another_instance(broker)
    _listed(stale, topic, spec, partition)
    delete_topic(broker, topic)
    with pytest.raises(PenstockError) as caught:
        _listed(stale, topic, spec, partition)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    create_topic(broker, topic, 1, {})
    _listed(stale, topic, spec, partition)
    delete_topic(broker, topic)
    create_topic(broker, topic, 1, {})
    send(broker, topic, "new")
    assert [item.offset for item in _listed(stale, topic, spec, partition)] == [1 if spec is OffsetSpec.LATEST else 0]


def test_list_offsets_is_unknown_when_the_topic_is_being_deleted(broker: Broker) -> None:
    topic = new_topic(broker)
    headless = another_instance(broker, log=Intercepted(broker.log, heads=lambda *_: {}))
    with pytest.raises(PenstockError, match="is being deleted") as caught:
        _listed(headless, topic, OffsetSpec.LATEST)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_list_offsets_tells_a_missing_page_when_the_index_is_damaged(broker: Broker) -> None:
    topic = new_topic(broker)
    for _ in range(16):
        send(broker, topic, "v")
    damaged = another_instance(broker, log=Intercepted(broker.log, pages=lambda *_: ()))
    with pytest.raises(PenstockError, match="no page for offset") as caught:
        _listed(damaged, topic, 5)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


@pytest.mark.parametrize(
    ("name", "partition", "code"), [("missing", 0, "UNKNOWN_TOPIC"), ("orders", 5, "UNKNOWN_PARTITION")]
)
def test_list_offsets_is_refused_when_what_it_names_is_unknown(
    broker: Broker, name: str, partition: int, code: str
) -> None:
    new_topic(broker)
    with pytest.raises(PenstockError) as caught:
        _listed(broker, name, OffsetSpec.LATEST, partition)
    assert caught.value.code.name == code
