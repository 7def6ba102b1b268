"""Merging small refs into large ones of the archive tier: what stays, what changes, and who may come between."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from penstock_broker.broker import Broker
from penstock_broker.compact import Compacted, compact
from penstock_broker.delete_topic import delete_topic
from penstock_broker.list_offsets import list_offsets, listed
from penstock_broker.produce import produce
from penstock_broker.retain import retain
from penstock_broker.sweep import sweep
from penstock_broker.truncate import truncate
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Page
from penstock_core.limits import COMPACTION_LEASE_MS, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.ref import Tier
from penstock_core.segment import check_segment
from tests.broker.interleaving import that_meets
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    counted_broker,
    entry,
    key_of,
    new_topic,
    patient_broker,
    read_all,
    send,
    values_of,
    zone_of,
)
from tests.broker.test_archive import archive_of
from tests.broker.test_idempotence import numbered, tell

FOR_EVER, HOUR_MS = 10**9, 3_600_000
APPENDS = 5 * TAIL_ROLL_REFS + 3
SMALL = CompactionSettings(refs_min=4, ref_bytes=2_000, segment_bytes=100_000)


def pages_of(broker: Broker, topic: str) -> list[Page]:
    return [*broker.log.pages(key_of(broker, topic), Offset(0), 10_000)]


def run(broker: Broker, topic: str, **changes: Any) -> Compacted:
    return compact(broker, topic, 0, replace(SMALL, **changes))


def written(broker: Broker, clock: SteppedClock, name: str = "orders", **config: int) -> str:
    """A topic with five pages and a tail, two records in each append, all of two hours ago."""
    topic = new_topic(broker, name, **config)
    for number in range(APPENDS):
        send(broker, topic, f"{number}a", f"{number}b")
    clock.time_ms += 2 * HOUR_MS
    return topic


@pytest.fixture
def topic(broker: Broker, clock: SteppedClock) -> str:
    return written(broker, clock)


def test_pages_become_few_refs_of_the_archive_and_every_record_stays_where_it_was(broker: Broker, topic: str) -> None:
    before, records = pages_of(broker, topic), read_all(broker, topic)
    done = run(broker, topic)
    [page] = pages_of(broker, topic)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 80, len(page.refs))
    assert done.bytes_before == done.bytes_after == sum(ref.length for ref in page.refs)
    assert {ref.tier for ref in page.refs} == {Tier.ARCHIVE}
    assert all(ref.length <= 2_000 for ref in page.refs)
    assert sum(ref.record_count for ref in page.refs) == 160
    assert (page.base_offset, page.end_offset) == (0, before[-1].end_offset)
    assert (page.rolled_bytes, page.max_timestamp_ms) == (before[-1].rolled_bytes, before[-1].max_timestamp_ms)
    for offset in (0, 1, 77, 159, 160, 165):
        assert read_all(broker, topic, offset=offset) == records[offset:]
    assert read_all(broker, topic, max_bytes=1) == records


def test_new_segment_explains_itself(broker: Broker, topic: str) -> None:
    run(broker, topic)
    [(_, body)] = archive_of(broker).segments.items()
    [part] = check_segment(body)
    assert (part.topic_id, part.partition, part.position, part.offset_span) == (*key_of(broker, topic), 0, 160)


def test_fetch_costs_fewer_gets_after_a_merge(broker: Broker, topic: str) -> None:
    def gets() -> int:
        counts: Counter[str] = Counter()
        ask(counted_broker(broker, counts), topic, 0)
        return counts["zone.get"] + counts["archive.get"]

    before = gets()
    run(broker, topic)
    assert (before, gets()) == (APPENDS, 1 + 3)  # neighbours in a segment share a get


def test_tail_and_young_pages_are_left(broker: Broker, topic: str) -> None:
    head = broker.log.heads([key_of(broker, topic)])
    assert run(broker, topic, age_ms_min=3 * HOUR_MS).runs == 0
    assert run(broker, topic).runs == 1
    assert broker.log.heads([key_of(broker, topic)]) == head


def test_what_is_not_worth_it_is_left(broker: Broker, topic: str) -> None:
    assert run(broker, topic, refs_min=81).runs == 0
    assert run(broker, topic, ref_bytes=100).runs == 0  # each ref is large
    done = run(broker, topic)
    assert done.runs == 1
    assert run(broker, topic).runs == 0  # there is nothing to gain any more
    assert run(broker, topic, ref_bytes=20_000, refs_min=2).runs == 1  # but with larger refs there is


def test_merged_refs_are_merged_again_with_what_came_since(broker: Broker, topic: str, clock: SteppedClock) -> None:
    run(broker, topic, ref_bytes=10**6)
    for number in range(2 * TAIL_ROLL_REFS):
        send(broker, topic, f"later {number}")
    clock.time_ms += 2 * HOUR_MS
    records = read_all(broker, topic)
    done = run(broker, topic, ref_bytes=10**6)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 1 + 32, 1)
    assert read_all(broker, topic) == records
    clock.time_ms += 25 * HOUR_MS
    sweep(broker, budget_ms=FOR_EVER)
    assert len(archive_of(broker).segments) == 1
    assert read_all(broker, topic) == records


def test_refs_do_not_span_more_time_than_retention_may_wait(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    for number in range(2 * TAIL_ROLL_REFS):
        clock.time_ms += HOUR_MS
        produce(broker, [entry(topic, 0, batch(str(number), timestamp_ms=clock.now_ms()))], Acks.QUORUM)
    clock.time_ms += 2 * HOUR_MS
    run(broker, topic, ref_bytes=10**6, ref_ms_max=8 * HOUR_MS)
    [page] = pages_of(broker, topic)
    assert [ref.offset_span for ref in page.refs] == [9, 9, 9, 5]


def test_records_without_a_time_expire_by_when_they_were_stored_first(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker, retention_ms=10 * HOUR_MS)
    stored_ms = clock.now_ms()
    timeless = bytearray(batch("timeless"))
    timeless[27:43] = (-1).to_bytes(8, "big", signed=True) * 2
    timeless[17:21] = crc32c(bytes(timeless[21:])).to_bytes(4, "big")
    for _ in range(TAIL_ROLL_REFS):
        produce(broker, [entry(topic, 0, bytes(timeless))], Acks.QUORUM)
    clock.time_ms += 9 * HOUR_MS
    assert run(broker, topic).runs == 1
    [page] = pages_of(broker, topic)
    assert {ref.max_timestamp_ms for ref in page.refs} == {stored_ms}
    assert retain(broker, budget_ms=FOR_EVER).refs_expired == 0
    clock.time_ms += 2 * HOUR_MS
    assert retain(broker, budget_ms=FOR_EVER).refs_expired == len(page.refs)


def test_offsets_of_times_are_found_as_before(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    for number in range(5 * TAIL_ROLL_REFS):
        produce(broker, [entry(topic, 0, batch(str(number), timestamp_ms=1_000 * (number ^ 5)))], Acks.QUORUM)
    clock.time_ms += 2 * HOUR_MS
    times = range(0, 90_000, 700)
    before = [listed(list_offsets(broker, topic, time, 0)) for time in times]
    assert run(broker, topic).runs == 1
    assert [listed(list_offsets(broker, topic, time, 0)) for time in times] == before


def test_retention_by_size_counts_merged_bytes(broker: Broker, clock: SteppedClock) -> None:
    kept = written(broker, clock, "kept")
    total = sum(ref.length for page in pages_of(broker, kept) for ref in page.refs)
    run(broker, kept, ref_bytes=500)
    found = broker.directory.look_up(kept)
    broker.topics.replace(found, replace(found, config=replace(found.config, retention_bytes=total // 2)))
    broker.directory.forget(kept)
    retain(broker, budget_ms=FOR_EVER)
    head = broker.log.heads([key_of(broker, kept)])[key_of(broker, kept)]
    left = [
        each for page in pages_of(broker, kept) for each in page.located() if each.base_offset >= head.log_start_offset
    ]
    behind = sum(each.ref.length for each in left) + sum(ref.length for ref in head.tail)
    assert total // 2 <= behind < total // 2 + 500


def test_reader_that_holds_an_old_ref_still_gets_its_bytes(broker: Broker, topic: str, clock: SteppedClock) -> None:
    """It has read the index, then the pages are exchanged and the sweep runs, then it reads the segments."""
    records = read_all(broker, topic)
    clock.time_ms += 48 * HOUR_MS

    def compact_and_sweep() -> None:
        assert run(broker, topic).runs == 1
        assert sweep(broker, budget_ms=FOR_EVER).deleted == 0

    acted: list[int] = []

    def get(original: Any, *arguments: Any) -> Any:
        if not acted:
            acted.append(1)
            compact_and_sweep()
        return original(*arguments)

    reader = another_instance(broker, zones=[Intercepted(zone, get=get) for zone in broker.zones])
    assert read_all(reader, topic) == records
    clock.time_ms += 23 * HOUR_MS
    assert sweep(broker, budget_ms=FOR_EVER).deleted == 0
    clock.time_ms += 2 * HOUR_MS
    assert sweep(broker, budget_ms=FOR_EVER).deleted == 3 * 80
    assert read_all(broker, topic) == records


def test_second_run_is_told_that_the_partition_is_held_until_the_lease_expires(
    broker: Broker, topic: str, clock: SteppedClock
) -> None:
    key = key_of(broker, topic)
    assert broker.compaction.acquire(key, clock.now_ms(), clock.now_ms() + COMPACTION_LEASE_MS) is not None
    assert run(broker, topic).is_held
    clock.time_ms += COMPACTION_LEASE_MS + 1
    assert run(broker, topic).runs == 1


def test_paused_run_is_fenced_by_its_successor(broker: Broker, topic: str, clock: SteppedClock) -> None:
    records = read_all(broker, topic)

    def meanwhile(original: Any, *arguments: Any) -> Any:
        clock.time_ms += COMPACTION_LEASE_MS + 1
        assert run(broker, topic).runs == 1
        return original(*arguments)

    paused = another_instance(broker, archive=Intercepted(broker.archive, upload=meanwhile))
    done = run(paused, topic)
    assert (done.runs, done.refused) == (0, 1)
    assert read_all(broker, topic) == records


def test_run_that_slept_too_long_before_its_swap_gives_up(broker: Broker, topic: str, clock: SteppedClock) -> None:
    def sleepy(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        clock.time_ms += 25 * HOUR_MS
        sweep(broker, budget_ms=FOR_EVER)

    paused = another_instance(broker, archive=Intercepted(broker.archive, upload=sleepy))
    assert run(paused, topic).refused == 1
    assert len(read_all(broker, topic)) == 2 * APPENDS


def test_swap_whose_answer_was_lost_is_found_to_be_done(broker: Broker, topic: str) -> None:
    def lost(original: Any, *arguments: Any) -> bool:
        assert original(*arguments)
        return bool(original(*arguments))  # the driver's repeat is refused

    assert run(another_instance(broker, compaction=Intercepted(broker.compaction, swap=lost)), topic).runs == 1


def test_swap_of_unknown_outcome_is_a_failure_that_the_next_run_mends(broker: Broker, topic: str) -> None:
    def lost(original: Any, *arguments: Any) -> bool:
        original(*arguments)
        raise LOST_ANSWER

    done = run(another_instance(broker, compaction=Intercepted(broker.compaction, swap=lost)), topic)
    assert (done.runs, done.failures) == (0, 1)
    assert run(broker, topic).runs == 0
    assert len(read_all(broker, topic)) == 2 * APPENDS


def test_bits_that_a_repair_sets_meanwhile_do_not_waste_the_work(broker: Broker, clock: SteppedClock) -> None:
    zone_of(broker, 2).is_down = True
    topic = written(broker, clock)
    zone_of(broker, 2).is_down = False
    [first, *_] = pages_of(broker, topic)

    def repaired(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        assert broker.log.mark_stored(key_of(broker, topic), first.located()[3], 0b111)

    instance = another_instance(broker, archive=Intercepted(broker.archive, upload=repaired))
    assert run(instance, topic).runs == 1
    assert len(pages_of(broker, topic)) == 1


@pytest.mark.parametrize("what", ["truncated", "deleted", "expired"])
def test_removal_that_comes_anywhere_between_is_kept(clock: SteppedClock, what: str) -> None:
    """At storage calls all over the run: truncation and retention to its end, or the deletion of the topic."""
    place = 1
    while True:
        broker = patient_broker(clock)
        topic = written(broker, clock)
        key, met = key_of(broker, topic), [False]

        def act(broker: Broker = broker, topic: str = topic, met: list[bool] = met) -> None:
            met[0] = True
            if what == "deleted":
                delete_topic(another_instance(broker), topic)
            else:
                truncate(another_instance(broker), topic, {0: 100})
            if what != "truncated":
                for _ in range(3):
                    retain(broker, budget_ms=FOR_EVER)
                    clock.time_ms += 61_000
                clock.time_ms += 25 * HOUR_MS
                sweep(broker, budget_ms=FOR_EVER)

        done = run(that_meets(broker, place, act), topic)
        if not met[0]:
            assert place > 80
            return
        if what == "deleted":
            for _ in range(3):
                retain(broker, budget_ms=FOR_EVER)
                clock.time_ms += 61_000
            assert not broker.log.pages(key, Offset(0), 1_000)
        else:
            records = read_all(broker, topic, offset=100)
            assert records == [(number, f"{number // 2}{'ab'[number % 2]}") for number in range(100, 2 * APPENDS)]
            with pytest.raises(PenstockError):
                ask(broker, topic, 99)
        assert not done.failures, done.errors
        place += 7


def test_failing_archive_costs_the_run_only(broker: Broker, topic: str) -> None:
    archive_of(broker).is_down = True
    done = run(broker, topic)
    assert (done.runs, done.failures) == (0, 1)
    assert "archive" in done.errors[0]
    assert len(read_all(broker, topic)) == 2 * APPENDS


def test_rotten_source_is_read_from_another_zone_and_never_copied(broker: Broker, topic: str) -> None:
    for segment_id, body in zone_of(broker, 0).segments.items():
        zone_of(broker, 0).segments[segment_id] = body[:-30] + bytes(30)
    records = read_all(broker, topic)
    assert run(broker, topic).runs == 1
    assert read_all(broker, topic) == records
    for zone in range(3):
        zone_of(broker, zone).segments.clear()
    assert values_of(ask(broker, topic, 0)) == records[:160]


def test_unreadable_source_is_told_and_left(broker: Broker, topic: str) -> None:
    for zone in range(3):
        zone_of(broker, zone).is_down = True
    done = run(broker, topic)
    assert (done.runs, done.failures) == (0, 1)
    for zone in range(3):
        zone_of(broker, zone).is_down = False
    assert len(read_all(broker, topic)) == 2 * APPENDS


def test_dry_run_counts_and_changes_nothing(broker: Broker, topic: str) -> None:
    before = pages_of(broker, topic)
    done = compact(broker, topic, 0, SMALL, is_dry_run=True)
    assert (done.runs, done.refs_before, done.refs_after) == (1, 80, 0)
    assert pages_of(broker, topic) == before
    assert not archive_of(broker).segments


def test_time_that_is_up_ends_between_two_runs(broker: Broker, topic: str, clock: SteppedClock) -> None:
    def slow(original: Any, *arguments: Any) -> Any:
        clock.time_ms += 1_000
        return original(*arguments)

    instance = another_instance(broker, archive=Intercepted(broker.archive, upload=slow))
    done = compact(instance, topic, 0, replace(SMALL, segment_bytes=2_500), budget_ms=1_500)
    assert (done.runs, done.is_finished) == (2, False)
    rest = compact(broker, topic, 0, replace(SMALL, segment_bytes=2_500))
    assert rest.is_finished
    assert rest.runs > 0


def test_unknown_partition_is_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(PenstockError) as raised:
        compact(broker, topic, 1)
    assert raised.value.code is ErrorCode.UNKNOWN_PARTITION


def test_lease_that_cannot_be_given_back_costs_time_only(broker: Broker, topic: str) -> None:
    def refuse(*_: Any) -> Any:
        raise UNAVAILABLE

    instance = another_instance(broker, compaction=Intercepted(broker.compaction, save=refuse))
    assert run(instance, topic).runs == 1
    assert run(broker, topic).is_held


def test_late_repeat_of_what_was_merged_is_answered_as_the_first_time(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    batches = [numbered(2 * number, f"{number}a", f"{number}b") for number in range(2 * TAIL_ROLL_REFS)]
    firsts = []
    for number, data in enumerate(batches):
        firsts.append(tell(broker, topic, data))
        send(broker, topic, f"between {number}")
    clock.time_ms += 2 * HOUR_MS
    assert run(broker, topic).runs == 1
    assert run(broker, topic, ref_bytes=10**6, refs_min=2).runs == 1  # merged refs again
    records = read_all(broker, topic)
    assert [tell(broker, topic, data) for data in batches] == firsts
    assert read_all(broker, topic) == records


def test_repeat_that_is_merged_while_it_is_looked_for_is_found(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    firsts = [tell(broker, topic, numbered(number, str(number))) for number in range(2 * TAIL_ROLL_REFS)]
    clock.time_ms += 2 * HOUR_MS

    def merge_first(original: Any, *arguments: Any) -> Any:
        run(broker, topic)
        return original(*arguments)

    instance = another_instance(broker, log=Intercepted(broker.log, pages_before=merge_first))
    assert tell(instance, topic, numbered(3, "3")) == firsts[3]
