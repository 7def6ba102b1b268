"""Small appends into the log table: what goes there, what it needs, and what happens to it afterwards."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import SWEEP_GRACE_MS, TAIL_ROLL_REFS, TIERING_MS_MAX, UNLIMITED
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.log.ref import Tier
from penstock_core.log.segment import check_segment, segment_bytes
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.index.reader import record_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.repair.scrub import scrub
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.service.records.test_idempotence import numbered, tell
from tests.service.retention.sweeping import DAY_MS, settle
from tests.service.retention.sweeping import run as run_sweep
from tests.support.inline_items import inline_segments
from tests.support.interleaving import catch_kill, killed_at
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
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
    with_stores,
    zone_of,
)

BYTES_MAX = segment_bytes(1, len(batch("x" * 300)))
SMALL, LARGE = "x" * 300, "x" * 301


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    return with_stores(patient_instance(clock), small=InlineBounds(swept_bytes=BYTES_MAX))


def items(instance: Instance) -> Mapping[SegmentId, bytes]:
    return inline_segments(instance.stores.inline)


def tiers(instance: Instance, topic: str, partition: int = 0) -> list[Tier]:
    return [each.ref.tier for each in refs_of(instance, key_of(instance, topic, partition))]


def in_zones(instance: Instance) -> int:
    return sum(len(zone_of(instance, index).segments) for index in range(3))


def test_append_of_the_bound_goes_into_the_log_table_and_one_byte_more_into_the_zones(instance: Instance) -> None:
    topic = new_topic(instance)
    assert send(instance, topic, SMALL) == appended(0, 1)
    assert (tiers(instance, topic), in_zones(instance)) == ([Tier.INLINE], 0)
    assert send(instance, topic, LARGE) == appended(1, 2)
    assert (tiers(instance, topic), in_zones(instance)) == ([Tier.INLINE, Tier.ZONAL], 3)
    assert read_all(instance, topic) == [(0, SMALL), (1, LARGE)]
    [body] = items(instance).values()
    assert len(body) == BYTES_MAX
    assert len(check_segment(body)) == 1


def test_nothing_goes_into_the_log_table_unless_the_stage_says_so(clock: SteppedClock) -> None:
    instance = patient_instance(clock)
    topic = new_topic(instance)
    send(instance, topic, "x")
    assert (tiers(instance, topic), items(instance)) == ([Tier.ZONAL], {})


def test_small_append_costs_one_put_one_update_and_no_zone(instance: Instance) -> None:
    topic = new_topic(instance)
    counts: Counter[str] = Counter()
    other = counted_instance(instance, counts)
    other.topic_cache.get_partition(topic, 0)
    counts.clear()
    send(other, topic, SMALL)
    assert counts == {"inline.put": 1, "log.append": 1}


def test_fetch_reads_many_small_appends_in_one_call(instance: Instance) -> None:
    topic = new_topic(instance)
    for number in range(TAIL_ROLL_REFS - 1):
        send(instance, topic, str(number))
    counts: Counter[str] = Counter()
    assert len(read_all(counted_instance(instance, counts), topic)) == TAIL_ROLL_REFS - 1
    assert (counts["inline.get_wholes"], counts["inline.get"], counts["zone.get"]) == (1, 0, 0)


def test_one_item_holds_the_batches_of_all_partitions_of_a_request(instance: Instance) -> None:
    topic = new_topic(instance, partitions=3)
    done = produce(instance, [entry(topic, partition, batch(f"{partition}")) for partition in range(3)], Acks.QUORUM)
    assert done.all_ok() == [appended(0, 1)] * 3
    assert [tiers(instance, topic, partition) for partition in range(3)] == [[Tier.INLINE]] * 3
    assert len(items(instance)) == 1
    assert [read_all(instance, topic, partition) for partition in range(3)] == [[(0, "0")], [(0, "1")], [(0, "2")]]


@pytest.mark.parametrize("acks", list(Acks))
def test_small_append_needs_no_zone_and_owes_none(instance: Instance, acks: Acks) -> None:
    topic = new_topic(instance, min_insync_zones=3)
    for index in range(3):
        zone_of(instance, index).is_down = True
    noted: list[int] = []

    def append(original: Any, *arguments: Any) -> Any:
        noted.append(arguments[2])
        return original(*arguments)

    watched = with_stores(instance, log=Intercepted(instance.stores.log, append=append))
    assert send(watched, topic, SMALL, acks=acks) == appended(0, 1)
    assert (noted, read_all(instance, topic)) == ([0], [(0, SMALL)])
    with pytest.raises(PenstockError) as refused:
        send(instance, topic, LARGE, acks=acks)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_ZONES


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST_ANSWER])
def test_nothing_was_appended_when_the_put_of_the_item_fails(instance: Instance, error: PenstockError) -> None:
    topic = new_topic(instance)

    def put(original: Any, *arguments: Any) -> None:
        if error.maybe_applied:
            original(*arguments)
        raise error

    failing = with_stores(instance, inline=Intercepted(instance.stores.inline, put=put))
    with pytest.raises(PenstockError) as caught:
        send(failing, topic, SMALL)
    assert (caught.value.code, caught.value.maybe_applied) == (error.code, False)
    assert "nothing was appended" in caught.value.message
    assert head_of(instance, topic).next_offset == 0


@pytest.mark.parametrize("method", ["put", "put_expiring"])
def test_small_append_goes_into_the_zones_when_the_table_throttles_its_item(clock: SteppedClock, method: str) -> None:
    bounds = InlineBounds.of_both(BYTES_MAX) if method == "put_expiring" else InlineBounds(swept_bytes=BYTES_MAX)
    instance = with_stores(patient_instance(clock), small=bounds)
    topic = new_topic(instance)

    def put(original: Any, *arguments: Any) -> None:
        raise PenstockError(ErrorCode.THROTTLED, "too much")

    throttled = with_stores(instance, inline=Intercepted(instance.stores.inline, **{method: put}))
    assert send(throttled, topic, SMALL) == appended(0, 1)
    assert (tiers(instance, topic), in_zones(instance)) == ([Tier.ZONAL], 3)
    assert throttled.telemetry.take()[0]["small_appends_throttled"] == 1


@pytest.mark.parametrize("is_applied", [True, False])
def test_crash_at_any_call_loses_nothing_that_was_named_and_leaves_no_garbage(
    clock: SteppedClock, *, is_applied: bool
) -> None:
    for place in range(4):
        instance = with_stores(patient_instance(clock), small=InlineBounds(swept_bytes=BYTES_MAX))
        topic = new_topic(instance, retention_ms=UNLIMITED)
        send(instance, topic, "before")
        with catch_kill():
            send(killed_at(instance, place, is_applied=is_applied), topic, SMALL)
        other = another_instance(instance)
        records = read_all(other, topic)
        assert records in ([(0, "before")], [(0, "before"), (1, SMALL)])
        clock.time_ms += SWEEP_GRACE_MS + 1
        run_sweep(other)
        assert len(items(instance)) == len(records)
        assert read_all(other, topic) == records


def test_repeat_is_known_by_its_bytes_when_the_first_append_is_an_item(instance: Instance) -> None:
    topic = new_topic(instance)
    for number in range(3):
        assert tell(instance, topic, numbered(2 * number, f"{number}", "x")) == appended(2 * number, 2 * number + 2)
    assert tell(instance, topic, numbered(2, "1", "x")) == appended(2, 4)
    with pytest.raises(PenstockError) as caught:
        tell(instance, topic, numbered(2, "other", "x"))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_tail_of_items_moves_to_the_archive_and_the_sweep_removes_them(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=UNLIMITED)
    for number in range(5):
        send(instance, topic, str(number))
    send(instance, topic, LARGE)
    records = read_all(instance, topic)
    clock.time_ms += TIERING_MS_MAX
    done = compact(instance, topic, 0, CompactionSettings(zonal_ms_max=TIERING_MS_MAX))
    assert (done.runs, done.refs_after) == (1, 6)
    assert tiers(instance, topic) == [Tier.ARCHIVE] * 6
    assert len(items(instance)) == 5, "readers may hold refs to them"
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    run_sweep(instance)
    assert items(instance) == {}
    assert read_all(instance, topic) == records


def test_pages_of_items_are_merged_into_one_segment(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=UNLIMITED)
    for number in range(3 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    records = read_all(instance, topic)
    clock.time_ms += TIERING_MS_MAX
    compact(instance, topic, 0, CompactionSettings(zonal_ms_max=TIERING_MS_MAX))
    assert set(tiers(instance, topic)) == {Tier.ARCHIVE}
    assert read_all(instance, topic) == records


def test_sweep_spares_items_that_refs_name_and_those_that_are_young(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, retention_ms=UNLIMITED)
    send(instance, topic, "kept")
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    send(instance, topic, "young")
    assert run_sweep(instance).deleted == 0
    assert read_all(instance, topic) == [(0, "kept"), (1, "young")]


def test_items_go_with_their_records_and_with_their_topic(instance: Instance, clock: SteppedClock) -> None:
    cut, gone = new_topic(instance, retention_ms=UNLIMITED), new_topic(instance, "gone")
    for topic in (cut, gone):
        send(instance, topic, "a")
        send(instance, topic, "b")
    truncate(instance, cut, {0: 1})
    delete_topic(instance, gone)
    settle(instance, clock)
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    run_sweep(instance)
    assert len(items(instance)) == 1
    assert read_all(instance, cut, offset=1) == [(1, "b")]


def test_items_are_read_moved_and_swept_when_the_stage_has_stopped_putting_them(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance, retention_ms=UNLIMITED)
    send(instance, topic, "inline")
    off = with_stores(another_instance(instance), small=NO_ITEMS)
    send(off, topic, "zonal")
    assert read_all(off, topic) == [(0, "inline"), (1, "zonal")]
    clock.time_ms += TIERING_MS_MAX
    compact(off, topic, 0, CompactionSettings(zonal_ms_max=TIERING_MS_MAX))
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    run_sweep(off)
    assert items(instance) == {}
    assert read_all(off, topic) == [(0, "inline"), (1, "zonal")]


def test_scrub_reads_items_and_tells_of_one_that_is_gone(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    send(instance, topic, "b")
    assert scrub(another_instance(instance), budget_ms=1e12, budget_bytes=2**40).failures == 0
    instance.stores.inline.delete([*items(instance)][:1])
    assert scrub(another_instance(instance), budget_ms=1e12, budget_bytes=2**40).failures == 1


def test_read_says_what_is_missing_or_bad_when_an_item_is_harmed(instance: Instance) -> None:
    topic = new_topic(instance)
    for value in ("a", "b"):
        send(instance, topic, value)
    first, second = (each.ref.segment_id for each in refs_of(instance, key_of(instance, topic)))
    body = items(instance)[second]
    instance.stores.inline.overwrite(second, bytes([*body[:66], body[66] ^ 1, *body[67:]]), 0)
    with pytest.raises(PenstockError) as spoilt:
        read_all(instance, topic, offset=1)
    assert spoilt.value.code is ErrorCode.CORRUPT_SEGMENT
    instance.stores.inline.delete([first])
    with pytest.raises(PenstockError) as missing:
        read_all(instance, topic)
    assert (missing.value.code, missing.value.facts["is_missing"]) == (ErrorCode.STORAGE_UNAVAILABLE, True)


def test_age_of_an_inline_record_is_the_time_since_its_append(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    clock.time_ms += 1_234
    head = head_of(instance, topic)
    assert record_age_ms(instance, key_of(instance, topic), head, head.tail_base) == 1_234
