"""Read the batches that hold given records of partitions, wherever in the index these are.

A record of a share group may come again after days, so its ref may be in the head's tail or in any page. Retention,
compaction and rolls move and remove refs meanwhile. So an offset counts as removed only if there is proof:

- It lies below the log start of a head that was read after the index was.
- Or a batch covers it, and the batch, once decoded, has no such record. Only who decodes can see that.

Everything else that cannot be read now is unreadable: it may be readable later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import Filter, may_match_ref
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import FETCH_REFS_MAX, SHARE_READ_BYTES_MAX
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef
from penstock_core.records.record_batch import stamp, walk
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_service.index.reader import pages_between
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.segments.read_range import is_missing
from penstock_service.segments.read_refs import RefContents, read_refs_singly, with_gaps

_PAGES_PER_QUERY = 2  # an acquire seldom needs more, and a query is billed by what it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRecords:
    """Records of one partition, and the head as it was read. Refs are passed by whose tags `wanted` takes none."""

    key: PartitionKey
    head: Head
    ranges: Ranges
    wanted: Filter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One whole batch, with its true base offset. It covers `[base_offset, next_offset)`.

    `may_expire`: its ref says that records of it may have the header of an expiry.
    """

    base_offset: Offset
    next_offset: Offset
    data: memoryview
    may_expire: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatches:
    """The batches that hold wanted records, in order.

    The offsets of `passed` lie in refs that the filter takes nothing of. The offsets of `removed` are gone for ever.
    Those of `unreadable` could not be read now, `error` is the first reason. Of these, `lost` are damaged or missing in
    every zone. Those of `left_out` were not read, because one call reads `FETCH_REFS_MAX` refs and so many bytes at
    most.
    """

    batches: Sequence[StoredBatch]
    passed: Ranges = ()
    left_out: Ranges = ()
    removed: Ranges = ()
    unreadable: Ranges = ()
    lost: Ranges = ()
    error: PenstockError | None = None


@dataclass(slots=True, kw_only=True)
class _Located:
    """The refs found for one partition, the refs of the page that was read last, and the first error."""

    refs: list[LocatedRef] = field(default_factory=list)
    page: Sequence[LocatedRef] = ()
    left_out: list[LocatedRef] = field(default_factory=list)
    passed: list[LocatedRef] = field(default_factory=list)
    error: PenstockError | None = None


def read_batches(
    instance: Instance, wanted: Sequence[WantedRecords], bytes_max: int = SHARE_READ_BYTES_MAX
) -> list[FoundBatches]:
    """What was found for each, in order. It reads `bytes_max` of segments, or one that is larger.

    At the tail it costs the ranged gets. Below the tail it costs a query for each page of the index, or for each run of
    pages. Where something could not be read, it costs one read of the heads more. Raises nothing for what cannot be
    read.
    """
    expired = [RecordSet(each.ranges).only(((0, each.head.log_start_offset),)).ranges for each in wanted]
    wanted = [
        replace(each, ranges=RecordSet(each.ranges).minus(gone).ranges)
        for each, gone in zip(wanted, expired, strict=True)
    ]
    located = instance.executor.map(lambda each: _locate(instance.stores.log, each), wanted).all_ok()
    for each, refs in zip(wanted, located, strict=True):
        _pass_over(each.wanted, refs)
    _leave_out(located, bytes_max)
    contents = read_refs_singly(instance, [ref for each in located for ref in each.refs])
    owners = [(each.key, refs.refs) for each, refs in zip(wanted, located, strict=True)]
    contents = with_gaps(instance, contents, owners)
    found = [_cut(each, refs, contents) for each, refs in zip(wanted, located, strict=True)]
    explained = _explained(instance, wanted, found)
    return [
        replace(each, removed=normalized((*each.removed, *gone))) for each, gone in zip(explained, expired, strict=True)
    ]


def _locate(log: LogIndex, wanted: WantedRecords) -> _Located:
    """The refs that cover the wanted records, from the first on, about `FETCH_REFS_MAX` at most."""
    found = _Located()
    tail = wanted.head.located_tail()
    covered = 0
    for start, end in wanted.ranges:
        below = min(end, wanted.head.tail_base)
        try:
            if max(start, covered) < below:
                covered = _add_rolled(log, wanted.key, found, Offset(max(start, covered)), Offset(below))
        except PenstockError as error:
            found.error = found.error or error
        if len(found.refs) >= FETCH_REFS_MAX:
            break
    ends = found.refs[-1].end_offset if found.refs else 0
    for located in tail:
        if located.base_offset >= ends and RecordSet(wanted.ranges).only((_span(located),)).ranges:
            found.refs.append(located)
    return found


