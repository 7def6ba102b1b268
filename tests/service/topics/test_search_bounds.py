"""A search by time under hostile batches: it passes over what nobody can decode, and decodes only so many bytes."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import segment_time_ms
from penstock_core.limits import MIB, TAIL_ROLL_REFS
from penstock_core.log.retention import TIMESTAMP_AHEAD_MS_MAX, written_ms
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics import list_offsets as searching
from penstock_service.topics.alter_topic import truncate
from penstock_service.topics.list_offsets import ListedOffset, list_offsets
from tests.support.poison import bomb, undecodable_batch
from tests.support.service import counted_instance, entry, head_of, key_of, new_topic, refs_of

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
