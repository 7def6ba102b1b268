"""Put one segment to the zones that take writes, and wait for as many as `acks` asks for.

If a zone's puts fail twice in a row, this instance moves the zone out of the in-sync set, so that no append waits for
it any more (docs/adr/0004 has the states). If too few other zones are in sync for that, the zone stays. Then this
instance still puts to it, but does not wait for it until a put succeeds in time, or half a minute has passed since the
last failure (docs/protocol/zones).

A fallback zone gets a segment only where the other zones alone do not store it: at once if too few of them take writes,
else when their puts have ended without success, or take longer than `FALLBACK_AFTER_MS` (docs/protocol/zones).

Put one small segment into DynamoDB, as an item of the log table, instead of into zones (docs/adr/0064).

DynamoDB answers a put once two of its three zones have it, so one put meets every `acks` and every `min_insync_zones`,
and no zone of the stage takes part. The item is put before any head names it, as an object is: a crash in between
leaves an item that no ref names, and the sweep or its TTL removes it. The TTL rests on the topics of the request, so
the window opens before they are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, ZoneName, new_segment_id
from penstock_core.limits import FALLBACK_AFTER_MS
from penstock_core.log.ref import Tier
from penstock_core.log.retention_raise import kept_days_of_all
from penstock_core.log.segment import Segment, segment_bytes
from penstock_core.zones.zone_state import Acks, Mover, ZoneStates, ZoneStatus, is_stored
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment, UpdateWindow
from penstock_service.instance.zones import PutWatch, close_all
from penstock_service.ports.segments import SegmentStore
from penstock_service.segments.move_zone import move_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment that enough zones hold, or DynamoDB. Updates may name it while its `window` is open.

    Both bitmaps are by the configured order of zones: `zones` have confirmed the segment, and `unconfirmed_zones` take
    writes but have not confirmed it. An inline segment is in no zone, and owed to none.
    """

    segment_id: SegmentId
    zones: int
    unconfirmed_zones: int
    window: UpdateWindow
    tier: Tier = Tier.ZONAL
    kept_days: int = 0


def put_segment(instance: Instance, segment: Segment, acks: Acks, min_insync_zones: int = 1) -> StoredSegment:
    """One put per zone that is in sync or catching up, side by side, and to the fallback zone where one fails.

    After `put_timeout_ms` a put has failed.

    If a put failed, the states are read again. Then `all` asks for the zones that are in sync by now, without zones
    that keep failing. Raises NOT_ENOUGH_ZONES if too few zones confirmed, or if fewer than `min_insync_zones` are left
    in sync. In both cases no ref names the object, so nothing was appended.
    """
    window = UpdateWindow.open(instance.clock)
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    names = instance.stores.zone_names
    states = instance.zone_cache.get()
    check_in_sync(instance, states, min_insync_zones)
    puts = _puts(instance, states)
    awaited = _awaited(instance, states)

    def stored_by(confirmed: int) -> bool:
        return is_stored(acks, confirmed, awaited, len(names), min_insync_zones)

    def is_decided(results: Sequence[bool | PenstockError | None]) -> bool:
        pending = sum(1 << put.index for put, result in zip(puts, results, strict=True) if result is None)
        confirmed = _confirmed(puts, results)
        return stored_by(confirmed) or not stored_by(confirmed | pending)

    def put_to(put: _Put) -> bool:
        started_ms = instance.clock.monotonic_ms()
        try:
            put.store.put(segment_id, segment.body, segment.crc32c)
        except PenstockError:
            put.watch.end(is_failed=True)
            raise
        put.watch.end(is_failed=instance.clock.monotonic_ms() - started_ms >= instance.tuning.put_timeout_ms)
        return True

    results = instance.executor.first_of(
        put_to,
        puts,
        is_decided,
        instance.tuning.straggler_grace_ms,
        timeout_ms=instance.tuning.put_timeout_ms,
        lanes=[put.store.zone for put in puts],
        hedge_delays_ms=_delays_ms(instance, puts, stored_by),
    )
    confirmed = _confirmed(puts, results)
    if not is_decided(results):  # the time is up
        for put, result in zip(puts, results, strict=True):
            if result is None and put.store.zone not in instance.stores.fallback_zones:
                put.watch.end(is_failed=True)
    # The instance may be frozen from its answer on, and a put that ends after that says nothing of its zone.
    close_all(put.watch for put in puts)
    if not stored_by(confirmed) or any(isinstance(result, PenstockError) for result in results):
        states = _look_again(instance, states, [put.store for put in puts])
        awaited = _awaited(instance, states)
        check_in_sync(instance, states, min_insync_zones)
    if not stored_by(confirmed):
        raise PenstockError(
            ErrorCode.NOT_ENOUGH_ZONES,
            f"{confirmed.bit_count()} of {len(names)} zones stored the segment, too few for acks={acks.value}: "
            f"nothing was appended, try again ({_reasons(instance, states, puts, results)})",
        )
    return StoredSegment(
        segment_id=segment_id,
        zones=confirmed,
        unconfirmed_zones=states.written(names) & instance.stores.regular_zones & ~confirmed,
        window=window,
    )


