"""Segments of the archive tier: who reads them, who leaves them alone, and what removes them."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId, new_segment_id
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.segment import SegmentPart, build_segment
from penstock_core.records.record_batch import validate
from penstock_service.adapters.memory.service import MemoryArchiveStore
from penstock_service.instance.instance import Instance
from penstock_service.repair.scrub import scrub
from penstock_service.retention.sweep import sweep
from penstock_service.topics.list_offsets import list_offsets
from tests.support.service import SteppedClock, ask, batch, new_topic, read_all, send, zone_of

FOR_EVER, HOUR_MS = 10**9, 3_600_000


def archive_of(instance: Instance) -> MemoryArchiveStore:
    assert isinstance(instance.stores.archive, MemoryArchiveStore)
    return instance.stores.archive


def append_archived(instance: Instance, topic: str, *values: str) -> SegmentId:
    """Puts the values into the archive and appends a ref of that tier: what compaction leaves, without compaction."""
    found = instance.topic_cache.read_through(topic)
    key = PartitionKey(found.topic_id, found.all_partitions()[0])
    data = batch(*values)
    summary = validate(data)
    part = SegmentPart(
        topic_id=key.topic_id,
        partition=key.partition,
        data=(data,),
        offset_span=summary.offset_span,
        max_timestamp_ms=summary.max_timestamp_ms,
    )
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10))
    instance.stores.archive.upload(segment_id, [build_segment([part]).body])
    ref = Ref(
        segment_id=segment_id,
        position=0,
        length=len(data),
        offset_span=summary.offset_span,
        record_count=summary.record_count,
        max_timestamp_ms=summary.max_timestamp_ms,
        zones=0,
        tier=Tier.ARCHIVE,
    )
    instance.stores.log.append(key, ref, 0)
    return segment_id


@pytest.fixture
def topic(instance: Instance) -> str:
    """One record in the zones, two in the archive, one in the zones."""
    name = new_topic(instance)
    send(instance, name, "hot")
    append_archived(instance, name, "cold", "colder")
    send(instance, name, "hot again")
    return name


def test_fetch_reads_refs_of_both_tiers_in_order(instance: Instance, topic: str) -> None:
    assert read_all(instance, topic) == [(0, "hot"), (1, "cold"), (2, "colder"), (3, "hot again")]
    assert read_all(instance, topic, offset=2) == [(2, "colder"), (3, "hot again")]


def test_fetch_reads_the_archive_when_every_zone_is_down(instance: Instance, topic: str) -> None:
    for index in range(3):
        zone_of(instance, index).is_down = True
    assert ask(instance, topic, 1, max_bytes=10).next_offset == 3
    with pytest.raises(PenstockError) as raised:
        ask(instance, topic, 3)
    assert raised.value.code is ErrorCode.STORAGE_UNAVAILABLE


def test_fetch_tells_that_the_archive_does_not_answer(instance: Instance, topic: str) -> None:
    archive_of(instance).is_down = True
    assert ask(instance, topic, 0).next_offset == 1  # the end of what can be read
    with pytest.raises(PenstockError, match="the archive could not serve segment") as raised:
        ask(instance, topic, 1)
    assert raised.value.code is ErrorCode.STORAGE_UNAVAILABLE


def test_fetch_never_serves_archived_bytes_that_have_rotted(instance: Instance, topic: str) -> None:
    segments = archive_of(instance).segments
    [(segment_id, body)] = segments.items()
    segments[segment_id] = body[:70] + bytes([body[70] ^ 1]) + body[71:]
    with pytest.raises(PenstockError) as raised:
        ask(instance, topic, 1)
    assert raised.value.code is ErrorCode.CORRUPT_SEGMENT


def test_offset_of_a_time_is_found_in_the_archive(instance: Instance, topic: str) -> None:
    for index in range(3):
        zone_of(instance, index).is_down = True
    with pytest.raises(PenstockError):
        list_offsets(instance, topic, 1_000, 0).all_ok()
    instance.stores.log.raise_log_start(PartitionKey(instance.topic_cache.get(topic).topic_id, 0), 1)  # type: ignore[arg-type]
    [found] = list_offsets(instance, topic, 1_000, 0).all_ok()
    assert (found.offset, found.timestamp_ms) == (1, 1_000)


def test_scrub_reads_the_archive_and_tells_of_what_is_lost(instance: Instance, topic: str) -> None:
    assert scrub(instance, budget_ms=FOR_EVER, budget_bytes=FOR_EVER).failures == 0
    archive_of(instance).segments.clear()
    instance.telemetry.take()
    done = scrub(instance, budget_ms=FOR_EVER, budget_bytes=FOR_EVER)
    assert (done.refs, done.failures) == (3, 1)
    counts, _ = instance.telemetry.take()
    assert (counts["segment_lost"], counts["scrub_failed"]) == (1, 1)


def test_scrub_does_not_call_lost_what_an_archive_keeps_that_does_not_answer(instance: Instance, topic: str) -> None:
    archive_of(instance).is_down = True
    assert scrub(instance, budget_ms=FOR_EVER, budget_bytes=FOR_EVER).failures == 1
    counts, _ = instance.telemetry.take()
    assert (counts["segment_lost"], counts["scrub_failed"]) == (0, 1)


def test_sweep_removes_old_unnamed_objects_from_the_archive_and_spares_the_rest(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    old = SegmentId(new_segment_id(instance.clock.now_ms(), bytes(10)))
    instance.stores.archive.upload(old, [b"garbage"])
    named = set(archive_of(instance).segments) - {old}
    clock.time_ms += 25 * HOUR_MS
    young = SegmentId(new_segment_id(instance.clock.now_ms(), bytes(10)))
    instance.stores.archive.upload(young, [b"perhaps about to be named"])
    done = sweep(instance, budget_ms=FOR_EVER)
    assert (done.deleted, done.listed, done.failures) == (1, 2 * 3 + 3, 0)
    assert set(archive_of(instance).segments) == named | {young}


def test_sweep_counts_an_archive_that_refuses_and_goes_on(instance: Instance, topic: str) -> None:
    archive_of(instance).is_down = True
    assert sweep(replace(instance), budget_ms=FOR_EVER).failures == 1
