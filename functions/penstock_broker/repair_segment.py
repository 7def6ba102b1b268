"""Carry out one repair: good copies in the zones that owe one, then the bits in the refs. Verb behind `replicate`."""

from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_broker.lost_segments import report_lost
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.repair import NamedRef, Repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """How many copies were made and healed, and how many refs say now who holds them."""

    copied: int = 0
    healed: int = 0
    marked: int = 0


def zones_to_repair(broker: Broker) -> int:
    """The bitmap of zones that are to hold every segment: a zone that is out is caught up as a whole when it is back.
    States as old as those that writers go by; a read if none are remembered."""
    return broker.zone_directory.find().written(broker.zone_names)


def repair_segment(broker: Broker, repair: Repair) -> Repaired:
    """Costs what `ensure_copies` costs, and a `mark_stored` per ref; nothing if the zones are all out. Nothing
    is left to do if no zone has the segment any more and retention or a deletion has removed all refs meanwhile.

    Raises STORAGE_UNAVAILABLE or CORRUPT_SEGMENT when a zone that is not out is left without a good copy, and what
    `mark_stored` raises; what could be done is done by then, and doing it again is safe.
    """
    asked = sum(1 << index for index, zone in enumerate(broker.zone_names) if zone in repair.zones)
    zones = asked & zones_to_repair(broker)
    if not zones:
        return Repaired()
    try:
        copies = ensure_copies(broker, repair.segment_id, zones)
    except PenstockError as error:
        is_lost = error.code is ErrorCode.CORRUPT_SEGMENT and bool(repair.refs)
        if is_lost and not report_lost(broker, repair.segment_id, repair.refs, error):
            return Repaired()
        raise

    def mark(named: NamedRef) -> bool:
        return broker.log.mark_stored(named.key, named.located, copies.good)

    marks = broker.parallel.map(mark, repair.refs) if copies.good else []
    broker.events.count("segments_copied", copies.copied.bit_count())
    broker.events.count("segments_healed", copies.healed.bit_count())
    for mark_error in marks:
        if isinstance(mark_error, PenstockError):
            raise mark_error
    if copies.good != zones:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE,
            f"segment {repair.segment_id.hex()} is not in every zone that is to hold it: "
            + "; ".join(error.message for error in copies.errors),
        )
    return Repaired(copied=copies.copied.bit_count(), healed=copies.healed.bit_count(), marked=marks.count(True))
