"""A raise of the retention reaches the items of small appends that exist."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import (
    APPEND_MS_MAX,
    RAISE_LATE_MS,
    RAISE_SETTLED_MS,
    SWEEP_GRACE_MS,
    TAIL_ROLL_REFS,
    UNLIMITED,
)
from penstock_core.log.inline import InlineBounds
from penstock_core.log.ref import DAY_MS, Tier
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.storage.page_item import expiring_key, inline_key
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.tables.tables import Tables
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.retention.keep_items import KeepResult, keep_items, keep_restored
from penstock_service.topics.alter_topic import alter_topic, truncate
from tests.service.retention.sweeping import run as run_sweep
from tests.service.retention.sweeping import settle
from tests.support.inline_items import inline_segments
from tests.support.refusals import refused
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    head_of,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    refs_of,
    send,
    values_of,
    with_stores,
)

WEEK_MS = 7 * DAY_MS
FOR_EVER_MS = 1e12


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    return with_stores(patient_instance(clock), small=InlineBounds.of_both(1_000))


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, retention_ms=WEEK_MS)


def raised(instance: Instance, topic: str, clock: SteppedClock, retention_ms: int = UNLIMITED) -> None:
    alter_topic(instance, topic, None, {"retention_ms": retention_ms})
    clock.time_ms += RAISE_SETTLED_MS


def note_of(instance: Instance, topic: str) -> RetentionRaise | None:
    return instance.topic_cache.read_through(topic).retention_raise


def kept(instance: Instance) -> Mapping[SegmentId, bytes]:
    return inline_segments(instance.stores.inline)


def expire(instance: Instance, topic: str, *offsets: int) -> None:
    """DynamoDB's TTL removes the items of these refs, if their time has come."""
    refs = refs_of(instance, key_of(instance, topic))
    remove_items(instance, {each.ref.segment_id for each in refs if each.base_offset in offsets})


def remove_items(instance: Instance, segment_ids: Iterable[SegmentId]) -> None:
    """DynamoDB's TTL removes these expiring items."""
    store: Any = instance.stores.inline
    for each in segment_ids:
        store._client.call("delete_item", is_repeatable=True, TableName=store._table, Key=expiring_key(each))


