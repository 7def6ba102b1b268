"""A merge and a cleaning that end at every single storage call, in four ways.

The call is refused, the run is killed before or after its effect, or its answer is lost. A reader then finds the
model's records, and the next run ends where an undisturbed one does.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from itertools import count

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import COMPACTION_LEASE_MS, TAIL_ROLL_REFS
from penstock_core.log.ref import Tier
from penstock_core.records.record_batch import Compression
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from penstock_service.retention.sweep import sweep
from tests.service.compaction.test_archive import archive_of
from tests.support.compacted_log import DELETE_RETENTION_MS, FOR_EVER, HOUR_MS, CompactedLog, Found
from tests.support.inline_items import inline_segments
from tests.support.interleaving import catch_kill, watched
from tests.support.service import LOST_ANSWER, UNAVAILABLE, Killed, key_of, refs_of, zone_of

SETTINGS = CompactionSettings(refs_min=4, ref_bytes=500, segment_bytes=2_000, dirty_share_min=0.0)
COMPRESSIONS = [*Compression]
State = tuple[tuple[int, int, int, int, Tier, bytes], ...]


class End(StrEnum):
    """The ways in which the run ends at a call."""

    REFUSED = "the call fails before its effect"
    KILLED_BEFORE = "killed before its effect"
    KILLED_AFTER = "killed after its effect"
    LOST_ANSWER = "the call has its effect and fails"


def merged_log() -> CompactedLog:
    """Three pages, the first partly below the log start, which leaves it alone: the others are merged, a swap each."""
    log = CompactedLog(policy="delete", settings=SETTINGS)
    for number in range(3 * TAIL_ROLL_REFS + 2):
        append(log, (b"k%d" % number, b"%d" % number * 20), *([(None, None)] if number % 3 == 0 else []))
    log.truncate(3)
    log.clock.time_ms += 2 * HOUR_MS
    return log


def cleaned_log() -> CompactedLog:
    """A page of the archive that was cleaned a day ago, with a tombstone that may go now.

    Behind it are two pages with a tombstone that may not go yet. Of their batches, some lose a part of their records,
    and some lose all.
    """
    log = CompactedLog(policy="compact", settings=SETTINGS)
    append(log, (b"gone", b"x"), (None, b"stays"))
    append(log, (b"gone", None), (b"later", b"x"))
    for number in range(TAIL_ROLL_REFS - 2):
        append(log, (b"k%d" % (number % 7), b"%d" % number * 20))
    log.clock.time_ms += 2 * HOUR_MS
    assert log.compact().runs == 1
    append(log, (b"later", None))
    for number in range(2 * TAIL_ROLL_REFS):
        append(log, (b"k%d" % (number % 5), b"%d" % number * 20), (b"own %d" % number, b"x" * 20))
    log.clock.time_ms += DELETE_RETENTION_MS
    log.truncate(1)
    return log


def append(log: CompactedLog, *records: tuple[bytes | None, bytes | None]) -> None:
    log.append([(key, value, ()) for key, value in records], COMPRESSIONS[len(log.appended) % len(COMPRESSIONS)])


def state_of(log: CompactedLog) -> State:
    """Every ref and its bytes, as readers meet them, without the names of segments."""
    stores = {Tier.ZONAL: zone_of(log.instance, 0), Tier.ARCHIVE: archive_of(log.instance)}
    refs = [(each.base_offset, each.ref) for each in refs_of(log.instance, key_of(log.instance, log.topic))]
    return tuple(
        (
            base_offset,
            ref.offset_span,
            ref.record_count,
            ref.max_timestamp_ms,
            ref.tier,
            stores[ref.tier].segments[ref.segment_id][ref.position : ref.position + ref.length],
        )
        for base_offset, ref in refs
    )


def check_only_named_objects_are_left(log: CompactedLog) -> None:
    """By the next sweep, a day later."""
    log.clock.time_ms += 25 * HOUR_MS
    sweep(log.instance, budget_ms=FOR_EVER)
    refs = [each.ref for each in refs_of(log.instance, key_of(log.instance, log.topic))]
    stores_of = log.instance.stores
    for tier, stores in {Tier.ZONAL: stores_of.zones, Tier.ARCHIVE: [stores_of.archive]}.items():
        named = {ref.segment_id for ref in refs if ref.tier is tier}
        assert all(set(store.segments) == named for store in stores)  # type: ignore[attr-defined]  # in memory
    assert set(inline_segments(stores_of.inline)) == {ref.segment_id for ref in refs if ref.tier is Tier.INLINE}


@pytest.mark.slow
@pytest.mark.parametrize("end", End)
@pytest.mark.parametrize("make", [merged_log, cleaned_log])
def test_run_ending_at_at_any_call_leaves_every_reader_its_records_and_the_next_finishes(
    make: Callable[[], CompactedLog], end: End
) -> None:
    undisturbed = make()
    read: dict[State, list[Found]] = {}  # the same refs and bytes are served alike, so one look at each state is enough

    def find(log: CompactedLog) -> list[Found]:
        state = state_of(log)
        if state not in read:
            read[state] = log.check_from_every_offset()
        return read[state]

    assert undisturbed.compact().runs >= 2
    final = find(undisturbed)
    calls = 0
    for place in count():
        log, was_reached = make(), list[bool]()
        with catch_kill(), suppress(PenstockError):
            compact(ending_at(log.instance, place, end, was_reached), log.topic, 0, SETTINGS)
        if not was_reached:
            break
        calls += 1
        assert set(final) <= set(find(log))
        log.clock.time_ms += COMPACTION_LEASE_MS + 1
        assert log.compact().is_finished
        assert find(log) == final
        assert state_of(log) == state_of(undisturbed)
        if end in (End.KILLED_AFTER, End.LOST_ANSWER):  # before a call lies what lies after the one before it
            check_only_named_objects_are_left(log)
            assert find(log) == final
        assert log.compact().runs == 0
    assert len(read) > 2
    assert calls > 40


def ending_at(instance: Instance, place: int, end: End, was_reached: list[bool]) -> Instance:
    """An instance whose storage call number `place` ends so; `was_reached` tells that it came to it."""

    def act(number: int) -> None:
        if number == place:
            was_reached.append(True)
            raise {End.REFUSED: UNAVAILABLE, End.LOST_ANSWER: LOST_ANSWER}.get(end) or Killed

    if end in (End.REFUSED, End.KILLED_BEFORE):
        return watched(instance, act)
    return watched(instance, lambda _: None, act)
