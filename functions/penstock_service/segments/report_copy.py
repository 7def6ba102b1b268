"""Report a copy that a read found bad or missing to the repair queue, without disturbing the read."""

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.log.repair import Repair
from penstock_service.instance.instance import Instance


def report_copy(instance: Instance, segment_id: SegmentId, zone: ZoneName) -> None:
    """One send, if the copy was not reported within the last minute. Raises nothing."""
    if not instance.repair_throttle.take(segment_id, zone):
        return
    try:
        instance.stores.repair_queue.send(Repair(segment_id=segment_id, zones=frozenset((zone,))))
    except PenstockError as error:
        instance.telemetry.log("copy_report_failed", segment=segment_id.hex(), zone=zone, error=str(error))
    else:
        instance.telemetry.count("copies_reported")
