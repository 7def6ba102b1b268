"""Move a zone from one state to another, and list the states."""

from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.limits import ZONE_MOVE_ATTEMPTS_MAX
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.text import check_label
from penstock_core.zones.zone_state import REASON_LENGTH_MAX, Mover, ZoneState, ZoneStates, ZoneStatus, move
from penstock_service.instance.instance import Instance


def move_zone(instance: Instance, zone: ZoneName, to: ZoneStatus, mover: Mover, reason: str) -> ZoneStates:
    """Moves the zone, unless it is in that state already, and gives the states after that.

    One read and one conditional put. If another instance changes a state at the same moment, it tries again, three
    times in all. Raises UNKNOWN_ZONE, ZONE_STATE_CONFLICT, CONCURRENT_UPDATE.
    """
    attempts, may_be_moved = 0, False
    while True:
        with errors_maybe_applied(has_begun=may_be_moved):
            states = instance.zone_cache.read_through()
            if zone in instance.stores.zone_names and states.of(zone).status is to:
                return states
            try:
                return change_zone(instance, states, zone, to, mover, reason)
            except PenstockError as error:
                attempts += 1
                may_be_moved |= error.maybe_applied  # if it is, the next read shows it
                is_worth_another = error.code is ErrorCode.CONCURRENT_UPDATE or error.maybe_applied
                if attempts == ZONE_MOVE_ATTEMPTS_MAX or not is_worth_another:
                    raise


def change_zone(
    instance: Instance, seen: ZoneStates, zone: ZoneName, to: ZoneStatus, mover: Mover, reason: str
) -> ZoneStates:
    """Makes the move on condition that the states are still the ones that the caller has `seen`.

    One conditional put, and one read.
    """
    now_ms = instance.clock.now_ms()
    new = move(seen, instance.stores.zone_names, zone, to, mover, now_ms=now_ms, reason=reason)
    instance.stores.zone_states.change(seen, new)
    before = seen.of(zone).status.value
    instance.telemetry.log(
        f"zone_{to.value}", zone=zone, before=before, by=mover.value, reason=reason, version=new.version
    )
    with errors_maybe_applied():
        return instance.zone_cache.read_through()


def move_zone_by_operator(instance: Instance, zone: str, to: ZoneStatus, reason: str) -> ZoneState:
    """Takes the zone out, or lets it catch up, for an operator, and gives its state after that.

    Raises as `move_zone`, and INVALID_REQUEST for a reason that is too long or has control characters.
    """
    check_label("reason", reason)
    if len(reason) > REASON_LENGTH_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"a reason of {len(reason)} characters: {REASON_LENGTH_MAX} at most"
        )
    return move_zone(instance, ZoneName(zone), to, Mover.OPERATOR, reason).of(ZoneName(zone))


def list_zones(instance: Instance) -> Sequence[tuple[ZoneName, ZoneState]]:
    """Every zone with its state, in configured order. One read."""
    states = instance.zone_cache.read_through()
    return [(zone, states.of(zone)) for zone in instance.stores.zone_names]
