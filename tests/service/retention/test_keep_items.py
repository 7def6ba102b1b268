"""A raise of the retention reaches the items of small appends that exist."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock_core.ids import SegmentId
from penstock_core.limits import RAISE_LATE_MS, RAISE_SETTLED_MS, SWEEP_GRACE_MS, UNLIMITED
from penstock_core.log.inline import InlineBounds
from penstock_core.log.ref import DAY_MS, Tier
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.storage.page_item import expiring_key
from penstock_service.instance.instance import Instance
from penstock_service.retention.keep_items import KeepResult, keep_items
from penstock_service.topics.alter_topic import alter_topic, truncate
from tests.service.retention.sweeping import run as run_sweep
from tests.service.retention.sweeping import settle
from tests.support.inline_items import inline_segments
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    head_of,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    refs_of,
    send,
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
    assert keep_items(slow, budget_ms=FOR_EVER_MS).kept == 250
    assert note_of(instance, topic) is None


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
