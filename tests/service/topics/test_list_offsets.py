"""Offsets by time agree with a plain list, for any timestamps, pages and truncation."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.limits import OFFSET_SEARCH_ATTEMPTS_MAX
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.list_offsets import ListedOffset, OffsetSpec, list_offsets
from tests.support.service import (
    Intercepted,
    another_instance,
    batch,
    entry,
    key_of,
    new_topic,
    patient_instance,
    send,
)

TIMES = st.integers(0, 30)
APPENDS = st.lists(
    st.lists(st.lists(TIMES, min_size=1, max_size=3), min_size=1, max_size=2),  # batches of timestamps
    max_size=70,
)


def _listed(instance: Instance, topic: str, spec: OffsetSpec | int, partition: int | None = 0) -> list[ListedOffset]:
    return list_offsets(instance, topic, spec, partition).all_ok()


@pytest.mark.slow
@settings(max_examples=200)
@given(appends=APPENDS, asked=st.lists(st.integers(0, 32), min_size=1, max_size=6), cut=st.integers(0, 100))
def test_list_offsets_finds_the_first_record_at_or_after_a_time(
    appends: list[list[list[int]]], asked: list[int], cut: int
) -> None:
    instance = patient_instance()
    topic = new_topic(instance)
    times: list[int] = []
    for batches in appends:
        data = [
            encode([NewRecord(time, None, b"v" * 40) for time in stamps], Compression(len(times) % 5))
            for stamps in batches
        ]
        produce(instance, [entry(topic, 0, *data)], Acks.ONE)
        times += [time for stamps in batches for time in stamps]
    start = len(times) * cut // 100
    truncate(instance, topic, {0: start})
    for time in asked:
        expected = next((offset for offset in range(start, len(times)) if times[offset] >= time), None)
        [found] = _listed(instance, topic, time)
        assert found.offset == expected
        assert found.timestamp_ms == (None if expected is None else times[expected])
    [earliest], [latest] = (_listed(instance, topic, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    assert (earliest.offset, latest.offset) == (start, len(times))


def test_list_offsets_answers_every_partition_in_order_when_none_is_named(instance: Instance) -> None:
    topic = new_topic(instance, partitions=3)
    topic_id = key_of(instance, topic).topic_id
    send(instance, topic, "a", "b", partition=1)
    assert _listed(instance, topic, OffsetSpec.LATEST, None) == [
        ListedOffset(topic_id=topic_id, partition=Partition(number), offset=Offset(end))
        for number, end in enumerate([0, 2, 0])
    ]
    assert [item.offset for item in _listed(instance, topic, 5, None)] == [None, 0, None]


def test_list_offsets_halves_its_way_through_pages_when_times_rise(instance: Instance) -> None:
    topic = new_topic(instance)
    for number in range(16 * 64):
        produce(instance, [entry(topic, 0, batch("v", timestamp_ms=number))], Acks.ONE)
    queries: list[int] = []

    def pages(original: Any, *arguments: Any) -> Any:
        queries.append(arguments[1])
        return original(*arguments)

    watched = another_instance(instance, log=Intercepted(instance.stores.log, pages=pages))
    [found] = _listed(watched, topic, 700)
    assert found.offset == 700
    assert len(queries) <= 8, "64 pages take 6 halvings or 7, and one query to read on"


@pytest.mark.parametrize("rolled", [0, 40])
def test_delayed_records_are_found_by_the_time_of_their_delivery(instance: Instance, rolled: int) -> None:
    topic = new_topic(instance)
    key = key_of(instance, topic)
    send(instance, topic, "early")
    [plain] = instance.stores.log.heads([key])[key].tail
    delayed = replace(plain, appended_ms=plain.max_timestamp_ms + 5_000, is_delayed=True)
    instance.stores.log.append(key, delayed, 0)
    for _ in range(rolled):
        send(instance, topic, "early")
    [found] = _listed(instance, topic, plain.max_timestamp_ms + 1)
    assert (found.offset, found.timestamp_ms) == (1, delayed.appended_ms)
    [nothing] = _listed(instance, topic, plain.max_timestamp_ms + 5_001)
    assert nothing.offset is None


@pytest.mark.parametrize("spec", [OffsetSpec.EARLIEST, OffsetSpec.LATEST, 0])
@pytest.mark.parametrize("partition", [0, None])
def test_list_offsets_is_of_the_new_topic_when_the_remembered_one_was_deleted(
    instance: Instance, spec: OffsetSpec | int, partition: int | None
) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a", "b", "c")
    stale = another_instance(instance)
    _listed(stale, topic, spec, partition)
    delete_topic(instance, topic)
    with pytest.raises(PenstockError) as caught:
        _listed(stale, topic, spec, partition)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    create_topic(instance, topic, 1, {})
    _listed(stale, topic, spec, partition)
    delete_topic(instance, topic)
    create_topic(instance, topic, 1, {})
    send(instance, topic, "new")
    assert [item.offset for item in _listed(stale, topic, spec, partition)] == [1 if spec is OffsetSpec.LATEST else 0]


def test_list_offsets_is_unknown_when_the_topic_is_being_deleted(instance: Instance) -> None:
    topic = new_topic(instance)
    headless = another_instance(instance, log=Intercepted(instance.stores.log, heads=lambda *_: {}))
    with pytest.raises(PenstockError, match="is being deleted") as caught:
        _listed(headless, topic, OffsetSpec.LATEST)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_list_offsets_tells_a_missing_page_when_the_index_is_damaged(instance: Instance) -> None:
    topic = new_topic(instance)
    for _ in range(16):
        send(instance, topic, "v")
    damaged = another_instance(instance, log=Intercepted(instance.stores.log, pages=lambda *_: ()))
    with pytest.raises(PenstockError, match="no page for offset") as caught:
        _listed(damaged, topic, 5)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


def test_list_offsets_gives_up_when_the_log_start_overtakes_every_search(instance: Instance) -> None:
    topic = new_topic(instance)
    for _ in range(16):
        send(instance, topic, "v")
    starts = itertools.count()

    def heads(original: Any, keys: Any) -> Any:
        return {
            key: replace(head, log_start_offset=Offset(next(starts)), next_offset=Offset(1_000), tail_base=Offset(900))
            for key, head in original(keys).items()
        }

    overtaken = another_instance(instance, log=Intercepted(instance.stores.log, heads=heads, pages=lambda *_: ()))
    with pytest.raises(PenstockError) as caught:
        _listed(overtaken, topic, 5)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert next(starts) == 1 + OFFSET_SEARCH_ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("name", "partition", "code"), [("missing", 0, "UNKNOWN_TOPIC"), ("orders", 5, "UNKNOWN_PARTITION")]
)
def test_list_offsets_is_refused_when_what_it_names_is_unknown(
    instance: Instance, name: str, partition: int, code: str
) -> None:
    new_topic(instance)
    with pytest.raises(PenstockError) as caught:
        _listed(instance, name, OffsetSpec.LATEST, partition)
    assert caught.value.code.name == code
