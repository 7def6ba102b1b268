"""Small appends as items that DynamoDB removes by their TTL: which take one, which rest on it, and what comes after."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.limits import APPEND_MS_MAX, SWEEP_GRACE_MS, TAIL_ROLL_REFS, TIERING_MS_MAX, UNLIMITED
from penstock_core.log.inline import InlineBounds
from penstock_core.log.ref import DAY_MS, Tier
from penstock_core.log.segment import segment_bytes
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.instance.caches import TTL_MS
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.produce import produce
from penstock_service.repair.scrub import scrub
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.share.batches.read_batches import WantedRecords, read_batches
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.topics.list_offsets import list_offsets
from tests.service.records.test_idempotence import numbered, tell
from tests.service.retention.sweeping import run as run_sweep
from tests.service.retention.test_keep_items import expire, remove_items
from tests.support.inline_items import inline_segments
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
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
    values_of,
    with_stores,
    zone_of,
)

WEEK_MS = 7 * DAY_MS
SMALL, LARGER, LARGE = "x" * 300, "x" * 500, "x" * 501
BOUNDS = InlineBounds(
    expiring_bytes=segment_bytes(1, len(batch(LARGER))), swept_bytes=segment_bytes(1, len(batch(SMALL)))
)
FOR_EVER_MS = 1e12


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    return with_stores(patient_instance(clock), small=BOUNDS)


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, retention_ms=WEEK_MS)


def kinds(instance: Instance, topic: str, partition: int = 0) -> list[tuple[Tier, int]]:
    return [(each.ref.tier, each.ref.kept_days) for each in refs_of(instance, key_of(instance, topic, partition))]


def test_append_takes_the_bound_of_its_kind(instance: Instance, topic: str) -> None:
    forever = new_topic(instance, "forever", retention_ms=UNLIMITED)
    for value in (SMALL, LARGER, LARGE):
        send(instance, topic, value)
        send(instance, forever, value)
    zonal = (Tier.ZONAL, 0)
    assert kinds(instance, topic) == [(Tier.EXPIRING, 16), (Tier.EXPIRING, 16), zonal]
    assert kinds(instance, forever) == [(Tier.INLINE, 0), zonal, zonal]
    assert [value for _, value in read_all(instance, topic)] == [SMALL, LARGER, LARGE]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"retention_ms": 21 * DAY_MS}, (Tier.EXPIRING, 30)),
        ({"retention_ms": 21 * DAY_MS + 1}, (Tier.INLINE, 0)),
        ({"cleanup_policy": "compact"}, (Tier.INLINE, 0)),
        ({"cleanup_policy": "compact,delete", "retention_ms": DAY_MS}, (Tier.EXPIRING, 10)),
        ({"retention_ms": DAY_MS, "retention_bytes": 1 << 20}, (Tier.EXPIRING, 10)),
    ],
)
def test_ttl_is_for_topics_that_retention_empties_within_three_weeks(
    instance: Instance, config: dict[str, Any], kind: tuple[Tier, int]
) -> None:
    topic = new_topic(instance, **config)
    send(instance, topic, "x")
    assert kinds(instance, topic) == [kind]


def test_request_takes_the_longest_ttl_and_none_if_one_of_its_topics_takes_none(instance: Instance) -> None:
    topics = [
        new_topic(instance, f"t{number}", retention_ms=each)
        for number, each in enumerate((DAY_MS, 2 * WEEK_MS, UNLIMITED))
    ]
    produce(instance, [entry(each, 0, batch("a")) for each in topics[:2]], Acks.QUORUM).all_ok()
    produce(instance, [entry(each, 0, batch("a")) for each in topics], Acks.QUORUM).all_ok()
    assert kinds(instance, topics[0]) == kinds(instance, topics[1]) == [(Tier.EXPIRING, 23), (Tier.INLINE, 0)]
    assert kinds(instance, topics[2]) == [(Tier.INLINE, 0)]


def test_request_between_the_bounds_goes_into_the_zones_when_one_topic_takes_no_ttl(
    instance: Instance, topic: str
) -> None:
    forever = new_topic(instance, "forever", retention_ms=UNLIMITED)
    entries = [entry(topic, 0, batch("x" * 150)), entry(forever, 0, batch("x" * 150))]
    produce(instance, entries, Acks.QUORUM).all_ok()
    assert kinds(instance, topic) == kinds(instance, forever) == [(Tier.ZONAL, 0)]
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    assert send(instance, topic, LARGER) == appended(1, 2)
    with pytest.raises(PenstockError) as refused:
        send(instance, forever, LARGER)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_ZONES


@pytest.mark.parametrize("sleeps_ms", [APPEND_MS_MAX - TTL_MS + 1_000, APPEND_MS_MAX - TTL_MS - 1_000])
def test_append_is_refused_when_its_window_since_the_read_of_the_topic_is_over(
    instance: Instance, topic: str, clock: SteppedClock, sleeps_ms: int
) -> None:
    send(instance, topic, "first")  # the instance remembers the topic
    clock.time_ms += TTL_MS - 1

    def put_expiring(original: Any, *arguments: Any) -> None:
        original(*arguments)
        clock.time_ms += sleeps_ms  # the function is frozen, and the retention is raised meanwhile

    frozen = with_stores(instance, inline=Intercepted(instance.stores.inline, put_expiring=put_expiring))
    if sleeps_ms + TTL_MS - 1 > APPEND_MS_MAX:
        with pytest.raises(PenstockError, match="have passed since the request began"):
            send(frozen, topic, "late")
        assert head_of(instance, topic).next_offset == 1
    else:
        assert send(frozen, topic, "in time") == appended(1, 2)


def test_append_to_two_topics_goes_by_the_older_read_of_them(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    other = new_topic(instance, "other", retention_ms=WEEK_MS)
    send(instance, topic, "first")
    clock.time_ms += TTL_MS - 1
    send(instance, other, "first")

    def put_expiring(original: Any, *arguments: Any) -> None:
        original(*arguments)
        clock.time_ms += APPEND_MS_MAX - TTL_MS + 1_000

    frozen = with_stores(instance, inline=Intercepted(instance.stores.inline, put_expiring=put_expiring))
    results = produce(frozen, [entry(other, 0, batch("late")), entry(topic, 0, batch("late"))], Acks.QUORUM)
    assert [each.code for each in results.errors] == [ErrorCode.STORAGE_UNAVAILABLE] * 2
    assert head_of(instance, topic).next_offset == head_of(instance, other).next_offset == 1


def test_run_by_age_leaves_items_that_expire_and_another_merges_them(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(5 * TAIL_ROLL_REFS // 2):
        send(instance, topic, str(number))
    records = read_all(instance, topic)
    clock.time_ms += TIERING_MS_MAX
    done = compact(instance, topic, 0, CompactionSettings(zonal_ms_max=TIERING_MS_MAX, refs_min=2))
    assert (done.runs, done.bytes_stale) == (0, 0)
    assert set(kinds(instance, topic)) == {(Tier.EXPIRING, 16)}
    assert compact(instance, topic, 0, CompactionSettings(refs_min=2)).runs == 1
    assert {tier for tier, _ in kinds(instance, topic)} == {Tier.ARCHIVE, Tier.EXPIRING}
    assert read_all(instance, topic) == records


def test_old_zonal_neighbours_move_without_the_items(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, SMALL)
    send(instance, topic, LARGE)
    clock.time_ms += TIERING_MS_MAX
    compact(instance, topic, 0, CompactionSettings(zonal_ms_max=TIERING_MS_MAX))
    assert kinds(instance, topic) == [(Tier.EXPIRING, 16), (Tier.ARCHIVE, 0)]
    assert [value for _, value in read_all(instance, topic)] == [SMALL, LARGE]


def test_sweep_never_meets_an_expiring_item(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, SMALL)
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    run_sweep(instance)
    assert inline_segments(instance.stores.inline) == {}
    assert read_all(instance, topic) == [(0, SMALL)]


def test_expired_item_is_a_gap_for_readers_movers_and_scrub(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(3 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    clock.time_ms += 16 * DAY_MS + 1_000  # retention has stood still for nine days
    expire(instance, topic, *range(5))
    fresh = another_instance(instance)
    assert [offset for offset, _ in values_of(ask(fresh, topic))] == list(range(5, 3 * TAIL_ROLL_REFS))
    [found] = list_offsets(fresh, topic, 0, 0).all_ok()
    assert found.offset == 5
    assert scrub(fresh, budget_ms=FOR_EVER_MS, budget_bytes=1 << 30).failures == 0
    assert compact(fresh, topic, 0, CompactionSettings(refs_min=2)).failures == 0
    assert [offset for offset, _ in values_of(ask(fresh, topic))] == list(range(5, 3 * TAIL_ROLL_REFS))
    assert retain(fresh, budget_ms=FOR_EVER_MS).failures == 0
    assert head_of(fresh, topic).log_start_offset == 3 * TAIL_ROLL_REFS


def without_a_note(instance: Instance, topic: str) -> None:
    """Raises the retention as a release does that knows no notes."""
    old = instance.topic_cache.read_through(topic)
    instance.stores.topics.replace(old, replace(old, config=replace(old.config, retention_ms=UNLIMITED)))
    instance.topic_cache.forget(topic)


def test_expired_item_of_records_that_the_topic_keeps_is_lost_for_every_reader_and_mover(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(5 * TAIL_ROLL_REFS // 2):
        send(instance, topic, str(number))
    clock.time_ms += 2 * DAY_MS
    without_a_note(instance, topic)
    clock.time_ms += 20 * DAY_MS
    expire(instance, topic, 0)
    fresh = another_instance(instance)
    for look in (
        lambda: ask(fresh, topic),
        lambda: list_offsets(fresh, topic, 0, 0).all_ok(),
        lambda: fetch(fresh, [filtered(topic)], max_bytes=1 << 20, min_bytes=0, wait_ms=0).all_ok(),
    ):
        with pytest.raises(PenstockError) as caught:
            look()
        assert (caught.value.code, caught.value.facts.get("is_missing")) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    key, head = key_of(fresh, topic), head_of(fresh, topic)
    [shared] = read_batches(fresh, [WantedRecords(key=key, head=head, ranges=((0, 4),))])
    assert (shared.lost, [each.base_offset for each in shared.batches]) == (((0, 1),), [1, 2, 3])
    done = compact(fresh, topic, 0, CompactionSettings(refs_min=2))
    assert (done.runs, done.failures) == (0, 1)
    assert scrub(fresh, budget_ms=FOR_EVER_MS, budget_bytes=1 << 30).failures == 1
    assert [name for name, _ in fresh.telemetry.take()[1]].count("segment_lost") == 1


def filtered(topic: str) -> FetchEntry:
    wanted = parse_filter({"kind": [{"exists": False}]})
    return FetchEntry(topic=topic, partition=0, offset=0, max_bytes=1 << 20, filter=wanted)


def test_reader_that_slept_while_a_merge_moved_its_refs_skips_nothing(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(5 * TAIL_ROLL_REFS // 2):
        send(instance, topic, str(number))
    records = read_all(instance, topic)
    clock.time_ms += 8 * DAY_MS  # by its retention, each record has expired; retention has stood still

    def get_expiring(original: Any, ids: Any) -> Any:
        if not slept:
            slept.append(1)
            compact(another_instance(instance), topic, 0, CompactionSettings(refs_min=2))
            clock.time_ms += 10 * DAY_MS
            remove_items(instance, ids)
        return original(ids)

    slept: list[int] = []
    sleeper = another_instance(instance, inline=Intercepted(instance.stores.inline, get_expiring=get_expiring))
    with pytest.raises(PenstockError, match="was merged or removed since the index was read") as caught:
        ask(sleeper, topic)
    assert "is_missing" not in caught.value.facts
    assert values_of(ask(sleeper, topic)) == records[: 2 * TAIL_ROLL_REFS]  # then the tail's refs are gaps


def test_scrub_lists_the_topics_once_when_many_items_have_expired(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    clock.time_ms += 17 * DAY_MS
    expire(instance, topic, *range(2 * TAIL_ROLL_REFS))
    counts: Counter[str] = Counter()
    done = scrub(counted_instance(instance, counts), budget_ms=FOR_EVER_MS, budget_bytes=1 << 30)
    assert (done.refs, done.failures, counts["topics.list"]) == (2 * TAIL_ROLL_REFS, 0, 2)


def test_young_item_that_is_missing_is_lost_and_rings(instance: Instance, topic: str, clock: SteppedClock) -> None:
    send(instance, topic, "a")
    send(instance, topic, "b")
    clock.time_ms += 6 * DAY_MS
    expire(instance, topic, 0)
    fresh = another_instance(instance)
    with pytest.raises(PenstockError) as caught:
        read_all(fresh, topic)
    assert (caught.value.code, caught.value.facts.get("is_missing")) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    assert scrub(fresh, budget_ms=FOR_EVER_MS, budget_bytes=1 << 30).failures == 1
    assert [name for name, _ in fresh.telemetry.take()[1]].count("segment_lost") == 1


def test_scrub_rings_for_an_item_that_a_raise_should_have_kept(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    send(instance, topic, "a")
    alter_topic(instance, topic, None, {"retention_ms": UNLIMITED})
    clock.time_ms += 17 * DAY_MS  # nobody has walked
    expire(instance, topic, 0)
    assert scrub(another_instance(instance), budget_ms=FOR_EVER_MS, budget_bytes=1 << 30).failures == 1
    assert keep_items(instance, budget_ms=FOR_EVER_MS).lost == 1


def test_repeat_of_an_append_whose_item_has_expired_is_known_as_one(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    tell(instance, topic, numbered(0, "a", "b"))
    tell(instance, topic, numbered(2, "c", "d"))
    clock.time_ms += 16 * DAY_MS + 1_000
    expire(instance, topic, 0)
    with pytest.raises(PenstockError) as caught:
        tell(instance, topic, numbered(0, "other", "b"))
    assert caught.value.code is ErrorCode.DUPLICATE_SEQUENCE
