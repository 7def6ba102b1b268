"""Read the bytes of refs: as few ranged gets as they allow, side by side, cut up by ref again."""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.read_plan import SegmentRange, join_ranges
from penstock_core.log.ref import LocatedRef
from penstock_core.outcomes import Outcome
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import read_range

RefContents = Mapping[LocatedRef, Outcome[memoryview]]


def read_refs(instance: Instance, refs: Sequence[LocatedRef]) -> RefContents:
    """The checked bytes of each ref, or the error of the range that it shares.

    Costs what `read_range` costs for each range of `join_ranges`, and a read of the zones' states if they are old.
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
    results = instance.executor.map(lambda wanted: memoryview(read_range(instance, wanted)), ranges)
    return {
        located: data if isinstance(data, PenstockError) else data[wanted.place_of(located)]
        for wanted, data in zip(ranges, results, strict=True)
        for located in wanted.refs
    }
