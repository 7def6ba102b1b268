"""Offsets by time agree with a plain list, for any timestamps, pages and truncation.

A search by time under hostile batches: it passes over what nobody can decode, and decodes only so many bytes.
"""

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, segment_time_ms
from penstock_core.limits import MIB, OFFSET_SEARCH_ATTEMPTS_MAX, TAIL_ROLL_REFS
from penstock_core.log.retention import TIMESTAMP_AHEAD_MS_MAX, written_ms
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics import list_offsets as searching
from penstock_service.topics.alter_topic import delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.list_offsets import ListedOffset, OffsetSpec, list_offsets
from tests.support.poison import bomb, undecodable_batch
from tests.support.service import (
    Intercepted,
    another_instance,
    batch,
    counted_instance,
    entry,
    head_of,
    key_of,
    new_topic,
    patient_instance,
    refs_of,
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


FOR_EVER = 2**63 - 1


def put(instance: Instance, topic: str, *batches: bytes, partition: int = 0) -> None:
    [result] = produce(instance, [entry(topic, partition, *batches)], Acks.ONE)
    assert not isinstance(result, PenstockError)


def record(instance: Instance, ahead_ms: int) -> bytes:
    return encode([NewRecord(instance.clock.now_ms() + ahead_ms, None, b"v")])


def first_at(instance: Instance, topic: str, timestamp_ms: int) -> ListedOffset:
    [found] = list_offsets(instance, topic, timestamp_ms, 0).all_ok()
    return found


def test_search_passes_over_undecodable_batches_that_claim_every_time(instance: Instance) -> None:
    topic = new_topic(instance)
    put(instance, topic, undecodable_batch(5, max_timestamp_ms=FOR_EVER), record(instance, 0))
    put(instance, topic, *[undecodable_batch(1, max_timestamp_ms=FOR_EVER)] * 50)

    assert first_at(instance, topic, 1).offset == 5
    assert first_at(instance, topic, instance.clock.now_ms() + 60_000).offset is None


def test_groups_are_reset_to_a_time_behind_an_undecodable_batch(instance: Instance) -> None:
    topic = new_topic(instance)
    put(instance, topic, undecodable_batch(5, max_timestamp_ms=FOR_EVER), record(instance, 0))

    [(_, done)] = reset_offsets(instance, "g", topic, ResetTo(timestamp_ms=1))

    assert not isinstance(done, PenstockError)
    assert done.new_offset == 5


def test_search_decodes_no_more_than_its_bytes_and_answers_an_offset_that_is_not_too_high(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def counted(batch: Any, note_bytes: Any) -> Any:
        def note(size: int) -> None:
            decoded.append(size)
            note_bytes(size)

        return decode(batch, note)

    monkeypatch.setattr("penstock_core.records.record_check.decode", counted)
    monkeypatch.setattr(searching, "OFFSET_SEARCH_BYTES_MAX", 10 * MIB)
    topic = new_topic(instance, partitions=3)
    for partition in range(3):
        put(
            instance, topic, *[bomb(4 * MIB, first_timestamp_ms=0, max_timestamp_ms=FOR_EVER)] * 40, partition=partition
        )
        put(instance, topic, encode([NewRecord(2**42, None, b"late")]), partition=partition)

    found = list_offsets(instance, topic, instance.clock.now_ms() + 1_000_000_000, None).all_ok()
    assert (decoded, {each.offset for each in found}) == ([], {None})  # nothing is believed so far ahead

    [first, *others] = list_offsets(instance, topic, instance.clock.now_ms() + 1, None).all_ok()
    assert sum(decoded) <= 10 * MIB + 5 * MIB  # of all partitions together, and the last batch
    assert {each.timestamp_ms for each in (first, *others)} == {None}
    assert all(each.offset is not None and each.offset <= 40 for each in (first, *others))


def test_bytes_of_a_batch_that_does_not_decompress_are_counted(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "OFFSET_SEARCH_BYTES_MAX", 100 * MIB)
    topic = new_topic(instance)
    too_large = bomb(65 * MIB, first_timestamp_ms=0, max_timestamp_ms=FOR_EVER)
    put(instance, topic, *[too_large] * 10)

    found = first_at(instance, topic, instance.clock.now_ms() + 1)

    assert (found.offset, found.timestamp_ms) == (2, None)  # two of them may have taken 64 MiB each


def test_search_reads_no_more_than_its_pages_and_answers_an_offset_that_is_not_too_high(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(instance)
    put(instance, topic, record(instance, TIMESTAMP_AHEAD_MS_MAX - 60_000))  # removed below, and pages still count it
    for _ in range(6 * TAIL_ROLL_REFS):
        put(instance, topic, record(instance, 0))
    truncate(instance, topic, {0: 1})
    wanted_ms = instance.clock.now_ms() + TIMESTAMP_AHEAD_MS_MAX - 300_000
    assert first_at(instance, topic, wanted_ms).offset is None
    monkeypatch.setattr(searching, "OFFSET_SEARCH_PAGES_MAX", 3)
    monkeypatch.setattr(searching, "INDEX_FETCH_PAGES", 1)
    counts: Counter[str] = Counter()
    found = first_at(counted_instance(instance, counts), topic, wanted_ms)
    assert (found.offset, found.timestamp_ms) == (3 * TAIL_ROLL_REFS, None)
    assert counts["log.pages"] <= 4 + 3, "those of the bisection too"


def test_the_index_believes_a_timestamp_an_hour_ahead_and_no_more(instance: Instance) -> None:
    topic = new_topic(instance)
    put(instance, topic, record(instance, TIMESTAMP_AHEAD_MS_MAX - 60_000))
    put(instance, topic, encode([NewRecord(FOR_EVER, None, b"v")]))
    put(instance, topic, encode([NewRecord(-1 + 1, None, b"v")]))

    planned, false, old = [each.ref for each in refs_of(instance, key_of(instance, topic))]

    stored_ms = segment_time_ms(false.segment_id)
    assert planned.max_timestamp_ms > stored_ms
    assert false.max_timestamp_ms == stored_ms + TIMESTAMP_AHEAD_MS_MAX + 1
    assert written_ms(false) == stored_ms  # retention goes by when it was stored
    assert old.max_timestamp_ms == 0
    assert first_at(instance, topic, stored_ms + 1).offset == 0
    assert first_at(instance, topic, stored_ms + TIMESTAMP_AHEAD_MS_MAX).offset == 1


def test_compaction_keeps_the_bound_of_a_claimed_timestamp(instance: Instance) -> None:
    topic = new_topic(instance)
    for _ in range(2 * TAIL_ROLL_REFS):
        put(instance, topic, encode([NewRecord(FOR_EVER, None, b"v")]))

    done = compact(instance, topic, 0, CompactionSettings(age_ms_min=0))

    assert done.runs > 0
    reached_ms = instance.clock.now_ms() + TIMESTAMP_AHEAD_MS_MAX + 1
    assert all(each.ref.max_timestamp_ms <= reached_ms for each in refs_of(instance, key_of(instance, topic)))
    assert head_of(instance, topic).rolled_max_timestamp_ms <= reached_ms
