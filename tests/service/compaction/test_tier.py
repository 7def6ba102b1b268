"""Tiering: what has lain in the zones for hours moves to the archive, and its bytes leave the zones within a day."""

from collections.abc import Callable
from dataclasses import replace

from penstock_cdk.service.tasks import TASKS, tasks_of
from penstock_cdk.settings import STAGES
from penstock_core.ids import segment_time_ms
from penstock_core.limits import STALE_MS, TAIL_ROLL_REFS, TIERED_SWEEP_GRACE_MS, TIERING_MS_MAX
from penstock_core.log.ref import Ref, Tier
from penstock_service.adapters.memory.service import MemoryArchiveStore
from penstock_service.compaction.compact import compact
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.retention.sweep import sweep
from tests.service.compaction.written_topic import HOUR_MS, SMALL, pages_of, written, written_again
from tests.support.service import (
    Intercepted,
    SteppedClock,
    key_of,
    new_topic,
    read_all,
    refs_of,
    send,
    with_stores,
    zone_of,
)

FOR_EVER = 10**9
FEW = replace(SMALL, refs_min=1_000, zonal_ms_max=TIERING_MS_MAX)  # no run is worth merging for its refs
LARGE = replace(FEW, ref_bytes=1)  # every ref is large


def tiers_of(instance: Instance, topic: str) -> set[Tier]:
    return {ref.tier for ref in all_refs(instance, topic)}


def all_refs(instance: Instance, topic: str) -> list[Ref]:
    return [located.ref for located in refs_of(instance, key_of(instance, topic))]


def test_pages_are_moved_at_their_age_whether_their_refs_are_few_or_large(
    instance: Instance, clock: SteppedClock
) -> None:
    for name, settings in (("few", FEW), ("large", LARGE)):
        topic = written(instance, clock, name)
        records = read_all(instance, topic)
        early = tier(instance, budget_ms=FOR_EVER, settings=settings)
        assert (early.bytes_moved, early.bytes_stale) == (0, 0)
        assert tiers_of(instance, topic) == {Tier.ZONAL}
        clock.time_ms += TIERING_MS_MAX
        done = tier(instance, budget_ms=FOR_EVER, settings=settings)
        assert done.is_finished
        assert (done.bytes_moved > 0, done.bytes_stale, done.failures) == (True, 0, 0)
        assert tiers_of(instance, topic) == {Tier.ARCHIVE}
        assert read_all(instance, topic) == records
        again = tier(instance, budget_ms=FOR_EVER, settings=settings)
        assert again.bytes_moved == 0, "what lies in the archive is not written again"


