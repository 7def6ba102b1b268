"""Put one small segment into DynamoDB, as an item of the log table, instead of into zones (docs/adr/0064).

DynamoDB answers a put once two of its three zones have it, so one put meets every `acks` and every `min_insync_zones`,
and no zone of the stage takes part. The item is put before any head names it, as an object is: a crash in between
leaves an item that no ref names, and the sweep removes it.
"""

from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, new_segment_id
from penstock_core.log.ref import Tier
from penstock_core.log.segment import Segment, segment_bytes
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.segments.put_segment import StoredSegment


def is_inline(instance: Instance, parts: int, data_bytes: int) -> bool:
    """True if a segment of so many parts, with so many bytes of batches together, goes into DynamoDB."""
    return segment_bytes(parts, data_bytes) <= instance.stores.inline_bytes_max


def put_inline(instance: Instance, segment: Segment) -> StoredSegment:
    """One put of an item. Raises THROTTLED and STORAGE_UNAVAILABLE: no ref names the item, so nothing was appended."""
    window = UpdateWindow.open(instance.clock)
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    try:
        instance.stores.inline.put(segment_id, segment.body, segment.crc32c)
    except PenstockError as error:
        # The item may be there. That is no append.
        raise PenstockError(error.code, f"{error.message}: nothing was appended, try again", **error.facts) from error
    return StoredSegment(segment_id=segment_id, zones=0, unconfirmed_zones=0, window=window, tier=Tier.INLINE)
