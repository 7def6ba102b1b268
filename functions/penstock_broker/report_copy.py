"""Tell the repair queue of a copy that a read found bad or missing. Never in the way of the read."""

from penstock_broker.broker import Broker
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.repair import Repair


def report_copy(broker: Broker, segment_id: SegmentId, zone: ZoneName) -> None:
    """One send, if the copy was not reported within the last minute. Raises nothing."""
    if not broker.reports.take(segment_id, zone, broker.clock.monotonic_ms()):
        return
    try:
        broker.repair_queue.send(Repair(segment_id=segment_id, zones=frozenset((zone,))))
    except PenstockError as error:
        broker.events.tell("copy_report_failed", segment=segment_id.hex(), zone=zone, error=str(error))
    else:
        broker.events.count("copies_reported")
