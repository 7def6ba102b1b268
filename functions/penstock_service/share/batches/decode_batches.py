"""Decode stored batches within a budget: the only way from stored bytes to records for all that delivers or moves them.

A few KB of stored batches may hold gigabytes. So a reader that decodes what it has read needs a bound of its own, and
goes on where this stops. Each call with a fresh budget decodes at least one record, so a reader always comes on.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import Record
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

    The budget did not reach those of `left_out`.
    """

    matching: Sequence[int]
    finished: Ranges
    undecodable: Ranges
    left_out: Ranges


def sift(batches: Sequence[StoredBatch], ranges: Ranges, wanted: Filter | None, budget: DecodeBudget) -> Sifted:
    """Decode the batches within the budget, and match the headers of the records in `ranges`. None takes all."""
    decoded = decode_batches(batches, ranges, budget)
    matching: list[int] = []
    others: list[int] = []
    for each in decoded.records:
        (matching if wanted is None or matches(wanted, each.headers) else others).append(each.offset)
    return Sifted(
        matching=matching,
        finished=normalized((*decoded.removed, *((offset, offset + 1) for offset in others))),
        undecodable=decoded.undecodable,
        left_out=decoded.left_out,
    )


def filter_of(config: ShareGroupConfig) -> Filter | None:
    """The group's filter, None if it takes all."""
    return None if config.filter is None else parse_filter(config.filter)
