"""The task `clean`: a bound of bytes a day, turns that starve no partition, and what is left to the Spark job."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.ids import TopicName
from penstock_core.limits import CLEANING_LATE_MS, TAIL_ROLL_REFS, TIERING_MS_MAX
from penstock_core.log.ref import stored_bytes
from penstock_service.compaction.clean_topics import CleaningResult, clean_topics
from penstock_service.compaction.compact import compact
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from tests.service.compaction.written_topic import append, pages_of, read
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    key_of,
    new_topic,
    with_stores,
    zone_of,
)

FOR_EVER, HOUR_MS, DAY_MS = 10**9, 3_600_000, 24 * 3_600_000
PAGES = 3


def written(instance: Instance, clock: SteppedClock, name: str, pages: int = PAGES) -> str:
    """A compacted topic in which one key has all records, with so many pages and a record in the tail."""
    if all(topic.name != name for topic in instance.stores.topics.list()):
        new_topic(instance, name, cleanup_policy="compact")
    for number in range(pages * TAIL_ROLL_REFS + 1):
        append(instance, name, ("k", str(number)))
    clock.time_ms += 2 * HOUR_MS
    return name


def log_bytes(instance: Instance, topic: str) -> int:
    return sum(stored_bytes(page.refs) for page in pages_of(instance, topic))


def records(instance: Instance, topic: str) -> int:
    return len(read(instance, topic))


def run(instance: Instance, **how: Any) -> CleaningResult:
    return clean_topics(instance, **{"budget_ms": FOR_EVER, "bytes_per_day": FOR_EVER, **how})


def test_every_compacted_topic_keeps_the_newest_record_of_a_key_and_others_keep_all(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance, "kept")
    for number in range(4 * TAIL_ROLL_REFS):
        append(instance, "kept", ("k", str(number)))
    topics = [written(instance, clock, name) for name in ("a", "b")]
    size = sum(log_bytes(instance, topic) for topic in topics)
    done = run(instance)
    assert done == CleaningResult(partitions=2, passes=2, bytes_cleaned=size)
    for topic in topics:
        last = PAGES * TAIL_ROLL_REFS
        assert [offset for offset, *_ in read(instance, topic)] == [last - 1, last], "the tail is not cleaned"
    assert records(instance, "kept") == 4 * TAIL_ROLL_REFS
    assert run(instance) == CleaningResult(partitions=2), "nothing is new"


def test_bytes_of_a_day_are_the_bound_and_the_next_day_has_new_ones(instance: Instance, clock: SteppedClock) -> None:
    topics = [written(instance, clock, name) for name in ("a", "b", "c")]
    size = log_bytes(instance, "a")
    clock.time_ms = (clock.time_ms // DAY_MS + 1) * DAY_MS
    done = run(instance, bytes_per_day=2 * size)
    assert (done.passes, done.bytes_cleaned, done.bytes_left, done.bytes_too_large) == (2, 2 * size, size, 0)
    clock.time_ms += 20 * HOUR_MS
    again = run(instance, bytes_per_day=2 * size)
    assert (again.passes, again.bytes_left) == (0, size), "the bound is for a day, not for a run"
    clock.time_ms += 4 * HOUR_MS
    assert run(instance, bytes_per_day=2 * size).passes == 1
    assert [records(instance, topic) for topic in topics] == [2, 2, 2]


def test_run_that_dies_in_a_pass_has_paid_for_it(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")

    def swap(_original: Callable[..., bool], *_arguments: object) -> bool:
        raise RuntimeError("it dies here")

    dying = with_stores(instance, compaction=Intercepted(instance.stores.compaction, swap=swap))
    with pytest.raises(RuntimeError):
        run(dying, bytes_per_day=log_bytes(instance, "a"))
    clock.time_ms += HOUR_MS  # the lease has ended
    done = run(instance, bytes_per_day=log_bytes(instance, "a"))
    assert (done.passes, done.bytes_left) == (0, log_bytes(instance, "a"))
    clock.time_ms += DAY_MS
    assert run(instance, bytes_per_day=log_bytes(instance, "a")).passes == 1


def test_run_that_always_dies_in_one_partition_cleans_the_others(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a", "b", "c"):
        written(instance, clock, name)
    poison = key_of(instance, "b", 0)

    def swap(original: Callable[..., bool], *arguments: object) -> bool:
        if arguments[0] == poison:
            raise RuntimeError("it dies here")
        return original(*arguments)

    dying = with_stores(instance, compaction=Intercepted(instance.stores.compaction, swap=swap))
    with pytest.raises(RuntimeError):
        run(dying)
    clock.time_ms += HOUR_MS
    with pytest.raises(RuntimeError):
        run(dying)
    assert [records(instance, name) for name in ("a", "c")] == [2, 2]


def test_log_that_waits_for_the_rest_of_a_day_is_the_first_of_the_next(instance: Instance, clock: SteppedClock) -> None:
    """Each day has room for the large log or for the small ones, which come before it and are written each day."""
    written(instance, clock, "z", pages=6)
    size = log_bytes(instance, "z")
    for _ in range(3):
        for name in ("a", "b"):
            written(instance, clock, name)
        clock.time_ms = (clock.time_ms // DAY_MS + 1) * DAY_MS
        run(instance, bytes_per_day=size)
    assert records(instance, "z") == 2
    assert records(instance, "a") < 3 * PAGES * TAIL_ROLL_REFS


def test_log_larger_than_a_day_is_left_to_the_job_and_keeps_no_other_waiting(
    instance: Instance, clock: SteppedClock
) -> None:
    written(instance, clock, "a", pages=6)
    small = written(instance, clock, "b")
    size = log_bytes(instance, "a")
    done = run(instance, bytes_per_day=size - 1)
    assert (done.passes, done.bytes_left, done.bytes_too_large) == (1, size, size)
    assert records(instance, small) == 2
    job = compact(instance, "a", 0)
    assert (job.runs, job.dirt) == (1, None)
    assert run(instance, bytes_per_day=size - 1).bytes_left == 0


def slow(instance: Instance, clock: SteppedClock, swap_ms: int) -> Instance:
    """An instance whose every swap takes so long."""

    def swap(original: Callable[..., bool], *arguments: object) -> bool:
        clock.time_ms += swap_ms
        return original(*arguments)

    return with_stores(instance, compaction=Intercepted(instance.stores.compaction, swap=swap))


ONE_PAGE = CompactionSettings(merges=False, segment_bytes=1)  # each swap takes one page


@pytest.mark.parametrize("change", [{"cleanup_policy": "delete"}, {"delete_retention_ms": 7 * DAY_MS}])
def test_pass_ends_once_the_topic_is_to_keep_more(
    instance: Instance, clock: SteppedClock, change: dict[str, Any]
) -> None:
    written(instance, clock, "a", pages=4)

    def swap(original: Callable[..., bool], *arguments: object) -> bool:
        swaps.append(original(*arguments))
        alter_topic(another_instance(instance), "a", None, change)
        return swaps[-1]

    swaps: list[bool] = []
    altering = with_stores(instance, compaction=Intercepted(instance.stores.compaction, swap=swap))
    done = run(altering, settings=ONE_PAGE)
    assert (swaps, done.passes, done.bytes_left > 0) == ([True], 0, True)
    assert records(instance, "a") == 3 * TAIL_ROLL_REFS + 1


def test_pass_that_is_cut_short_is_the_first_of_the_next_run(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a", "b"):
        written(instance, clock, name)
    patient = slow(instance, clock, 1_000)
    first = run(patient, settings=ONE_PAGE, budget_ms=4_500)
    assert (first.partitions, first.passes, first.is_finished, first.bytes_too_large) == (2, 1, False, 0)
    second = run(patient, settings=ONE_PAGE, budget_ms=4_500)
    assert (second.passes, second.is_finished, second.bytes_left) == (1, True, 0)
    assert [records(instance, name) for name in ("a", "b")] == [2, 2]


def test_pass_longer_than_a_run_comes_to_its_end_and_keeps_no_other_waiting(
    instance: Instance, clock: SteppedClock
) -> None:
    written(instance, clock, "a", pages=8)
    small = written(instance, clock, "b")
    patient = slow(instance, clock, 1_000)
    first = run(patient, settings=ONE_PAGE, budget_ms=3_500)
    assert (first.partitions, first.is_finished) == (1, False)
    assert first.bytes_too_large == first.bytes_left > 0
    assert run(patient, settings=ONE_PAGE, budget_ms=3_500).passes == 1
    assert records(instance, small) == 2, "it is the other's turn"
    for _ in range(8):
        last = run(patient, settings=ONE_PAGE, budget_ms=3_500)
    assert (records(instance, "a"), last.bytes_left) == (2, 0), "what a pass has removed, the next one need not write"


def test_log_that_has_waited_for_two_days_is_late(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")
    size = log_bytes(instance, "a")
    clock.time_ms += CLEANING_LATE_MS - 3 * HOUR_MS
    assert run(instance, bytes_per_day=0).bytes_late == 0
    clock.time_ms += 2 * HOUR_MS
    done = run(instance, bytes_per_day=0)
    assert (done.bytes_late, done.bytes_too_large, done.bytes_left) == (size, size, size)
    assert run(instance).bytes_late == 0


def test_log_that_was_not_due_until_now_is_not_late(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a", pages=4)
    run(instance)
    before = log_bytes(instance, "a")
    settings = CompactionSettings(merges=False, dirty_share_min=0.9)
    written(instance, clock, "a", pages=1)
    clock.time_ms += 10 * DAY_MS
    assert run(instance, settings=settings, bytes_per_day=0).bytes_left == 0
    written(instance, clock, "a", pages=9)
    assert log_bytes(instance, "a") > 10 * before
    done = run(instance, settings=settings, bytes_per_day=0)
    assert (done.bytes_left > 0, done.bytes_late) == (True, 0)


def test_partition_that_cannot_be_read_counts_and_the_others_are_cleaned(
    instance: Instance, clock: SteppedClock
) -> None:
    for name in ("a", "b"):
        written(instance, clock, name)
    lost = pages_of(instance, "a")[0].refs[0].segment_id
    for number in range(3):
        del zone_of(instance, number).segments[lost]
    done = run(instance)
    assert (done.failures, done.passes, done.partitions) == (1, 1, 2)
    assert records(instance, "b") == 2


def test_pass_that_fails_costs_a_day_once_and_is_tried_again_on_the_next(
    instance: Instance, clock: SteppedClock
) -> None:
    for name in ("a", "b"):
        written(instance, clock, name)
    clock.time_ms = clock.now_ms() // DAY_MS * DAY_MS + DAY_MS
    lost = pages_of(instance, "a")[0].refs[0].segment_id
    kept = [zone_of(instance, number).segments.pop(lost) for number in range(3)]
    cost = log_bytes(instance, "a")
    bytes_per_day = cost + log_bytes(instance, "b")

    results = []
    for _ in range(3):
        results.append(run(instance, bytes_per_day=bytes_per_day))
        clock.time_ms += HOUR_MS
    assert [(each.failures, each.passes, each.partitions) for each in results] == [(1, 1, 2), (1, 0, 2), (1, 0, 2)]
    assert json.loads(instance.stores.cursors.get("clean") or "")["spent_bytes"] == bytes_per_day

    for number, each in enumerate(kept):
        zone_of(instance, number).segments[lost] = each
    assert run(instance, bytes_per_day=bytes_per_day).failures == 1
    clock.time_ms += DAY_MS
    assert run(instance, bytes_per_day=bytes_per_day).passes == 1
    assert records(instance, "a") == 2


def test_partition_that_another_run_holds_is_counted_and_left(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")
    now_ms = clock.now_ms()
    assert instance.stores.compaction.acquire(key_of(instance, "a"), now_ms, now_ms + HOUR_MS)
    done = run(instance)
    assert (done.held, done.passes, done.failures) == (1, 0, 0)


def test_run_goes_on_where_the_one_before_ran_out_of_time(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a", "b", "c"):
        written(instance, clock, name)
    first = run(instance, budget_ms=0)
    assert (first.partitions, first.is_finished) == (0, False)
    cursor = json.loads(instance.stores.cursors.get("clean") or "")
    assert cursor["next"] == "a#0"
    instance.stores.cursors.put("clean", json.dumps(cursor | {"next": "b#0", "spent_bytes": 0}))
    done = run(instance, bytes_per_day=2 * log_bytes(instance, "b"))
    assert (done.passes, done.is_finished) == (2, True)
    assert [records(instance, name) > 2 for name in ("a", "b", "c")] == [True, False, False]


def test_failure_to_store_what_a_pass_costs_fails_the_pass(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")

    refused: list[object] = []

    def put(original: Callable[..., None], *arguments: object) -> None:
        if not refused:
            refused.append(arguments)
            raise UNAVAILABLE
        original(*arguments)

    done = run(with_stores(instance, cursors=Intercepted(instance.stores.cursors, put=put)))
    assert (done.failures, done.passes, done.bytes_left) == (1, 0, log_bytes(instance, "a"))
    assert records(instance, "a") == PAGES * TAIL_ROLL_REFS + 1


def test_tier_moves_compacted_topics_and_cleans_none(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")
    before = read(instance, "a")
    clock.time_ms += TIERING_MS_MAX
    assert tier(instance, budget_ms=FOR_EVER).bytes_moved > 0
    assert read(instance, "a") == before
    assert run(instance).passes == 1
    assert records(instance, "a") == 2


def test_deleted_topic_is_no_failure(instance: Instance, clock: SteppedClock) -> None:
    written(instance, clock, "a")
    [topic] = instance.stores.topics.list()
    gone = [replace(topic, name=TopicName("gone"))]
    stale = with_stores(instance, topics=Intercepted(instance.stores.topics, list=lambda _original: gone))
    assert run(stale) == CleaningResult(partitions=1)
