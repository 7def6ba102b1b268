"""What the keeper does each minute: let zones back that answer again, and catch up those that were let back.

A pass goes over the whole index, topic by topic, and copies every segment that the zone does not hold, whatever the
refs' bits say of it: its bucket may have been emptied, or made anew, while it was away. It goes on from a stored
cursor, so it may take many runs; the keeper may die anywhere, and two may run at once: what they do to copies and refs
may be done twice, and of two that save, one is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import or_
from typing import NamedTuple

from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_broker.lost_segments import report_lost
from penstock_broker.move_zone import change_zone, move_zone
from penstock_broker.ports import SegmentStore
from penstock_broker.walk_index import refs_of
from penstock_core.catch_up import (
    CatchUpPass,
    Cursor,
    Progress,
    advance,
    begin_pass,
    zones_catching_up,
    zones_caught_up,
)
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id, segment_time_ms
from penstock_core.keys import PartitionKey
from penstock_core.ref import LocatedRef, Tier
from penstock_core.repair import NamedRef
from penstock_core.segment import build_segment
from penstock_core.zone_state import FUNCTION_MS_MAX, Mover, ZoneStatus

_PORTION_REFS = 128  # between two saves of the cursor
_SIDE_BY_SIDE = 8  # segments copied at once: each may ask the pool of threads for two more calls
_REJOINED = "a whole pass over the index left nothing missing"
_PROBE = build_segment([])  # a segment like any other, which no ref will ever name: the sweep removes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one run did: whom it let back, whom it brought in sync, what it copied and in how long; `behind` are the
    zones that are not in sync at its end, as far as it knows."""

    let_back: Sequence[str]
    in_sync: Sequence[str]
    behind: Sequence[str]
    has_ended_pass: bool
    progress: Progress
    duration_ms: float


class _Wanted(NamedTuple):
    """A ref, and where a pass goes on behind it."""

    key: PartitionKey
    located: LocatedRef
    behind: Cursor


def keep_zones(broker: Broker, budget_ms: float) -> Kept:
    """One run: one pass at most, left off between two portions when `budget_ms` are over.

    With every zone in sync it is one read; a zone that is out costs a put and a get, and a pass what `HeldSegments` and
    `ensure_copies` cost. Raises what storage raises; a run that meets another keeper's ends without an error.
    """
    started_ms = broker.clock.monotonic_ms()
    let_back = _let_back(broker)
    in_sync: list[str] = []
    progress, has_ended = Progress(), False
    try:
        current = _pass_under_way(broker)
        while current is not None and not has_ended and broker.clock.monotonic_ms() - started_ms < budget_ms:
            portion = list(islice(_refs_from(broker, current), _PORTION_REFS))
            has_ended = not portion
            if has_ended:
                in_sync = _end(broker, current)
            else:
                done = _catch_up(broker, current, portion)
                progress = progress.plus(done)
                current = _save(broker, current, advance(current, portion[-1].behind, done))
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
        broker.events.count("keepers_met")
    for name in ("refs", "segments", "bytes", "failures", "lost"):
        broker.events.count(f"catch_up_{name}", getattr(progress, name))
    return Kept(
        let_back=let_back,
        in_sync=in_sync,
        behind=_behind(broker),
        has_ended_pass=has_ended,
        progress=progress,
        duration_ms=broker.clock.monotonic_ms() - started_ms,
    )


def _behind(broker: Broker) -> list[str]:
    in_sync = broker.zone_directory.remembered.in_sync(broker.zone_names)
    return [zone for index, zone in enumerate(broker.zone_names) if not in_sync >> index & 1]


def _let_back(broker: Broker) -> list[str]:
    """Moves the zones that are out of sync and answer a probe to catching_up."""
    states = broker.zone_directory.look_up()
    back: list[str] = []
    for store in broker.zones:
        if states.of(store.zone).status is ZoneStatus.OUT_OF_SYNC and _answers(broker, store):
            try:
                move_zone(broker, store.zone, ZoneStatus.CATCHING_UP, Mover.KEEPER, "it can be written and read again")
            except PenstockError as error:
                if error.code is not ErrorCode.ZONE_STATE_CONFLICT:  # an operator took it out meanwhile
                    raise
            else:
                back.append(store.zone)
    return back


def _answers(broker: Broker, store: SegmentStore) -> bool:
    """Whether a probe object can be put, and comes back as it was."""
    probe_id = new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(SEGMENT_ID_BYTES - 6))
    try:
        store.put(probe_id, _PROBE.body, _PROBE.crc32c)
        return store.get(probe_id, 0, len(_PROBE.body)) == _PROBE.body
    except PenstockError as error:
        broker.events.tell("zone_probe_failed", zone=store.zone, error=str(error))
        return False


def _pass_under_way(broker: Broker) -> CatchUpPass | None:
    """The stored pass if it is for the zones that catch up now, else a new one; None if no zone does."""
    wanted = zones_catching_up(broker.zone_directory.look_up(), broker.zone_names)
    if not wanted:
        return None
    stored = broker.zone_states.get_pass()
    if stored is not None and stored.zones == wanted:
        return stored
    return _save(broker, stored, begin_pass(stored, wanted, broker.clock.now_ms()))


