"""Put one segment to the zones that take writes and wait for as many as `acks` asks for.

A zone whose puts fail twice in a row from here is moved out of the in-sync set, by whoever notices, so that nobody
waits for it any more; `docs/adr/0004` has the states. While too few others are in sync for that, it is still put to,
but not waited for from here until a put succeeds (docs/adr/0008).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.move_zone import move_zone
from penstock_broker.ports import SegmentStore
from penstock_broker.zone_health import PutWatch
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, ZoneName, new_segment_id
from penstock_core.quorum import Acks
from penstock_core.segment import Segment
from penstock_core.zone_state import Mover, ZoneStates, ZoneStatus, is_stored


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """Both bitmaps are by the configured order of zones. `zones` have confirmed the segment; `unconfirmed_zones` are
    those that take writes and have not."""

    segment_id: SegmentId
    zones: int
    unconfirmed_zones: int


def put_segment(broker: Broker, segment: Segment, acks: Acks, min_insync_zones: int = 1) -> StoredSegment:
    """One put per zone that is in sync or catching up, side by side; after `put_timeout_ms` a put has failed.

    If a put failed, the states are read again, and `all` asks for those in sync then, but for zones that keep failing.
    Raises NOT_ENOUGH_ZONES when too few confirmed, or fewer than `min_insync_zones` are left in sync: no ref names the
    object, nothing was appended.
    """
    segment_id = new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(SEGMENT_ID_BYTES - 6))
    names = broker.zone_names
    states = broker.zone_directory.find()
    check_in_sync(broker, states, min_insync_zones)
    puts = [
        _Put(index=index, store=store, watch=broker.health.begin_put(store.zone))
        for index, store in enumerate(broker.zones)
        if states.written(names) >> index & 1
    ]
    awaited = _awaited(broker, states)

    def stored_by(confirmed: int) -> bool:
        return is_stored(acks, confirmed, awaited, len(names), min_insync_zones)

    def is_decided(results: Sequence[bool | PenstockError | None]) -> bool:
        pending = sum(1 << put.index for put, result in zip(puts, results, strict=True) if result is None)
        confirmed = _confirmed(puts, results)
        return stored_by(confirmed) or not stored_by(confirmed | pending)

    def put_to(put: _Put) -> bool:
        started_ms = broker.clock.monotonic_ms()
        try:
            put.store.put(segment_id, segment.body, segment.crc32c)
        except PenstockError:
            put.watch.end(is_failed=True)
            raise
        put.watch.end(is_failed=broker.clock.monotonic_ms() - started_ms >= broker.put_timeout_ms)
        return True

    results = broker.parallel.race(
        put_to,
        puts,
        is_decided,
        broker.straggler_grace_ms,
        timeout_ms=broker.put_timeout_ms,
        places=[put.store.zone for put in puts],
    )
    confirmed = _confirmed(puts, results)
    if not is_decided(results):  # the time is up
        for put, result in zip(puts, results, strict=True):
            if result is None:
                put.watch.end(is_failed=True)
    if not stored_by(confirmed) or any(isinstance(result, PenstockError) for result in results):
        states = _look_again(broker, states, [put.store for put in puts])
        awaited = _awaited(broker, states)
        check_in_sync(broker, states, min_insync_zones)
    if not stored_by(confirmed):
        raise PenstockError(
            ErrorCode.NOT_ENOUGH_ZONES,
            f"{confirmed.bit_count()} of {len(names)} zones stored the segment, too few for acks={acks.value}: "
            f"nothing was appended, try again ({_reasons(broker, states, puts, results)})",
        )
    return StoredSegment(segment_id=segment_id, zones=confirmed, unconfirmed_zones=states.written(names) & ~confirmed)


def check_in_sync(broker: Broker, states: ZoneStates, min_insync_zones: int) -> None:
    """Raises NOT_ENOUGH_ZONES if fewer zones are in sync; with fewer zones than that in all, all of them will do."""
    in_sync = states.in_sync(broker.zone_names).bit_count()
    if in_sync < min(min_insync_zones, len(broker.zones)):
        raise PenstockError(
            ErrorCode.NOT_ENOUGH_ZONES,
            f"{in_sync} of {len(broker.zones)} zones are in sync, min_insync_zones={min_insync_zones}: nothing was "
            "appended, try again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """A put to the zone with this bit."""

    index: int
    store: SegmentStore
    watch: PutWatch


def _look_again(broker: Broker, before: ZoneStates, stores: Sequence[SegmentStore]) -> ZoneStates:
    """The states as they are now, after the zones that keep failing were moved out, as far as they may be.

    What cannot be read or changed is left to the next append that fails: this one goes by what it knew.
    """
    try:
        broker.zone_directory.look_up()
        for store in stores:
            if broker.health.is_failing(store.zone):
                _move_out(broker, store.zone)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            broker.events.tell("zone_change_failed", error=str(error))
    remembered = broker.zone_directory.remembered
    return remembered if remembered.version >= before.version else before


def _move_out(broker: Broker, zone: ZoneName) -> None:
    """Also forgets the failures then: they have been acted upon. A zone that has to stay goes on as failing."""
    try:
        move_zone(broker, zone, ZoneStatus.OUT_OF_SYNC, Mover.APPENDER, "puts failed twice in a row")
    except PenstockError as error:
        if error.code is not ErrorCode.ZONE_STATE_CONFLICT:
            raise
        broker.events.count("zone_moves_refused")
    else:
        broker.health.forgive(zone)


def _awaited(broker: Broker, states: ZoneStates) -> int:
    """The bitmap of those in sync that `all` waits for."""
    failing = sum(1 << index for index, zone in enumerate(broker.zone_names) if broker.health.is_failing(zone))
    return states.in_sync(broker.zone_names) & ~failing


def _confirmed(puts: Sequence[_Put], results: Sequence[bool | PenstockError | None]) -> int:
    return sum(1 << put.index for put, result in zip(puts, results, strict=True) if result is True)


def _reasons(
    broker: Broker, states: ZoneStates, puts: Sequence[_Put], results: Sequence[bool | PenstockError | None]
) -> str:
    """Per zone that did not confirm, in order: how its put failed, or its state if there was none."""
    outcomes = {put.store.zone: result for put, result in zip(puts, results, strict=True)}
    reasons = []
    for zone in broker.zone_names:
        match outcomes.get(zone, states.of(zone).status.value):
            case PenstockError(message=message):
                reasons.append(f"zone {zone}: {message}")
            case None:
                reasons.append(f"zone {zone}: no answer yet")
            case str(status):
                reasons.append(f"zone {zone}: {status}")
    return "; ".join(reasons)