def _pass_over(wanted: Filter | None, located: _Located) -> None:
    """Leave refs unread that have none of the tags that the filter needs."""
    if wanted is not None:
        located.passed = [each for each in located.refs if not may_match_ref(wanted, each.ref)]
        located.refs = [each for each in located.refs if may_match_ref(wanted, each.ref)]


def _leave_out(located: Sequence[_Located], bytes_max: int) -> None:
    """Keep as many refs of all partitions as one call may read: the first ones of each, and one at the least."""
    refs_left, bytes_left = FETCH_REFS_MAX, bytes_max
    for each in located:
        for place, located_ref in enumerate(each.refs):
            refs_left, bytes_left = refs_left - 1, bytes_left - located_ref.ref.length
            if min(refs_left, bytes_left) < 0 and not (place == 0 and each is located[0]):
                each.left_out = each.refs[place:]
                del each.refs[place:]
                break


def _add_rolled(log: LogIndex, key: PartitionKey, found: _Located, start: Offset, end: Offset) -> int:
    """Add the refs of pages that cover `[start, end)`. Returns the offset behind the last one.

    Records that were passed over lie scattered. So one page often has several ranges, and is read once.
    """
    if found.page and found.page[0].base_offset <= start:
        start = max(start, _add_of_page(found, start, end))
    if start < end:
        for page in pages_between(log, key, start, end, _PAGES_PER_QUERY):
            found.page = page.located()
            _add_of_page(found, start, end)
    return found.refs[-1].end_offset if found.refs else 0


def _add_of_page(found: _Located, start: Offset, end: Offset) -> Offset:
    """Add the refs of the last page that cover `[start, end)`. Returns the end of the page."""
    known = found.refs[-1].end_offset if found.refs else 0
    found.refs += [each for each in found.page if each.end_offset > max(start, known) and each.base_offset < end]
    return found.page[-1].end_offset


def _cut(wanted: WantedRecords, located: _Located, contents: RefContents) -> FoundBatches:
    """The wanted batches of the refs that could be read."""
    batches: list[StoredBatch] = []
    lost: list[Range] = []
    error = located.error
    for ref in located.refs:
        content = contents[ref]
        if isinstance(content, PenstockError):
            error = error or content
            lost += [_span(ref)] if _is_lost(content) else []
        else:
            batches += _batches_in(ref, content, wanted.ranges)
    covered = normalized((each.base_offset, each.next_offset) for each in batches)
    left = RecordSet(wanted.ranges).minus(covered)
    left_out = left.only(normalized(map(_span, located.left_out))).ranges
    passed = left.only(normalized(map(_span, located.passed))).ranges
    unreadable = left.minus(left_out).minus(passed).ranges
    return FoundBatches(
        batches=batches,
        passed=passed,
        left_out=left_out,
        unreadable=unreadable,
        lost=RecordSet(unreadable).only(normalized(lost)).ranges,
        error=error,
    )


def _batches_in(ref: LocatedRef, content: memoryview, ranges: Ranges) -> Iterator[StoredBatch]:
    stamped = bytearray(content)
    stamp(stamped, ref.base_offset)
    view = memoryview(stamped)
    for position, header in walk(stamped):
        if any(start < header.next_offset and header.base_offset < end for start, end in ranges):
            yield StoredBatch(
                base_offset=Offset(header.base_offset),
                next_offset=Offset(header.next_offset),
                data=view[position : position + header.length],
                may_expire=ref.ref.may_expire,
            )


def _explained(
    instance: Instance, wanted: Sequence[WantedRecords], found: Sequence[FoundBatches]
) -> list[FoundBatches]:
    """Tell what was removed from what is unreadable, by heads that are read now."""
    failed = [*{each.key: None for each, result in zip(wanted, found, strict=True) if result.unreadable}]
    heads: Mapping[PartitionKey, Head] = {}
    if failed:
        try:
            heads = instance.stores.log.heads(failed)
        except PenstockError:
            return [*found]
    return [
        _told(result, heads[each.key].log_start_offset) if result.unreadable and each.key in heads else result
        for each, result in zip(wanted, found, strict=True)
    ]


def _told(found: FoundBatches, log_start: Offset) -> FoundBatches:
    left = RecordSet(found.unreadable)
    return replace(
        found,
        removed=left.only(((0, log_start),)).ranges,
        unreadable=left.minus(((0, log_start),)).ranges,
        lost=RecordSet(found.lost).minus(((0, log_start),)).ranges,
    )


def _is_lost(error: PenstockError) -> bool:
    """True if every zone has answered, and none has the bytes. A zone or an index that refuses may answer later."""
    return error.code is ErrorCode.CORRUPT_SEGMENT or is_missing(error)


def _span(located: LocatedRef) -> Range:
    return located.base_offset, located.end_offset
