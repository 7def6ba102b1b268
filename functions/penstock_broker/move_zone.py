"""Move a zone from one state to another, and list the states."""

from collections.abc import Sequence

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.zone_state import REASON_LENGTH_MAX, Mover, ZoneState, ZoneStates, ZoneStatus, move

_ATTEMPTS_MAX = 3


def move_zone(broker: Broker, zone: ZoneName, to: ZoneStatus, mover: Mover, reason: str) -> ZoneStates:
    """The states after the move; a zone that is there already stays as it is. One read and one conditional put, again
    while others change states at the same moment, three times at most.

    Raises UNKNOWN_ZONE, ZONE_STATE_CONFLICT, CONCURRENT_UPDATE.
    """
    attempts = 0
    while True:
        states = broker.zone_directory.look_up()
        if zone in broker.zone_names and states.of(zone).status is to:
            return states
        try:
            return change_zone(broker, states, zone, to, mover, reason)
        except PenstockError as error:
            attempts += 1
            # A lost answer too: if the change was made, the next look shows it.
            is_worth_another = error.code is ErrorCode.CONCURRENT_UPDATE or error.maybe_applied
            if attempts == _ATTEMPTS_MAX or not is_worth_another:
                raise


def change_zone(
    broker: Broker, seen: ZoneStates, zone: ZoneName, to: ZoneStatus, mover: Mover, reason: str
) -> ZoneStates:
    """The move from the very states that were `seen`. One conditional put, and one read."""
    now_ms = broker.clock.now_ms()
    new = move(seen, broker.zone_names, zone, to, mover, now_ms=now_ms, reason=reason)
    broker.zone_states.change(seen, new)
    before = seen.of(zone).status.value
    broker.events.tell(f"zone_{to.value}", zone=zone, before=before, by=mover.value, reason=reason, version=new.version)
    return broker.zone_directory.look_up()


def move_zone_by_operator(broker: Broker, zone: str, to: ZoneStatus, reason: str) -> ZoneState:
    """The zone's state after an operator has taken it out, or told it to catch up. Raises as `move_zone`, and
    INVALID_REQUEST for a reason that is too long."""
    if len(reason) > REASON_LENGTH_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"a reason of {len(reason)} characters: {REASON_LENGTH_MAX} at most"
        )
    return move_zone(broker, ZoneName(zone), to, Mover.OPERATOR, reason).of(ZoneName(zone))


def list_zones(broker: Broker) -> Sequence[tuple[ZoneName, ZoneState]]:
    """Every zone with its state, in configured order. One read."""
    states = broker.zone_directory.look_up()
    return [(zone, states.of(zone)) for zone in broker.zone_names]
