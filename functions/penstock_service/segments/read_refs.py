"""Read the bytes of refs: as few ranged gets as they allow, side by side, cut up by ref again.

One read answers up to a hundred items. A ref whose item has expired reads as one empty batch over its offsets, a gap
that every reader passes.
"""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_GET_KEYS_MAX
from penstock_core.log.read_plan import SegmentRange, join_ranges
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.outcomes import Outcome
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import is_expired, read_items, read_range

RefContents = Mapping[LocatedRef, Outcome[memoryview]]


def read_refs(instance: Instance, refs: Sequence[LocatedRef]) -> RefContents:
    """The checked bytes of each ref, or the error of the range that it shares.

    Costs what `read_range` costs for each range of `join_ranges`, what `read_items` costs for those of items, and a
    read of the zones' states if they are old.
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
        located: _content(located, wanted, data)
        for read, result in zip(reads, results, strict=True)
        for wanted, data in zip(read, _of_each(read, result), strict=True)
        for located in wanted.refs
    }


def _content(located: LocatedRef, wanted: SegmentRange, data: Outcome[bytes]) -> Outcome[memoryview]:
    if is_expired(data):
        from penstock_core.records.codec import empty_batch  # the codec, which most reads do not need

        return memoryview(empty_batch(located.ref.offset_span))
    return data if isinstance(data, PenstockError) else memoryview(data)[wanted.place_of(located)]


def _reads(ranges: Sequence[SegmentRange]) -> list[Sequence[SegmentRange]]:
    """The ranges by the reads that they share: each alone, but those of items by the hundred."""
    alone: list[Sequence[SegmentRange]] = [[each] for each in ranges if not each.tier.is_item]
    of_items = [[each for each in ranges if each.tier is tier] for tier in (Tier.INLINE, Tier.EXPIRING)]
    return alone + [
        some[start : start + BATCH_GET_KEYS_MAX]
        for some in of_items
        for start in range(0, len(some), BATCH_GET_KEYS_MAX)
    ]


def _read(instance: Instance, read: Sequence[SegmentRange]) -> Sequence[Outcome[bytes]]:
    return read_items(instance, read) if read[0].tier.is_item else [read_range(instance, read[0])]


def _of_each(read: Sequence[SegmentRange], result: Outcome[Sequence[Outcome[bytes]]]) -> Sequence[Outcome[bytes]]:
    """The outcome of each range of a read: its own, or the error of all."""
    return [result] * len(read) if isinstance(result, PenstockError) else result
