"""Let zones back that are out of sync and answer again: they take writes from then on, and are caught up."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, new_segment_id
from penstock_core.log.segment import build_segment
from penstock_core.zones.zone_state import Mover, ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.segments.move_zone import move_zone

_PROBE = build_segment([])  # a segment like any other, which no ref will ever name: the sweep removes it


def readmit_zones(instance: Instance) -> list[str]:
    """Moves the zones that are out of sync and answer a probe to catching_up, and gives their names.

    One read of the states; a put and a get for each zone that is out, and a move for each that answers. Raises what
    the moves raise.
    """
    states = instance.zone_cache.read_through()
    readmitted: list[str] = []
    for store in instance.stores.zones:
        if states.of(store.zone).status is not ZoneStatus.OUT_OF_SYNC or not _answers(instance, store):
            continue
        try:
            move_zone(instance, store.zone, ZoneStatus.CATCHING_UP, Mover.RECOVERY, "it can be written and read again")
        except PenstockError as error:
            if error.code is not ErrorCode.ZONE_STATE_CONFLICT:  # an operator took it out meanwhile
                raise
        else:
            readmitted.append(store.zone)
    return readmitted


def _answers(instance: Instance, store: SegmentStore) -> bool:
    """Puts a probe object and tells if it comes back as it was."""
    probe_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    try:
        store.put(probe_id, _PROBE.body, _PROBE.crc32c)
        return store.get(probe_id, 0, len(_PROBE.body)) == _PROBE.body
    except PenstockError as error:
        instance.telemetry.log("zone_probe_failed", zone=store.zone, error=str(error))
        return False
