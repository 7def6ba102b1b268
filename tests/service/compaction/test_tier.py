"""Tiering: what has lain in the zones for half a day moves to the archive, and what stays for a day is told."""

from dataclasses import replace

from penstock_core.limits import STALE_MS, TIERING_MS_MAX
from penstock_core.log.ref import Tier
from penstock_service.adapters.memory.segments import MemoryArchiveStore
from penstock_service.compaction.compact import compact
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from tests.service.compaction.written_topic import HOUR_MS, SMALL, pages_of, written
from tests.support.service import SteppedClock, new_topic, read_all, send

FOR_EVER = 10**9
FEW = replace(SMALL, refs_min=1_000, zonal_ms_max=TIERING_MS_MAX)  # no run is worth merging for its refs
LARGE = replace(FEW, ref_bytes=1)  # every ref is large


def tiers_of(instance: Instance, topic: str) -> set[Tier]:
    return {ref.tier for page in pages_of(instance, topic) for ref in page.refs}


def test_pages_are_moved_at_half_a_day_whether_their_refs_are_few_or_large(
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


def test_bytes_that_have_stayed_for_a_day_are_told_until_they_are_moved(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    clock.time_ms += STALE_MS
    archive = instance.stores.archive
    assert isinstance(archive, MemoryArchiveStore)
    archive.is_down = True
    stuck = tier(instance, budget_ms=FOR_EVER)
    assert (stuck.bytes_stale, stuck.failures, stuck.bytes_moved) == (
        sum(ref.length for page in pages_of(instance, topic) for ref in page.refs), 1, 0,
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
    assert (second.partitions, second.is_finished) == (2, True)
    assert [tiers_of(instance, topic) for topic in topics] == [{Tier.ZONAL}, {Tier.ARCHIVE}, {Tier.ARCHIVE}]
    assert tier(instance, budget_ms=FOR_EVER).partitions == 3


def test_compaction_without_the_setting_leaves_few_and_large_refs(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    clock.time_ms += STALE_MS
    done = compact(instance, topic, 0, replace(SMALL, ref_bytes=1))
    assert (done.runs, tiers_of(instance, topic)) == (0, {Tier.ZONAL})
    assert done.bytes_stale > 0


def test_topic_without_records_is_passed_over(instance: Instance) -> None:
    send(instance, new_topic(instance, "tail"), "x")
    assert tier(instance, budget_ms=FOR_EVER).bytes_moved == 0
