"""Read inline segments, many in one call. DynamoDB charges for them as for as many single reads."""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.read_plan import SegmentRange
from penstock_core.outcomes import Outcome
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import check_range


def read_inline(instance: Instance, ranges: Sequence[SegmentRange]) -> list[Outcome[bytes]]:
    """The checked bytes of each range, or its error, in their order. One consistent BatchGetItem for each 100 segments.

    The errors are those of `read_range`. Raises what the read of all of them raises.
    """
    bodies = instance.stores.inline.get_wholes(list(dict.fromkeys(each.segment_id for each in ranges)))
    return [_outcome(each, bodies) for each in ranges]


def _outcome(wanted: SegmentRange, bodies: Mapping[SegmentId, bytes]) -> Outcome[bytes]:
    body = bodies.get(wanted.segment_id)
    if body is None:
        message = f"the log table has no segment {wanted.segment_id.hex()}"
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, message, is_missing=True)
    data = body[wanted.position : wanted.position + wanted.length]
    try:
        check_range(data, wanted)
    except PenstockError as error:
        return error
    return data