def check_in_sync(instance: Instance, states: ZoneStates, min_insync_zones: int) -> None:
    """Raises NOT_ENOUGH_ZONES if fewer zones are in sync. If there are fewer zones in all, all of them are enough."""
    in_sync = states.in_sync(instance.stores.zone_names).bit_count()
    if in_sync < min(min_insync_zones, len(instance.stores.zones)):
        raise PenstockError(
            ErrorCode.NOT_ENOUGH_ZONES,
            f"{in_sync} of {len(instance.stores.zones)} zones are in sync, min_insync_zones={min_insync_zones}: "
            "nothing was appended, try again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """A put to the zone with this bit."""

    index: int
    store: SegmentStore
    watch: PutWatch


def _puts(instance: Instance, states: ZoneStates) -> list[_Put]:
    """One put to each zone that takes writes, the fallbacks last."""
    written = states.written(instance.stores.zone_names)
    puts = [
        _Put(index=index, store=store, watch=instance.zone_health.begin_put(store.zone))
        for index, store in enumerate(instance.stores.zones)
        if written >> index & 1
    ]
    return sorted(puts, key=lambda put: put.store.zone in instance.stores.fallback_zones)


def _delays_ms(instance: Instance, puts: Sequence[_Put], stored_by: Callable[[int], bool]) -> list[float]:
    """The time from each put to the next one, for `first_of`. None but the fallbacks wait; empty if no put waits."""
    is_fallback = [put.store.zone in instance.stores.fallback_zones for put in puts]
    regular = sum(1 << put.index for put, late in zip(puts, is_fallback, strict=True) if not late)
    if not any(is_fallback) or not stored_by(regular):
        return []
    return [FALLBACK_AFTER_MS if late else 0.0 for late in [*is_fallback[1:], False]]


def _look_again(instance: Instance, before: ZoneStates, stores: Sequence[SegmentStore]) -> ZoneStates:
    """The states as they are now, after the zones that keep failing were moved out, if they may be.

    If a state cannot be read or changed, the next append that fails tries again. This one goes by the states that it
    knew.
    """
    try:
        instance.zone_cache.read_through()
        for store in stores:
            if instance.zone_health.is_failing(store.zone):
                _move_out(instance, store.zone)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            instance.telemetry.log("zone_change_failed", error=str(error))
    remembered = instance.zone_cache.remembered
    return remembered if remembered.version >= before.version else before


def _move_out(instance: Instance, zone: ZoneName) -> None:
    """Moves the zone out and forgets its failures. A zone that has to stay goes on as failing."""
    try:
        move_zone(instance, zone, ZoneStatus.OUT_OF_SYNC, Mover.APPENDER, "puts failed twice in a row")
    except PenstockError as error:
        if error.code is not ErrorCode.ZONE_STATE_CONFLICT:
            raise
        instance.telemetry.count("zone_moves_refused")
    else:
        instance.zone_health.forgive(zone)


def _awaited(instance: Instance, states: ZoneStates) -> int:
    """The bitmap of the zones in sync that `all` waits for."""
    failing = sum(
        1 << index for index, zone in enumerate(instance.stores.zone_names) if instance.zone_health.is_failing(zone)
    )
    return states.in_sync(instance.stores.zone_names) & instance.stores.regular_zones & ~failing


def _confirmed(puts: Sequence[_Put], results: Sequence[bool | PenstockError | None]) -> int:
    return sum(1 << put.index for put, result in zip(puts, results, strict=True) if result is True)


def _reasons(
    instance: Instance, states: ZoneStates, puts: Sequence[_Put], results: Sequence[bool | PenstockError | None]
) -> str:
    """Per zone that did not confirm, in order: how its put failed, or its state if there was none."""
    outcomes = {put.store.zone: result for put, result in zip(puts, results, strict=True)}
    reasons = []
    for zone in instance.stores.zone_names:
        match outcomes.get(zone, states.of(zone).status.value):
            case PenstockError(message=message):
                reasons.append(f"zone {zone}: {message}")
            case None:
                reasons.append(f"zone {zone}: no answer yet")
            case str(status):
                reasons.append(f"zone {zone}: {status}")
    return "; ".join(reasons)


def item_days(instance: Instance, kept_days: Iterable[int]) -> int:
    """The days to the TTL of a segment whose parts need so many, 0 for none: one part takes none, or the stage."""
    return kept_days_of_all(kept_days) if instance.stores.small.expiring_bytes else 0


def is_inline(instance: Instance, parts: int, data_bytes: int, kept_days: int = 0) -> bool:
    """True if a segment of so many parts, with so many bytes of batches together, goes into DynamoDB.

    `kept_days` is 0 for an item without a TTL.
    """
    small = instance.stores.small
    return segment_bytes(parts, data_bytes) <= (small.expiring_bytes if kept_days else small.swept_bytes)


def put_inline(
    instance: Instance, segment: Segment, kept_days: int = 0, topics_read: Moment | None = None
) -> StoredSegment:
    """One put of an item, with a TTL that was computed from topics which were read at `topics_read`, or without one.

    Raises THROTTLED and STORAGE_UNAVAILABLE: no ref names the item, so nothing was appended.
    """
    window = UpdateWindow.open(instance.clock)
    if kept_days and topics_read is not None:
        window = window.with_read(topics_read)
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    try:
        if kept_days:
            instance.stores.inline.put_expiring(segment_id, segment.body, kept_days)
        else:
            instance.stores.inline.put(segment_id, segment.body, segment.crc32c)
    except PenstockError as error:
        # The item may be there. That is no append.
        raise PenstockError(error.code, f"{error.message}: nothing was appended, try again", **error.facts) from error
    return StoredSegment(
        segment_id=segment_id,
        zones=0,
        unconfirmed_zones=0,
        window=window,
        tier=Tier.EXPIRING if kept_days else Tier.INLINE,
        kept_days=kept_days,
    )