def _save(broker: Broker, old: CatchUpPass | None, new: CatchUpPass) -> CatchUpPass:
    broker.zone_states.save_pass(old, new)
    return new


def _end(broker: Broker, ended: CatchUpPass) -> list[str]:
    """Brings in sync whom the pass allows to. The next run begins anew with those that are left."""
    brought: list[str] = []
    for zone in zones_caught_up(ended, broker.zone_directory.look_up()):
        states = broker.zone_directory.look_up()
        # Whoever moves the zone after this look makes the change fail, by the version of all states.
        if states.of(zone).version == ended.zones[zone]:
            reason = _REJOINED
            if ended.progress.lost:
                reason += f", but {ended.progress.lost} refs whose segments no zone has"
            change_zone(broker, states, zone, ZoneStatus.IN_SYNC, Mover.KEEPER, reason)
            brought.append(zone)
    _save(broker, ended, begin_pass(ended, {}, broker.clock.now_ms()))
    broker.held.begin(None)
    return brought


def _refs_from(broker: Broker, current: CatchUpPass) -> Iterator[_Wanted]:
    """Every ref of the index from the cursor on, read as it is needed. Heads are read before pages, so that a ref that
    is rolled meanwhile is met in one of both. What was written after the pass began is none of its business, so that a
    pass ends however fast appends come."""
    cursor = current.cursor
    until_ms = current.began_ms + FUNCTION_MS_MAX  # a ref behind one of that age was put after the pass began
    for topic in broker.topics.list():
        if topic.name < cursor.topic:
            continue
        for partition in topic.all_partitions():
            if (topic.name, partition) < (cursor.topic, cursor.partition):
                continue
            offset = cursor.offset if (topic.name, partition) == (cursor.topic, cursor.partition) else 0
            key = PartitionKey(topic.topic_id, partition)
            for located in refs_of(broker, key, offset):
                if located.ref.tier is Tier.ZONAL and segment_time_ms(located.ref.segment_id) > until_ms:
                    break
                yield _Wanted(key, located, Cursor(topic.name, partition, located.end_offset))


def _catch_up(broker: Broker, current: CatchUpPass, portion: Sequence[_Wanted]) -> Progress:
    """Copies what the zones lack of the portion's segments, each once, and marks the refs that lack their bits."""
    zones = sum(1 << index for index, zone in enumerate(broker.zone_names) if zone in current.zones)
    by_segment: dict[SegmentId, list[_Wanted]] = {}
    for wanted in portion:
        if wanted.located.ref.tier is Tier.ZONAL:
            by_segment.setdefault(wanted.located.ref.segment_id, []).append(wanted)
    # A copy that no ref speaks of is read whole before its bit is set; of one that refs do speak of, it is enough that
    # it is there: what rots is the scrub's.
    owed = {
        segment_id: reduce(or_, (zones & ~wanted.located.ref.zones for wanted in named))
        for segment_id, named in by_segment.items()
    }
    broker.held.go_on((current.began_ms, *current.zones.items()))
    claimed = {segment_id: zones & ~owed[segment_id] for segment_id in by_segment}
    lacking = broker.held.lacking(broker.zones, broker.parallel, claimed)
    owed = {segment_id: owed[segment_id] | lacking[segment_id] for segment_id in by_segment}

    def copy(segment_id: SegmentId) -> Progress:
        return _copy(broker, segment_id, owed[segment_id], by_segment[segment_id])

    total = Progress(refs=len(portion))
    segments = [segment_id for segment_id in by_segment if owed[segment_id]]
    for start in range(0, len(segments), _SIDE_BY_SIDE):
        chunk = segments[start : start + _SIDE_BY_SIDE]
        for segment_id, result in zip(chunk, broker.parallel.map(copy, chunk), strict=True):
            if isinstance(result, PenstockError):
                broker.events.tell("catch_up_failed", segment=segment_id.hex(), error=str(result))
                result = Progress(failures=len(by_segment[segment_id]))
            total = total.plus(result)
    return total


def _copy(broker: Broker, segment_id: SegmentId, zones: int, named: Sequence[_Wanted]) -> Progress:
    try:
        ensured = ensure_copies(broker, segment_id, zones)
    except PenstockError as error:
        if error.code is not ErrorCode.CORRUPT_SEGMENT:  # a zone that does not answer may have a good copy
            raise
        refs = [NamedRef(key=wanted.key, located=wanted.located) for wanted in named]
        return Progress(lost=report_lost(broker, segment_id, refs, error))
    for wanted in named:
        if ensured.good & ~wanted.located.ref.zones:
            broker.log.mark_stored(wanted.key, wanted.located, ensured.good)
    if zones & ~ensured.good:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE, "; ".join(error.message for error in ensured.errors) or "not copied"
        )
    made = (ensured.copied | ensured.healed).bit_count()
    return Progress(segments=made, bytes=ensured.bytes_read if made else 0)