def test_bytes_that_have_stayed_too_long_are_told_until_they_are_moved(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    clock.time_ms += STALE_MS
    archive = instance.stores.archive
    assert isinstance(archive, MemoryArchiveStore)
    archive.is_down = True
    stuck = tier(instance, budget_ms=FOR_EVER)
    assert (stuck.bytes_stale, stuck.failures, stuck.bytes_moved) == (
        sum(ref.length for ref in all_refs(instance, topic)), 1, 0,
    )  # fmt: skip
    archive.is_down = False
    clock.time_ms += HOUR_MS
    moved = tier(instance, budget_ms=FOR_EVER)
    assert moved.bytes_stale == stuck.bytes_stale
    assert moved.failures == 0
    assert tier(instance, budget_ms=FOR_EVER).bytes_stale == 0


def test_run_goes_on_where_the_one_before_ran_out_of_time(instance: Instance, clock: SteppedClock) -> None:
    topics = [written(instance, clock, name) for name in ("a", "b", "c")]
    clock.time_ms += TIERING_MS_MAX
    first = tier(instance, budget_ms=0.0)
    assert (first.partitions, first.is_finished) == (0, False)
    instance.stores.cursors.put("tier", "b#0")
    second = tier(instance, budget_ms=FOR_EVER)
    assert (second.partitions, second.is_finished) == (3, True), "the circle closes with the topics before"
    assert [tiers_of(instance, topic) for topic in topics] == [{Tier.ARCHIVE}] * 3
    assert instance.stores.cursors.get("tier") is None


def slow(instance: Instance, clock: SteppedClock, swap_ms: int) -> Instance:
    """An instance whose every swap takes so long."""

    def swap(original: Callable[..., bool], *arguments: object) -> bool:
        clock.time_ms += swap_ms
        return original(*arguments)

    return with_stores(instance, compaction=Intercepted(instance.stores.compaction, swap=swap))


def test_partition_with_much_to_move_keeps_no_other_waiting(instance: Instance, clock: SteppedClock) -> None:
    for _ in range(6):
        written_again(instance, clock, "huge")
    small = [written(instance, clock, f"small{number}") for number in range(4)]
    clock.time_ms += TIERING_MS_MAX
    one_page = replace(FEW, segment_bytes=1)  # each swap moves one page
    patient = slow(instance, clock, 1_000)
    done = tier(patient, budget_ms=26_000, settings=one_page, portion_ms=5_000)
    assert (done.is_finished, done.partitions) == (False, 5)
    assert [tiers_of(instance, topic) for topic in small] == [{Tier.ARCHIVE}] * 4
    assert tiers_of(instance, "huge") == {Tier.ARCHIVE, Tier.ZONAL}
    rest = tier(patient, budget_ms=FOR_EVER, settings=one_page, portion_ms=5_000)
    assert (rest.is_finished, tiers_of(instance, "huge")) == (True, {Tier.ARCHIVE})
    assert rest.portions > rest.partitions == 5


def test_next_run_begins_with_the_partition_whose_turn_it_was(instance: Instance, clock: SteppedClock) -> None:
    """Every partition has more to move than its portion, and no run has time for all."""
    for _ in range(3):
        for number in range(4):
            written_again(instance, clock, f"t{number}")
    clock.time_ms += TIERING_MS_MAX
    patient = slow(instance, clock, 1_000)
    one_page = replace(FEW, segment_bytes=1)
    for _ in range(2):
        assert tier(patient, budget_ms=4_000, settings=one_page, portion_ms=2_000).partitions == 2
    moved = [sum(ref.tier is Tier.ARCHIVE for ref in all_refs(instance, f"t{each}")) for each in range(4)]
    assert min(moved) == max(moved) > 0


def test_bytes_are_out_of_the_zones_within_a_day_though_a_run_of_each_job_fails(
    instance: Instance, clock: SteppedClock
) -> None:
    """The worst case of docs/adr/0030: the page has just not been old enough, and one run of each job is left out."""
    topic = written(instance, clock)
    records = read_all(instance, topic)
    put_ms = segment_time_ms(all_refs(instance, topic)[0].segment_id)
    put = {ref.segment_id for ref in all_refs(instance, topic)}
    assert len(put) > len(pages_of(instance, topic)) * TAIL_ROLL_REFS, "the tail has refs as well"
    clock.time_ms = put_ms + TIERING_MS_MAX - 1
    assert tier(instance, budget_ms=FOR_EVER, settings=FEW).bytes_moved == 0
    clock.time_ms += 2 * TASKS["tier"].rate.to_milliseconds()
    assert tier(instance, budget_ms=FOR_EVER, settings=FEW).bytes_moved > 0
    clock.time_ms += TIERED_SWEEP_GRACE_MS
    assert sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS).deleted == 0, (
        "readers may hold refs to what was moved"
    )
    clock.time_ms += 2 * tasks_of(STAGES["prod"])["sweep"].rate.to_milliseconds()
    assert clock.time_ms - put_ms <= 24 * HOUR_MS
    assert sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS).deleted == 3 * len(put)
    assert not zone_of(instance, 0).segments
    assert read_all(instance, topic) == records


def test_compaction_without_the_setting_leaves_few_and_large_refs(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    clock.time_ms += STALE_MS
    done = compact(instance, topic, 0, replace(SMALL, ref_bytes=1))
    assert (done.runs, tiers_of(instance, topic)) == (0, {Tier.ZONAL})
    assert done.bytes_stale > 0


def test_partition_with_a_single_ref_keeps_no_byte_in_the_zones(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, "quiet")
    new_topic(instance, "empty")
    send(instance, topic, "x")
    assert tier(instance, budget_ms=FOR_EVER).bytes_moved == 0
    clock.time_ms += STALE_MS
    done = tier(instance, budget_ms=FOR_EVER)
    assert done.bytes_moved == done.bytes_stale > 0
    assert tiers_of(instance, topic) == {Tier.ARCHIVE}
    assert tier(instance, budget_ms=FOR_EVER).bytes_stale == 0
    assert read_all(instance, topic) == [(0, "x")]
