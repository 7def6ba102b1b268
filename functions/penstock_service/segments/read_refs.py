"""Read the bytes of refs: as few ranged gets as they allow, side by side, cut up by ref again.

One read answers up to a hundred inline segments.
"""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import BATCH_GET_KEYS_MAX
from penstock_core.log.read_plan import SegmentRange, join_ranges
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.outcomes import Outcome
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import check_range, read_range

RefContents = Mapping[LocatedRef, Outcome[memoryview]]


def read_refs(instance: Instance, refs: Sequence[LocatedRef]) -> RefContents:
    """The checked bytes of each ref, or the error of the range that it shares.

    Costs what `read_range` costs for each range of `join_ranges`, what `read_inline` costs for those of inline
    segments, and a read of the zones' states if they are old.
    Raises what that read raises.
    """
    return read_ranges(instance, join_ranges(refs))


def read_refs_singly(instance: Instance, refs: Sequence[LocatedRef]) -> RefContents:
    """As `read_refs`. If no zone has a whole range right, each of its refs is read alone: a zone may have that part."""
    contents = read_refs(instance, refs)
    torn = [
        located
        for located, content in contents.items()
        if isinstance(content, PenstockError) and content.code is ErrorCode.CORRUPT_SEGMENT
    ]
    return {**contents, **read_ranges(instance, [single for located in torn for single in join_ranges([located])])}


def read_ranges(instance: Instance, ranges: Sequence[SegmentRange]) -> RefContents:
    """The checked bytes of each ref of these ranges, or the error of its range. Costs and errors as `read_refs`."""
    if not ranges:
        return {}
    instance.zone_cache.get_for_reading()  # here, once: all reads below go by the states that it remembers
    reads = _reads(ranges)
    results = instance.executor.map(lambda read: _read(instance, read), reads)
    return {
        located: data if isinstance(data, PenstockError) else memoryview(data)[wanted.place_of(located)]
        for read, result in zip(reads, results, strict=True)
        for wanted, data in zip(read, _of_each(read, result), strict=True)
        for located in wanted.refs
    }


def _reads(ranges: Sequence[SegmentRange]) -> list[Sequence[SegmentRange]]:
    """The ranges by the reads that they share: each alone, but those of inline segments by the hundred."""
    alone: list[Sequence[SegmentRange]] = [[each] for each in ranges if each.tier is not Tier.INLINE]
    inline = [each for each in ranges if each.tier is Tier.INLINE]
    return alone + [inline[start : start + BATCH_GET_KEYS_MAX] for start in range(0, len(inline), BATCH_GET_KEYS_MAX)]


def _read(instance: Instance, read: Sequence[SegmentRange]) -> Sequence[Outcome[bytes]]:
    return read_inline(instance, read) if read[0].tier is Tier.INLINE else [read_range(instance, read[0])]


def _of_each(read: Sequence[SegmentRange], result: Outcome[Sequence[Outcome[bytes]]]) -> Sequence[Outcome[bytes]]:
    """The outcome of each range of a read: its own, or the error of all."""
    return [result] * len(read) if isinstance(result, PenstockError) else result


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
