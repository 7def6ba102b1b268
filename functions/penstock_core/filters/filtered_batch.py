"""Filters one stored batch: the records that match, as a batch of their own.

This loads the codec. Import it where a filter is, not on the path of every fetch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.limits import BATCH_BYTES_MAX, FILTER_DECODED_BYTES_MAX, FILTER_HEADERS_MAX, FILTER_WORK_MAX
from penstock_core.records.codec import Record, with_records
from penstock_core.records.record_batch import BatchHeader, BytesLike
from penstock_core.records.record_check import DecodeBudget
from penstock_core.records.undecodable import is_undecodable


class FilterBudget:
    """What one call may still filter: decoded bytes, and records and headers together.

    The batch that spends the bytes is filtered whole. A batch is cut at the record that would spend the rest.
    """

    __slots__ = ("_work_left", "decoded")

    def __init__(self, bytes_max: int = FILTER_DECODED_BYTES_MAX, work_max: int = FILTER_WORK_MAX) -> None:
        self.decoded = DecodeBudget(bytes_max)
        self._work_left = work_max

    @property
    def is_spent(self) -> bool:
        """No further record may be filtered."""
        return self.decoded.is_spent or self.is_tired

    @property
    def is_tired(self) -> bool:
        """As many records and headers were filtered as one call may filter."""
        return self._work_left <= 0

    def note(self, record: Record) -> None:
        """Count a record that is filtered."""
        self._work_left -= 1 + min(len(record.headers), FILTER_HEADERS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredBatch:
    """The records of a batch that match, None if there are none, and the offset behind what was looked at."""

    data: BytesLike | None
    next_offset: int


def filter_batch(
    batch: BytesLike, header: BatchHeader, wanted: Filter, start_offset: int, budget: FilterBudget
) -> FilteredBatch:
    """The records of one stored and stamped batch, from `start_offset` on, that match.

    If all of the batch matches, the data are the batch itself. Else they are a batch with the same base offset,
    offsets, timestamps, compression and producer's numbers, and a CRC-32C of its own. They may end before the batch
    does, so that they fit into an answer. A batch that cannot be decoded, or whose records cannot be written again, is
    given whole. So each reader of it decides, as without a filter. With a
    budget that is not spent, at least one record is looked at.
    """
    kept: list[Record] = []
    count, next_offset = 0, header.next_offset
    try:
        for record in budget.decoded.decode(batch, header):
            count += 1
            if record.offset < start_offset:
                continue
            if budget.is_tired:
                next_offset = record.offset
                break
            budget.note(record)
            if matches(wanted, record.headers):
                kept.append(record)
        if not kept:
            return FilteredBatch(data=None, next_offset=next_offset)
        if len(kept) == count and next_offset == header.next_offset:
            return FilteredBatch(data=batch, next_offset=next_offset)
        return fitting_batch(header, kept, next_offset) or FilteredBatch(data=batch, next_offset=header.next_offset)
    except PenstockError as error:
        if not is_undecodable(error) and error.code is not ErrorCode.UNSUPPORTED_FORMAT:
            raise
        return FilteredBatch(data=batch, next_offset=header.next_offset)


def fitting_batch(header: BatchHeader, kept: Sequence[Record], end_offset: int) -> FilteredBatch | None:
    """The kept records as a batch that ends at `end_offset`, or at the record that would make it too large.

    None if one record alone is too large: its producer has compressed it better than the service does.
    """
    while True:
        data = with_records(header, kept, end_offset)
        if len(data) <= BATCH_BYTES_MAX:
            return FilteredBatch(data=data, next_offset=end_offset)
        if len(kept) == 1:
            return None
        half = len(kept) // 2
        kept, end_offset = kept[:half], kept[half].offset
