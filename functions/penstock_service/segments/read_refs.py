"""Read the bytes of refs: as few ranged gets as they allow, side by side, cut up by ref again.

One read answers up to a hundred items. A ref whose item is missing has an error, until `with_gaps` has told whether its
item has expired, is lost, or has moved (docs/protocol/log.md). A read that finds no item proves little. A merge may
have moved the records since the reader looked at the index, and the sweep has removed the item then. A raise may have
missed the item, so that records which the topic keeps are lost. So an expired ref is a gap on two conditions, both read
after the item was missing:

1. The index still names the ref.
2. The topic, as it is now, would have expired the records, or did so when its retention was raised.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import BATCH_GET_KEYS_MAX
from penstock_core.log.read_plan import SegmentRange, join_ranges
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.log.retention import written_ms
from penstock_core.log.retention_raise import had_expired
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import is_expired, is_missing, read_items, read_range

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


def read_refs_again(instance: Instance, refs: Sequence[LocatedRef]) -> RefContents:
    """As `read_refs_singly`, without the refs that this instance has read a moment ago: they cost nothing."""
    known = instance.recent_reads.find(refs)
    contents = read_refs_singly(instance, [each for each in refs if each not in known] if known else refs)
    instance.recent_reads.keep(contents)
    return {**contents, **known} if known else contents


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


def with_gaps(
    instance: Instance, contents: RefContents, owners: Iterable[tuple[PartitionKey, Sequence[LocatedRef]]]
) -> RefContents:
    """The contents, with an empty batch over its offsets for each ref of the owners that is a gap.

    A ref that has lost its item keeps its error. A ref that has moved gets STORAGE_UNAVAILABLE, without the fact
    `is_missing`. Costs nothing unless an item is missing. Else it costs, for each partition, a read of the topic, and
    for each row of such refs a read of the head and a query for each 4 pages. An error of these reads is the refs'.
    """
    settled: dict[LocatedRef, Outcome[memoryview]] = {}
    for key, refs in owners:
        missing = {each: contents[each] for each in refs if _is_missing_item(each, contents[each])}
        if missing:
            settled |= _settled(instance, key, missing)
    return {**contents, **settled} if settled else contents


def is_gap(instance: Instance, topic: Topic | None, located: LocatedRef, error: PenstockError) -> bool:
    """Tells if the read `error` means that the ref's item has expired, for a ref that the index names since then.

    Give the topic as it was read after the error, None if it was deleted. Costs nothing.
    """
    if topic is None or not is_expired(error):
        return False
    return had_expired(topic, written_ms(located.ref), instance.clock.now_ms())


def standing_refs(instance: Instance, key: PartitionKey, refs: Sequence[LocatedRef]) -> Iterator[LocatedRef]:
    """Those of the refs of a partition, in the order of their offsets, that the index names now.

    For each row of refs that lie side by side, it costs what `refs_of` costs, and raises what that raises.
    """
    walk: Iterator[LocatedRef] = iter(())
    reached: int | None = None
    for located in refs:
        if located.base_offset != reached:
            walk = refs_of(instance.stores.log, key, located.base_offset)
        found = next(walk, None)
        reached = None if found is None else found.end_offset
        if (
            found is not None
            and found.base_offset == located.base_offset
            and found.ref.segment_id == located.ref.segment_id
        ):
            yield located


def _content(located: LocatedRef, wanted: SegmentRange, data: Outcome[bytes]) -> Outcome[memoryview]:
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


def _is_missing_item(located: LocatedRef, content: Outcome[memoryview]) -> bool:
    return located.ref.tier.is_item and isinstance(content, PenstockError) and is_missing(content)


def _settled(instance: Instance, key: PartitionKey, missing: RefContents) -> Mapping[LocatedRef, Outcome[memoryview]]:
    from penstock_core.records.codec import empty_batch  # the codec, which most reads do not need

    try:
        topic = instance.topic_cache.find_by_id(key.topic_id)
        standing = set(standing_refs(instance, key, sorted(missing, key=lambda each: each.base_offset)))
    except PenstockError as error:
        return dict.fromkeys(missing, error)
    settled: dict[LocatedRef, Outcome[memoryview]] = {}
    for located, lost in missing.items():
        if topic is None or located not in standing:
            settled[located] = _moved(located)
        elif isinstance(lost, PenstockError) and is_gap(instance, topic, located, lost):
            settled[located] = memoryview(empty_batch(located.ref.offset_span))
    return settled


def _moved(located: LocatedRef) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"segment {located.ref.segment_id.hex()} was merged or removed since the index was read: read again",
    )
