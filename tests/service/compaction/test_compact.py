"""Merging small refs into large ones of the archive tier: what stays, what changes, and who may come between."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import RETENTION_BYTES_MAX, TAIL_ROLL_REFS
from penstock_core.log.ref import Tier
from penstock_core.log.segment import check_segment
from penstock_core.log.topic import TOPIC_BOUNDS
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.list_offsets import list_offsets
from tests.service.compaction.test_archive import archive_of
from tests.service.compaction.written_topic import APPENDS, FOR_EVER, HOUR_MS, SMALL, pages_of, run, written
from tests.service.records.test_idempotence import numbered, tell
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    counted_instance,
    entry,
    key_of,
    new_topic,
    read_all,
    send,
    values_of,
    without_recent_reads,
    zone_of,
)


def test_pages_become_few_refs_of_the_archive_and_every_record_stays_where_it_was(
    instance: Instance, topic: str
) -> None:
    before, records = pages_of(instance, topic), read_all(instance, topic)
    done = run(instance, topic)
    [page] = pages_of(instance, topic)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 80, len(page.refs))
    assert done.bytes_before == done.bytes_after == sum(ref.length for ref in page.refs)
    assert {ref.tier for ref in page.refs} == {Tier.ARCHIVE}
    assert all(ref.length <= 2_000 for ref in page.refs)
    assert sum(ref.record_count for ref in page.refs) == 160
    assert (page.base_offset, page.end_offset) == (0, before[-1].end_offset)
    assert (page.rolled_bytes, page.max_timestamp_ms) == (before[-1].rolled_bytes, before[-1].max_timestamp_ms)
    for offset in (0, 1, 77, 159, 160, 165):
        assert read_all(instance, topic, offset=offset) == records[offset:]
    assert read_all(instance, topic, max_bytes=1) == records


def test_new_segment_explains_itself(instance: Instance, topic: str) -> None:
    run(instance, topic)
    [(_, body)] = archive_of(instance).segments.items()
    [part] = check_segment(body)
    assert (part.topic_id, part.partition, part.position, part.offset_span) == (*key_of(instance, topic), 0, 160)


def test_fetch_costs_fewer_gets_after_a_merge(instance: Instance, topic: str) -> None:
    def gets() -> int:
        counts: Counter[str] = Counter()
        ask(counted_instance(instance, counts), topic, 0)
        return counts["zone.get"] + counts["archive.get"]

    before = gets()
    run(instance, topic)
    assert (before, gets()) == (APPENDS, 1 + 3)  # neighbours in a segment share a get


def test_tail_and_young_pages_are_left(instance: Instance, topic: str) -> None:
    head = instance.stores.log.heads([key_of(instance, topic)])
    assert run(instance, topic, age_ms_min=3 * HOUR_MS).runs == 0
    assert run(instance, topic).runs == 1
    assert instance.stores.log.heads([key_of(instance, topic)]) == head


def test_pages_are_left_when_merging_is_not_worth_it(instance: Instance, topic: str) -> None:
    assert run(instance, topic, refs_min=81).runs == 0
    assert run(instance, topic, ref_bytes=100).runs == 0  # each ref is large
    done = run(instance, topic)
    assert done.runs == 1
    assert run(instance, topic).runs == 0  # there is nothing to gain any more
    assert run(instance, topic, ref_bytes=20_000, refs_min=2).runs == 1  # but with larger refs there is


def test_merged_refs_are_merged_again_with_what_came_since(instance: Instance, topic: str, clock: SteppedClock) -> None:
    run(instance, topic, ref_bytes=10**6)
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, topic, f"later {number}")
    clock.time_ms += 2 * HOUR_MS
    records = read_all(instance, topic)
    done = run(instance, topic, ref_bytes=10**6)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 1 + 32, 1)
    assert read_all(instance, topic) == records
    clock.time_ms += 25 * HOUR_MS
    sweep(instance, budget_ms=FOR_EVER)
    assert len(archive_of(instance).segments) == 1
    assert read_all(instance, topic) == records


def test_refs_do_not_span_more_time_than_retention_may_wait(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    for number in range(2 * TAIL_ROLL_REFS):
        clock.time_ms += HOUR_MS
        produce(instance, [entry(topic, 0, batch(str(number), timestamp_ms=clock.now_ms()))], Acks.QUORUM)
    clock.time_ms += 2 * HOUR_MS
    run(instance, topic, ref_bytes=10**6, ref_ms_max=8 * HOUR_MS)
    [page] = pages_of(instance, topic)
    assert [ref.offset_span for ref in page.refs] == [9, 9, 9, 5]


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 2**50])
def test_rewritten_records_expire_by_when_they_were_appended(
    instance: Instance, clock: SteppedClock, timestamp_ms: int
) -> None:
    topic = new_topic(instance, retention_ms=10 * HOUR_MS)
    appended_ms = clock.now_ms()
    for _ in range(TAIL_ROLL_REFS):
        produce(instance, [entry(topic, 0, batch("old", timestamp_ms=timestamp_ms))], Acks.QUORUM)
    clock.time_ms += 9 * HOUR_MS
    assert run(instance, topic).runs == 1
    [page] = pages_of(instance, topic)
    assert {(ref.tier, ref.appended_ms) for ref in page.refs} == {(Tier.ARCHIVE, appended_ms)}
    assert retain(instance, budget_ms=FOR_EVER).refs_expired == 0
    clock.time_ms += 2 * HOUR_MS
    assert retain(instance, budget_ms=FOR_EVER).refs_expired == len(page.refs)


def test_offsets_of_times_are_found_as_before(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    for number in range(5 * TAIL_ROLL_REFS):
        produce(instance, [entry(topic, 0, batch(str(number), timestamp_ms=1_000 * (number ^ 5)))], Acks.QUORUM)
    clock.time_ms += 2 * HOUR_MS
    times = range(0, 90_000, 700)
    before = [list_offsets(instance, topic, time, 0).all_ok() for time in times]
    assert run(instance, topic).runs == 1
    assert [list_offsets(instance, topic, time, 0).all_ok() for time in times] == before


def test_retention_by_size_counts_merged_bytes(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOPIC_BOUNDS, "retention_bytes", (1, RETENTION_BYTES_MAX))  # for short logs
    kept = written(instance, clock, "kept")
    total = sum(ref.length for page in pages_of(instance, kept) for ref in page.refs)
    run(instance, kept, ref_bytes=500)
    found = instance.topic_cache.read_through(kept)
    instance.stores.topics.replace(found, replace(found, config=replace(found.config, retention_bytes=total // 2)))
    instance.topic_cache.forget(kept)
    retain(instance, budget_ms=FOR_EVER)
    head = instance.stores.log.heads([key_of(instance, kept)])[key_of(instance, kept)]
    left = [
        each
        for page in pages_of(instance, kept)
        for each in page.located()
        if each.base_offset >= head.log_start_offset
    ]
    behind = sum(each.ref.length for each in left) + sum(ref.length for ref in head.tail)
    assert total // 2 <= behind < total // 2 + 500


def test_reader_that_holds_an_old_ref_still_gets_its_bytes(instance: Instance, topic: str, clock: SteppedClock) -> None:
    """It has read the index, then the pages are exchanged and the sweep runs, then it reads the segments."""
    records = read_all(instance, topic)
    clock.time_ms += 48 * HOUR_MS

    def compact_and_sweep() -> None:
        assert run(instance, topic).runs == 1
        assert sweep(instance, budget_ms=FOR_EVER).deleted == 0

    acted: list[int] = []

    def get(original: Any, *arguments: Any) -> Any:
        if not acted:
            acted.append(1)
            compact_and_sweep()
        return original(*arguments)

    reader = another_instance(instance, zones=[Intercepted(zone, get=get) for zone in instance.stores.zones])
    assert read_all(reader, topic) == records
    clock.time_ms += 23 * HOUR_MS
    assert sweep(instance, budget_ms=FOR_EVER).deleted == 0
    clock.time_ms += 2 * HOUR_MS
    assert sweep(instance, budget_ms=FOR_EVER).deleted == 3 * 80
    assert read_all(instance, topic) == records


def test_failing_archive_costs_the_run_only(instance: Instance, topic: str) -> None:
    archive_of(instance).is_down = True
    done = run(instance, topic)
    assert (done.runs, done.failures) == (0, 1)
    assert "archive" in done.errors[0]
    assert len(read_all(instance, topic)) == 2 * APPENDS


def test_rotten_source_is_read_from_another_zone_and_never_copied(instance: Instance, topic: str) -> None:
    for segment_id, body in zone_of(instance, 0).segments.items():
        zone_of(instance, 0).segments[segment_id] = body[:-30] + bytes(30)
    records = read_all(instance, topic)
    assert run(instance, topic).runs == 1
    assert read_all(instance, topic) == records
    for zone in range(3):
        zone_of(instance, zone).segments.clear()
    assert values_of(ask(without_recent_reads(instance), topic, 0)) == records[:160]


def test_unreadable_source_is_told_and_left(instance: Instance, topic: str) -> None:
    for zone in range(3):
        zone_of(instance, zone).is_down = True
    done = run(instance, topic)
    assert (done.runs, done.failures) == (0, 1)
    for zone in range(3):
        zone_of(instance, zone).is_down = False
    assert len(read_all(instance, topic)) == 2 * APPENDS


def test_dry_run_counts_and_changes_nothing(instance: Instance, topic: str) -> None:
    before = pages_of(instance, topic)
    done = compact(instance, topic, 0, SMALL, is_dry_run=True)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 80, 0)
    assert pages_of(instance, topic) == before
    assert not archive_of(instance).segments


def test_time_that_is_up_ends_between_two_runs(instance: Instance, topic: str, clock: SteppedClock) -> None:
    def slow(original: Any, *arguments: Any) -> Any:
        clock.time_ms += 1_000
        return original(*arguments)

    other = another_instance(instance, archive=Intercepted(instance.stores.archive, upload=slow))
    done = compact(other, topic, 0, replace(SMALL, segment_bytes=2_500), budget_ms=1_500)
    assert (done.runs, done.is_finished) == (2, False)
    rest = compact(instance, topic, 0, replace(SMALL, segment_bytes=2_500))
    assert rest.is_finished
    assert rest.runs > 0


def test_unknown_partition_is_refused(instance: Instance, topic: str) -> None:
    with pytest.raises(PenstockError) as raised:
        compact(instance, topic, 1)
    assert raised.value.code is ErrorCode.UNKNOWN_PARTITION


def test_lease_that_cannot_be_given_back_costs_time_only(instance: Instance, topic: str) -> None:
    def refuse(*_: Any) -> Any:
        raise UNAVAILABLE

    other = another_instance(instance, compaction=Intercepted(instance.stores.compaction, save=refuse))
    assert run(other, topic).runs == 1
    assert run(instance, topic).is_held


def test_late_repeat_is_answered_as_the_first_time_when_its_ref_was_merged(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    batches = [numbered(2 * number, f"{number}a", f"{number}b") for number in range(2 * TAIL_ROLL_REFS)]
    firsts = []
    for number, data in enumerate(batches):
        firsts.append(tell(instance, topic, data))
        send(instance, topic, f"between {number}")
    clock.time_ms += 2 * HOUR_MS
    assert run(instance, topic).runs == 1
    assert run(instance, topic, ref_bytes=10**6, refs_min=2).runs == 1  # merged refs again
    records = read_all(instance, topic)
    assert [tell(instance, topic, data) for data in batches] == firsts
    assert read_all(instance, topic) == records


def test_repeat_that_is_merged_while_it_is_looked_for_is_found(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    firsts = [tell(instance, topic, numbered(number, str(number))) for number in range(2 * TAIL_ROLL_REFS)]
    clock.time_ms += 2 * HOUR_MS

    def merge_first(original: Any, *arguments: Any) -> Any:
        run(instance, topic)
        return original(*arguments)

    other = another_instance(instance, log=Intercepted(instance.stores.log, pages_before=merge_first))
    assert tell(other, topic, numbered(3, "3")) == firsts[3]


def test_fetch_answers_within_its_high_watermark_when_a_merge_joins_later_records(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, topic, f"earlier {number}")

    def later_records_are_merged(original: Any, *arguments: Any) -> Any:
        for number in range(2 * TAIL_ROLL_REFS):
            send(instance, topic, f"later {number}")
        clock.time_ms += 2 * HOUR_MS
        assert run(instance, topic, ref_bytes=10**6).runs == 1
        return original(*arguments)

    other = another_instance(instance, log=Intercepted(instance.stores.log, pages=later_records_are_merged))
    fetched = ask(other, topic, 0)
    assert 2 * TAIL_ROLL_REFS < fetched.next_offset <= fetched.high_watermark
