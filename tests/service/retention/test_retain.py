"""Retention: what is expired goes, first for readers, then from the index; what is not stays, whoever dies or meets."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import APPEND_MS_MAX, LOG_START_GRACE_MS, MIB, TAIL_ROLL_REFS
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.retention.remove_topic import RetentionResult
from penstock_service.retention.retain import retain
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from tests.support.expiring import HOUR_MS, NEW, OLD, old_and_new, put
from tests.support.interleaving import catch_kill, killed_at, watched
from tests.support.service import (
    UNAVAILABLE,
    FrozenClock,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    counted_instance,
    entry,
    head_of,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    refs_of,
    send,
)

BUDGET_MS = 60_000.0


def run(instance: Instance) -> RetentionResult:
    return retain(instance, budget_ms=BUDGET_MS)


def test_old_records_that_were_appended_now_stay_and_go_in_their_time(instance: Instance, clock: SteppedClock) -> None:
    clock.time_ms += 60 * 24 * HOUR_MS
    topic = new_topic(instance, "late", retention_ms=600_000)
    put(instance, topic, 3, clock.now_ms() - 30 * 24 * HOUR_MS)
    put(instance, topic, 1, 0)
    clock.time_ms += 600_000
    assert run(instance).refs_expired == 0
    clock.time_ms += APPEND_MS_MAX + 1
    assert run(instance).refs_expired == 4


def test_expired_refs_are_hidden_at_once_and_their_pages_go_after_the_grace(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = old_and_new(instance, clock)
    unexpired = read_all(instance, topic)[OLD:]
    assert run(instance) == RetentionResult(partitions=1, refs_expired=OLD)
    assert read_all(instance, topic, offset=OLD) == unexpired
    with pytest.raises(PenstockError, match="OFFSET_OUT_OF_RANGE") as caught:
        ask(instance, topic, OLD - 1)
    facts = {"log_start_offset": OLD, "high_watermark": OLD + NEW, "topic_id": key_of(instance, topic).topic_id}
    assert caught.value.facts == facts
    clock.time_ms += LOG_START_GRACE_MS - 1
    assert run(instance) == RetentionResult(partitions=1), (
        "a function that began before the log start rose may still read pages"
    )
    clock.time_ms += 1
    assert run(instance) == RetentionResult(partitions=1, pages_deleted=2)
    first = instance.stores.log.pages(key_of(instance, topic), Offset(0), 9)[0]
    assert first.base_offset == 2 * TAIL_ROLL_REFS, "the page that also holds unexpired refs stays"
    assert read_all(instance, topic, offset=OLD) == unexpired
    assert run(instance) == RetentionResult(partitions=1)


def test_oldest_pages_go_first(instance: Instance, clock: SteppedClock) -> None:
    """So a run that dies leaves pages that lie side by side."""
    old_and_new(instance, clock)
    run(instance)
    clock.time_ms += LOG_START_GRACE_MS
    deleted: list[int] = []

    def delete_page(original: Callable[..., None], key: PartitionKey, end_offset: int) -> None:
        deleted.append(end_offset)
        original(key, end_offset)

    run(another_instance(instance, log=Intercepted(instance.stores.log, delete_page=delete_page)))
    assert deleted == [TAIL_ROLL_REFS, 2 * TAIL_ROLL_REFS]


def test_everything_may_expire_and_the_partition_goes_on(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    for _ in range(3):
        clock.time_ms += HOUR_MS
        run(instance)
    head = head_of(instance, topic)
    assert head.log_start_offset == head.next_offset == OLD + NEW
    assert head.noted_log_start == OLD + NEW
    assert read_all(instance, topic, offset=OLD + NEW) == []
    put(instance, topic, 30, clock.now_ms())
    assert len(read_all(instance, topic, offset=OLD + NEW)) == 30


@pytest.mark.parametrize("config", [{"retention_ms": -1}, {"retention_ms": 2 * HOUR_MS}, {}])
def test_nothing_unexpired_goes(instance: Instance, clock: SteppedClock, config: dict[str, int]) -> None:
    topic = old_and_new(instance, clock)
    alter_topic(instance, topic, None, {"retention_ms": None} | config)
    before = read_all(instance, topic)
    for _ in range(3):
        clock.time_ms += 10 * 60_000
        assert run(instance) == RetentionResult(partitions=1)
    assert read_all(instance, topic) == before


def test_size_keeps_the_newest(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=-1, retention_bytes=2**20)
    large = batch("x" * 100_000)
    for _ in range(30):
        produce(instance, [entry(topic, 0, large)], Acks.QUORUM)
    run(instance)
    kept = head_of(instance, topic).next_offset - head_of(instance, topic).log_start_offset
    assert kept == -(-(2**20) // len(large))


def test_truncations_in_quick_succession_do_not_keep_pages_for_ever(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    deleted = 0
    for number in range(20):
        put(instance, topic, TAIL_ROLL_REFS, clock.now_ms())
        truncate(instance, topic, {0: (number + 1) * TAIL_ROLL_REFS})
        clock.time_ms += LOG_START_GRACE_MS // 3
        deleted += run(instance).pages_deleted
    assert deleted >= 12


def test_setting_raised_while_a_run_is_under_way_is_heeded(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)

    def heads_late(original: object, *arguments: object) -> object:
        alter_topic(another_instance(instance), topic, None, {"retention_ms": -1})
        clock.time_ms += 10_000
        return original(*arguments)  # type: ignore[operator]

    running = another_instance(instance, log=Intercepted(instance.stores.log, heads=heads_late))
    running.topic_cache.get(topic)
    assert run(running).refs_expired == 0


def test_setting_changed_while_the_instance_was_frozen_is_heeded(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=600_000)
    put(instance, topic, OLD, clock.now_ms())
    records = read_all(instance, topic)
    frozen = FrozenClock(clock)
    running = another_instance(instance, clock=frozen)
    assert run(running).refs_expired == 0  # it remembers the topic, and is frozen
    alter_topic(instance, topic, None, {"retention_ms": -1})
    frozen.freeze(HOUR_MS)
    assert run(running).refs_expired == 0
    assert running.topic_cache.get(topic).config.retention_ms == -1
    assert read_all(instance, topic) == records


def test_setting_changed_right_before_the_log_start_would_rise_is_heeded(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = old_and_new(instance, clock)
    records = read_all(instance, topic)

    def pages_late(original: Callable[..., object], *arguments: object) -> object:
        alter_topic(another_instance(instance), topic, None, {"retention_ms": -1})
        return original(*arguments)

    running = another_instance(instance, log=Intercepted(instance.stores.log, pages=pages_late))
    running.topic_cache.get(topic)
    assert run(running).refs_expired == 0
    assert read_all(instance, topic) == records


def test_run_reads_the_topic_again_only_for_partitions_that_have_expired_records(
    instance: Instance, clock: SteppedClock
) -> None:
    old_and_new(instance, clock)
    fresh = new_topic(instance, "fresh", 3)
    put(instance, fresh, 2, clock.now_ms())
    counts: Counter[str] = Counter()
    run(counted_instance(instance, counts))
    assert (counts["topics.list"], counts["topics.get"]) == (1, 1)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_size_counts_no_bytes_that_compaction_removed(instance: Instance, clock: SteppedClock, policy: str) -> None:
    keep = 3 * MIB
    topic = new_topic(instance, cleanup_policy="compact", retention_ms=-1)
    keys = [*(f"account {number}" for number in range(64)), *["counter"] * 128]  # 4 MiB stay, 8 MiB leave little
    for key in keys:
        data = encode([NewRecord(clock.now_ms(), key.encode(), bytes(64 * 1024))], Compression.NONE)
        produce(instance, [entry(topic, 0, data)], Acks.QUORUM)
    clock.time_ms += 10 * HOUR_MS
    compact(instance, topic, 0, CompactionSettings(age_ms_min=0, segment_bytes=4 * MIB))
    held = _held_bytes(instance, topic)
    assert keep < held < 6 * MIB
    alter_topic(instance, topic, None, {"cleanup_policy": policy, "retention_bytes": keep})
    clock.time_ms += LOG_START_GRACE_MS
    assert run(instance).refs_expired > 0
    assert keep <= _held_bytes(instance, topic) < held


def _held_bytes(instance: Instance, topic: str) -> int:
    start = head_of(instance, topic).log_start_offset
    return sum(each.ref.length for each in refs_of(instance, key_of(instance, topic)) if each.end_offset > start)


@pytest.mark.slow
@pytest.mark.parametrize("is_applied", [False, True])
def test_run_that_dies_anywhere_loses_nothing_and_the_next_ones_end_in_the_same_place(is_applied: bool) -> None:
    for place in range(200):
        clock = SteppedClock()
        instance = patient_instance(clock)
        gone = old_and_new(instance, clock, "gone")
        delete_topic(instance, gone)
        topic = old_and_new(instance, clock)
        unexpired = read_all(instance, topic)[OLD:]
        left = head_of(instance, topic)
        with catch_kill() as was_killed:
            mortal = killed_at(instance, place, is_applied=is_applied)
            for _ in range(2):
                run(mortal)
                clock.time_ms += LOG_START_GRACE_MS
        assert read_all(instance, topic, offset=OLD) == unexpired
        assert head_of(instance, topic).next_offset == left.next_offset
        for _ in range(3):
            clock.time_ms += LOG_START_GRACE_MS
            run(instance)
        assert read_all(instance, topic, offset=OLD) == unexpired
        assert [page.base_offset for page in instance.stores.log.pages(key_of(instance, topic), Offset(0), 9)] == [32]
        assert list(instance.stores.topics.deleted()) == []
        if not was_killed:
            assert place > 10
            return
    raise AssertionError("it never ran to its end")


def test_two_runs_at_once_do_no_harm(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    unexpired = read_all(instance, topic)[OLD:]

    def run_again(_: int) -> None:
        run(another_instance(instance))

    twin = watched(instance, run_again)
    for _ in range(3):
        run(twin)
        clock.time_ms += LOG_START_GRACE_MS
    assert read_all(instance, topic, offset=OLD) == unexpired
    assert len(instance.stores.log.pages(key_of(instance, topic), Offset(0), 9)) == 1


def test_partition_that_fails_is_counted_and_met_again(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    kept = old_and_new(instance, clock, "kept")
    bad = key_of(instance, topic)

    def refuse(original: object, key: PartitionKey, *arguments: object) -> object:
        if key == bad:
            raise UNAVAILABLE
        return original(key, *arguments)  # type: ignore[operator]

    faulty = another_instance(instance, log=Intercepted(instance.stores.log, raise_log_start=refuse))
    assert run(faulty).failures == 1
    assert head_of(instance, topic).log_start_offset == 0
    assert head_of(instance, kept).log_start_offset == OLD
    assert run(instance).failures == 0
    assert head_of(instance, topic).log_start_offset == OLD + NEW, "an hour later it is all expired"


def test_run_out_of_time_goes_on_where_it_stopped(instance: Instance, clock: SteppedClock) -> None:
    names = [new_topic(instance, f"t{number}", partitions=150, retention_ms=600_000) for number in range(3)]
    for name in names:
        send(instance, name, "x", partition=149)
    clock.time_ms += HOUR_MS

    def heads_slow(original: object, *arguments: object) -> object:
        clock.time_ms += 30
        return original(*arguments)  # type: ignore[operator]

    slow = another_instance(instance, log=Intercepted(instance.stores.log, heads=heads_slow))
    seen = [retain(slow, budget_ms=100) for _ in range(2)]
    assert [part.partitions for part in seen] == [250, 200]
    assert [part.is_finished for part in seen] == [False, True]
    assert [head_of(instance, name, 149).log_start_offset for name in names] == [1, 1, 1]
    assert instance.stores.cursors.get("retention") is None


def test_partition_takes_several_runs_when_much_is_expired(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=600_000)
    put(instance, topic, 60 * TAIL_ROLL_REFS, clock.now_ms())
    clock.time_ms += HOUR_MS

    def pages_slow(original: object, *arguments: object) -> object:
        clock.time_ms += 40
        return original(*arguments)  # type: ignore[operator]

    slow = another_instance(instance, log=Intercepted(instance.stores.log, pages=pages_slow))
    starts = []
    for _ in range(3):
        retain(slow, budget_ms=100)
        starts.append(head_of(instance, topic).log_start_offset // TAIL_ROLL_REFS)
    assert starts == [25, 50, 60]