def test_items_outlive_their_ttl_when_the_retention_is_raised(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(40):
        send(instance, topic, str(number))
    records = read_all(instance, topic)
    clock.time_ms += 6 * DAY_MS
    raised(instance, topic, clock)
    assert keep_items(instance, budget_ms=FOR_EVER_MS) == KeepResult(kept=40, raises_ended=1)
    assert note_of(instance, topic) is None
    clock.time_ms += 30 * DAY_MS
    expire(instance, topic, *range(40))
    assert read_all(another_instance(instance), topic) == records
    run_sweep(instance)
    assert read_all(another_instance(instance), topic) == records
    truncate(instance, topic, {0: 40})
    settle(instance, clock)
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    run_sweep(instance)
    assert kept(instance) == {}


def test_walk_waits_until_appends_that_went_by_the_old_value_are_over(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    send(instance, topic, "a")
    alter_topic(instance, topic, None, {"retention_ms": UNLIMITED})
    clock.time_ms += RAISE_SETTLED_MS - 1
    assert keep_items(instance, budget_ms=FOR_EVER_MS) == KeepResult()
    clock.time_ms += 1
    assert keep_items(instance, budget_ms=FOR_EVER_MS).kept == 1


def test_appends_take_no_ttl_while_the_note_is_there(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, "before")
    alter_topic(instance, topic, None, {"retention_ms": 2 * WEEK_MS})
    send(instance, topic, "noted")
    clock.time_ms += RAISE_SETTLED_MS
    keep_items(instance, budget_ms=FOR_EVER_MS)
    send(instance, topic, "after")
    refs = [each.ref for each in refs_of(instance, key_of(instance, topic))]
    assert [ref.tier for ref in refs] == [Tier.EXPIRING, Tier.INLINE, Tier.EXPIRING]
    assert [ref.kept_days for ref in refs] == [16, 0, 23]


def test_note_stays_when_a_newer_raise_comes_during_the_walk(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    send(instance, topic, "a")
    raised(instance, topic, clock, 2 * WEEK_MS)

    def get_expiring(original: Any, ids: Any) -> Any:
        alter_topic(another_instance(instance), topic, None, {"retention_ms": UNLIMITED})
        return original(ids)

    overtaken = with_stores(instance, inline=Intercepted(instance.stores.inline, get_expiring=get_expiring))
    assert keep_items(overtaken, budget_ms=FOR_EVER_MS).raises_ended == 0
    assert note_of(instance, topic) is not None
    clock.time_ms += RAISE_SETTLED_MS
    assert keep_items(instance, budget_ms=FOR_EVER_MS).raises_ended == 1


def test_walk_leaves_items_whose_ttl_is_long_enough(instance: Instance, topic: str, clock: SteppedClock) -> None:
    alter_topic(instance, topic, None, {"retention_ms": 3 * WEEK_MS})
    clock.time_ms += RAISE_SETTLED_MS
    keep_items(instance, budget_ms=FOR_EVER_MS)
    send(instance, topic, "long")
    alter_topic(instance, topic, None, {"retention_ms": WEEK_MS})
    send(instance, topic, "short")
    raised(instance, topic, clock, 2 * WEEK_MS)
    assert keep_items(instance, budget_ms=FOR_EVER_MS).kept == 1


def test_walk_goes_on_where_its_time_was_up_and_begins_anew_after_another_raise(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(250):
        send(instance, topic, str(number))
    raised(instance, topic, clock)
    store = instance.stores.inline

    def overwrite(original: Any, *arguments: Any) -> None:
        clock.time_ms += 10
        original(*arguments)

    slow = with_stores(instance, inline=Intercepted(store, overwrite=overwrite))
    assert keep_items(slow, budget_ms=500) == KeepResult(kept=100, is_finished=False)
    raised(instance, topic, clock, UNLIMITED)  # the same value: no raise, and the cursor holds
    assert keep_items(slow, budget_ms=500) == KeepResult(kept=100, is_finished=False)
    alter_topic(instance, topic, None, {"retention_ms": WEEK_MS})
    raised(instance, topic, clock)
    asked: list[SegmentId] = []

    def get_wholes(original: Any, ids: Any) -> Any:
        asked.extend(ids)
        return original(ids)

    watched = with_stores(instance, inline=Intercepted(store, get_wholes=get_wholes))
    assert keep_items(watched, budget_ms=FOR_EVER_MS).kept == 50
    assert len(set(asked)) == 250
    assert note_of(instance, topic) is None


def test_walk_of_several_partitions_goes_on_in_the_one_where_its_time_was_up(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance, "wide", partitions=3, retention_ms=WEEK_MS)
    for number in range(130):
        for partition in range(3):
            send(instance, topic, str(number), partition=partition)
    raised(instance, topic, clock)
    runs = []
    while note_of(instance, topic) is not None:
        runs.append(keep_items(slow_puts(instance, clock), budget_ms=500).kept)
    assert (sum(runs), len(kept(instance))) == (390, 390)
    assert len(runs) > 3


def slow_puts(instance: Instance, clock: SteppedClock) -> Instance:
    def overwrite(original: Any, *arguments: Any) -> None:
        clock.time_ms += 10
        original(*arguments)

    return with_stores(instance, inline=Intercepted(instance.stores.inline, overwrite=overwrite))


def test_walk_ends_in_time_among_empty_partitions(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, "wide", partitions=50, retention_ms=WEEK_MS)
    raised(instance, topic, clock)
    began_ms = clock.time_ms

    def heads(original: Any, keys: Any) -> Any:
        clock.time_ms += 10
        return original(keys)

    slow = with_stores(instance, log=Intercepted(instance.stores.log, heads=heads))
    assert not keep_items(slow, budget_ms=15).is_finished
    assert clock.time_ms - began_ms == 20
    assert keep_items(slow, budget_ms=FOR_EVER_MS).raises_ended == 1
    assert clock.time_ms - began_ms == 500


def test_cursor_of_a_topic_outlives_the_raise_of_another_one(instance: Instance, clock: SteppedClock) -> None:
    large = new_topic(instance, "large", retention_ms=WEEK_MS)
    small = new_topic(instance, "a", retention_ms=WEEK_MS)
    for number in range(250):
        send(instance, large, str(number))
    alter_topic(instance, small, None, {"retention_ms": UNLIMITED})  # the older raise comes first
    raised(instance, large, clock)
    runs = [keep_items(slow_puts(instance, clock), budget_ms=500) for _ in range(2)]
    alter_topic(instance, small, None, {"retention_ms": WEEK_MS})
    raised(instance, small, clock)
    runs.append(keep_items(slow_puts(instance, clock), budget_ms=FOR_EVER_MS))
    assert [each.kept for each in runs] == [100, 100, 50]
    assert [each.raises_ended for each in runs] == [1, 0, 2]


def test_item_that_several_partitions_share_is_copied_once_and_not_again_at_the_next_raise(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance, "wide", partitions=6, retention_ms=WEEK_MS)
    for number in range(10):
        produce(instance, [entry(topic, each, batch(str(number))) for each in range(6)], Acks.QUORUM).all_ok()
    raised(instance, topic, clock, 2 * WEEK_MS)
    assert keep_items(instance, budget_ms=FOR_EVER_MS) == KeepResult(kept=10, raises_ended=1)
    raised(instance, topic, clock, 3 * WEEK_MS)
    assert keep_items(instance, budget_ms=FOR_EVER_MS) == KeepResult(kept=0, raises_ended=1)


def test_partition_that_fails_stops_no_other_and_keeps_the_note_until_it_is_walked(
    instance: Instance, clock: SteppedClock
) -> None:
    bad = new_topic(instance, "bad", partitions=3, retention_ms=WEEK_MS)
    good = new_topic(instance, "good", retention_ms=WEEK_MS)
    for partition in range(3):
        send(instance, bad, "x", partition=partition)
    send(instance, good, "x")
    alter_topic(instance, bad, None, {"retention_ms": UNLIMITED})
    raised(instance, good, clock)

    def heads(original: Any, keys: Any) -> Any:
        read.extend(keys)
        if key_of(instance, bad, 1) in keys:
            raise PenstockError(ErrorCode.CORRUPT_SEGMENT, "the index has a gap")
        return original(keys)

    read: list[PartitionKey] = []
    broken = with_stores(instance, log=Intercepted(instance.stores.log, heads=heads))
    assert keep_items(broken, budget_ms=FOR_EVER_MS) == KeepResult(kept=3, failures=1, raises_ended=1)
    read.clear()
    assert keep_items(broken, budget_ms=FOR_EVER_MS) == KeepResult(failures=1)
    assert read == [key_of(instance, bad, 1)]
    assert (note_of(instance, bad) is None, note_of(instance, good) is None) == (False, True)
    assert keep_items(instance, budget_ms=FOR_EVER_MS) == KeepResult(kept=1, raises_ended=1)
    assert len(kept(instance)) == 4


def test_copy_that_fails_keeps_the_note_and_what_was_copied(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(250):
        send(instance, topic, str(number))
    raised(instance, topic, clock)

    def overwrite(original: Any, *arguments: Any) -> None:
        puts.append(1)
        if len(puts) > 120:
            raise PenstockError(ErrorCode.THROTTLED, "too many writes")
        original(*arguments)

    puts: list[int] = []
    throttled = with_stores(instance, inline=Intercepted(instance.stores.inline, overwrite=overwrite))
    assert keep_items(throttled, budget_ms=FOR_EVER_MS).failures == 1
    assert (len(kept(instance)), note_of(instance, topic) is None) == (120, False)
    puts.clear()
    assert keep_items(throttled, budget_ms=FOR_EVER_MS).failures == 1
    assert len(kept(instance)) == 240
    puts.clear()
    assert keep_items(throttled, budget_ms=FOR_EVER_MS).raises_ended == 1
    assert len(kept(instance)) == 250


def test_expired_record_behind_one_that_had_not_keeps_the_note_and_hides_nothing(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    began_ms = clock.time_ms
    clock.time_ms = began_ms + 5 * 60_000  # of an appender whose clock is ahead
    send(instance, topic, "ahead")
    clock.time_ms = began_ms
    send(instance, topic, "old")
    clock.time_ms += WEEK_MS + 60_000
    alter_topic(instance, topic, None, {"retention_ms": UNLIMITED})
    clock.time_ms = began_ms + 16 * DAY_MS + 1_000  # nobody has walked for nine days
    expire(instance, topic, 1)
    for _ in range(2):
        done = keep_items(instance, budget_ms=FOR_EVER_MS)
        assert (done.failures, done.raises_ended, done.raises_late) == (1, 0, 1)
        assert head_of(instance, topic).log_start_offset == 0
    assert [value for _, value in values_of(ask(instance, topic))] == ["ahead"]
    truncate(instance, topic, {0: 2})
    assert keep_items(instance, budget_ms=FOR_EVER_MS).raises_ended == 1


def test_log_start_is_not_raised_when_the_walk_slept_behind_its_read_of_the_topic(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    send(instance, topic, "old")
    clock.time_ms += 10 * DAY_MS
    raised(instance, topic, clock)
    clock.time_ms += 7 * DAY_MS
    expire(instance, topic, 0)

    def heads(original: Any, keys: Any) -> Any:
        found = original(keys)
        looks.append(1)
        clock.time_ms += APPEND_MS_MAX if len(looks) > 1 else 0
        return found

    looks: list[int] = []
    sleeper = with_stores(instance, log=Intercepted(instance.stores.log, heads=heads))
    assert keep_items(sleeper, budget_ms=FOR_EVER_MS).failures == 1
    assert head_of(instance, topic).log_start_offset == 0
    assert keep_items(instance, budget_ms=FOR_EVER_MS).raises_ended == 1
    assert head_of(instance, topic).log_start_offset == 1


def test_missing_item_is_lost_when_it_was_young_and_passed_when_it_had_expired(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    send(instance, topic, "old")
    clock.time_ms += 10 * DAY_MS
    send(instance, topic, "young")
    send(instance, topic, "there")
    raised(instance, topic, clock)
    expire(instance, topic, 0, 1)
    done = keep_items(instance, budget_ms=FOR_EVER_MS)
    assert (done.kept, done.lost, done.raises_ended) == (1, 1, 1)
    assert head_of(instance, topic).log_start_offset == 1
    [(name, facts)] = [each for each in instance.telemetry.take()[1] if each[0] == "segment_lost"]
    assert (name, facts["base_offset"]) == ("segment_lost", 1)


def test_reader_finds_the_copy_when_the_item_goes_between_its_two_reads(
    instance: Instance, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(instance, topic, "a")
    [located] = refs_of(instance, key_of(instance, topic))
    segment_id = located.ref.segment_id
    store: Any = instance.stores.inline
    body = store.get_expiring([segment_id])[segment_id]
    batch_get = store._client.batch_get
    reads: list[Any] = []

    def slow_batch_get(*arguments: Any) -> Any:
        if reads:
            store.overwrite(segment_id, body, 0)
            remove_items(instance, [segment_id])
        reads.append(arguments)
        return batch_get(*arguments)

    monkeypatch.setattr(store._client, "batch_get", slow_batch_get)
    assert store.get_expiring([segment_id, located.ref.segment_id[:-1] + b"x"])[segment_id] == body
    assert len(reads) == 2


def test_raise_that_is_a_day_old_is_late(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, "a")
    alter_topic(instance, topic, None, {"retention_ms": UNLIMITED})
    clock.time_ms += RAISE_LATE_MS
    assert keep_items(instance, budget_ms=0) == KeepResult(is_finished=False)
    clock.time_ms += 1
    assert keep_items(instance, budget_ms=0) == KeepResult(raises_late=1, is_finished=False)


def test_copies_are_those_of_live_refs_alone(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, "cut")
    send(instance, topic, "live")
    truncate(instance, topic, {0: 1})
    raised(instance, topic, clock)
    keep_items(instance, budget_ms=FOR_EVER_MS)
    live = {each.ref.segment_id for each in refs_of(instance, key_of(instance, topic)) if each.base_offset >= 1}
    assert kept(instance).keys() == live


def restored(tables: Tables, clock: SteppedClock) -> tuple[Instance, Tables]:
    """A stage on a copy of the tables. `expire` of the copy is its TTL."""
    copied = Tables(clock.now_ms)
    for name, table in tables._tables.items():
        for stored in table.items():
            copied.put_item(TableName=name, Item=stored[0])
    return memory_instance(clock=clock, tables=copied), copied


@pytest.mark.parametrize("is_kept", [True, False])
def test_restore_keeps_items_before_the_ttl_of_its_table_is_on(clock: SteppedClock, is_kept: bool) -> None:
    tables = Tables(clock.now_ms)
    instance = memory_instance(clock=clock, tables=tables, small=InlineBounds.of_both(1_000))
    topic = new_topic(instance, partitions=2, retention_ms=WEEK_MS)
    for number in range(TAIL_ROLL_REFS + 4):
        send(instance, topic, str(number))
    send(instance, topic, "other", partition=1)
    before, _ = restored(tables, clock)  # the moment of the restore: no walk has come yet
    raised(instance, topic, clock)
    assert keep_items(instance, budget_ms=FOR_EVER_MS).kept == TAIL_ROLL_REFS + 5
    later, copied = restored(tables, clock)
    store: Any = later.stores.inline
    for segment_id in kept(later):  # a table from before the walk has the raise at most, and no copies
        store._client.call("delete_item", is_repeatable=True, TableName=store._table, Key=inline_key(segment_id))
    clock.time_ms += 20 * DAY_MS
    if is_kept:
        found = later.topic_cache.read_through(topic)
        assert keep_restored(later, found) == TAIL_ROLL_REFS + 5
        assert keep_restored(later, found) == 0, "a repeat puts nothing"
    copied.expire(1_000)
    assert (len(refs_of(later, key_of(later, topic))), len(kept(later)) > 0) == (TAIL_ROLL_REFS + 4, is_kept)
    if is_kept:
        assert len(read_all(later, topic)) == TAIL_ROLL_REFS + 4
    else:
        refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: read_all(later, topic))
    assert keep_restored(before, before.topic_cache.read_through(topic)) == 0, "its topic keeps them for a week"
