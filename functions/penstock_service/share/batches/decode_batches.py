"""Decode stored batches within a budget: the only way from stored bytes to records for all that delivers or moves them.

Batches whose ref says that they may expire are decoded for that alone, and no other ones. A record of another batch
does not expire, whatever its headers are.

A few KB of stored batches may hold gigabytes. So a reader that decodes what it has read needs a bound of its own, and
goes on where this stops. Each call with a fresh budget decodes at least one record, so a reader always comes on.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import Record
from penstock_core.records.expiry import expires_at_ms
from penstock_core.records.record_batch import parse_header
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.share.batches.read_batches import StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """The wanted records that the batches hold, in order, and the wanted offsets that have none.

    A batch covers the offsets of `removed`, and has no such record. A batch that cannot be decoded has the offsets of
    `undecodable`. The offsets of `left_out` come after the record that spent the budget: ask for them again.
    """

    records: Sequence[Record]
    removed: Ranges = ()
    undecodable: Ranges = ()
    left_out: Ranges = ()


def decode_batches(batches: Sequence[StoredBatch], wanted: Ranges, budget: DecodeBudget) -> DecodedRecords:
    """The records among `wanted`, from the first batch on, until the budget is spent. The batches rise in offset."""
    records: list[Record] = []
    removed: list[Range] = []
    undecodable: list[Range] = []
    left_out: list[Range] = []
    for batch in batches:
        mine = RecordSet(wanted).only(((batch.base_offset, batch.next_offset),)).ranges
        if not mine:
            continue
        if budget.is_spent:
            left_out += mine
            continue
        count = len(records)
        try:
            end = _decode_batch(batch, mine, budget, records)
        except PenstockError:
            del records[count:]
            undecodable += mine
            continue
        left_out += RecordSet(mine).minus(((0, end),)).ranges
        removed += _gaps(RecordSet(mine).only(((0, end),)).ranges, (each.offset for each in records[count:]))
    return DecodedRecords(
        records=records,
        removed=normalized(removed),
        undecodable=normalized(undecodable),
        left_out=normalized(left_out),
    )


def _decode_batch(batch: StoredBatch, mine: Ranges, budget: DecodeBudget, records: list[Record]) -> int:
    """Add the records of a batch. Returns the offset behind the last one that the budget allows."""
    starts = [start for start, _ in mine]
    for record in budget.decode(batch.data, parse_header(batch.data)):
        at = bisect_right(starts, record.offset) - 1
        if at < 0 or record.offset >= mine[at][1]:
            continue
        records.append(record)
        budget.keep(record)
        if budget.is_spent:
            return record.offset + 1
    return batch.next_offset


def _gaps(ranges: Ranges, offsets: Iterator[int]) -> Iterator[Range]:
    """The parts of the ranges that lie between these offsets, all of which are in the ranges."""
    offset = next(offsets, None)
    for start, end in ranges:
        known = start
        while offset is not None and offset < end:
            yield known, offset
            known, offset = offset + 1, next(offsets, None)
        yield known, end


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The offsets whose records match, in order; those without a record, or with another one; those in bad batches.

    The records of `expired` would match, and their time is over. The budget did not reach those of `left_out`.
    """

    matching: Sequence[int]
    finished: Ranges
    expired: Ranges
    undecodable: Ranges
    left_out: Ranges


def sift(
    batches: Sequence[StoredBatch], ranges: Ranges, wanted: Filter | None, budget: DecodeBudget, now_ms: int
) -> Sifted:
    """Decode the batches within the budget, and match the headers of the records in `ranges`. None takes all.

    Without a filter it decodes only batches that may expire, and takes what it cannot decode: its client may.
    """
    seen = [batch for batch in batches if wanted is not None or batch.may_expire]
    unseen = [] if wanted is not None else [batch for batch in batches if not batch.may_expire]
    decoded = decode_batches(seen, ranges, budget)
    expired = expired_records(batches, decoded.records, now_ms)
    matching = [*RecordSet(ranges).only(spans_of(unseen)).offsets()]
    others: list[int] = []
    for each in decoded.records:
        if wanted is not None and not matches(wanted, each.headers):
            others.append(each.offset)
        elif each.offset not in expired:
            matching.append(each.offset)
    if wanted is None:
        matching += RecordSet(decoded.undecodable).offsets()
    return Sifted(
        matching=sorted(matching),
        finished=normalized((*decoded.removed, *((offset, offset + 1) for offset in others))),
        expired=normalized((offset, offset + 1) for offset in expired.difference(others)),
        undecodable=() if wanted is None else decoded.undecodable,
        left_out=decoded.left_out,
    )


def expired_records(batches: Sequence[StoredBatch], records: Iterable[Record], now_ms: int) -> frozenset[int]:
    """The offsets of the records whose time is over, among those of batches that may expire."""
    return frozenset(offset for offset, time_ms in expiry_times(batches, records).items() if time_ms <= now_ms)


def expiry_times(batches: Sequence[StoredBatch], records: Iterable[Record]) -> Mapping[int, int]:
    """The times from which records are over, by offset, for those in batches that may expire."""
    flagged = spans_of(batch for batch in batches if batch.may_expire)
    ends = [end for _, end in flagged]
    return {
        each.offset: time_ms
        for each in records
        if (at := bisect_right(ends, each.offset)) < len(flagged)
        and flagged[at][0] <= each.offset
        and (time_ms := expires_at_ms(each.headers)) is not None
    }


def spans_of(batches: Iterable[StoredBatch]) -> Ranges:
    """The offsets that the batches cover."""
    return normalized((batch.base_offset, batch.next_offset) for batch in batches)


def filter_of(config: ShareGroupConfig) -> Filter | None:
    """The group's filter, None if it takes all."""
    return None if config.filter is None else parse_filter(config.filter)
