"""Sift the batches of an acquire: which records the group's filter takes, which are gone, which cannot be decoded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import Record, decode
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.share.batches.read_batches import StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The offsets whose records match, in order; those without a record, or with another one; those in bad batches."""

    matching: Sequence[int]
    finished: Ranges
    undecodable: Ranges


def sift(batches: Sequence[StoredBatch], ranges: Ranges, wanted: Filter | None) -> Sifted:
    """Decode the batches one by one, and match the headers of the records in `ranges`. None takes all."""
    matching: list[int] = []
    finished: list[tuple[int, int]] = []
    undecodable: list[tuple[int, int]] = []
    for batch in batches:
        mine = RecordSet(ranges).only(((batch.base_offset, batch.next_offset),))
        found = decoded_among(batch, mine)
        if found is None:
            undecodable += mine.ranges
            continue
        taken = [record.offset for record in found if wanted is None or matches(wanted, record.headers)]
        matching += taken
        finished += mine.minus(normalized((offset, offset + 1) for offset in taken)).ranges
    return Sifted(matching=matching, finished=normalized(finished), undecodable=normalized(undecodable))


def decoded_among(batch: StoredBatch, mine: RecordSet) -> list[Record] | None:
    """The batch's records among `mine`; None for a batch that cannot be decoded."""
    wanted = {*mine.offsets()}
    try:
        return [record for record in _decoded(batch) if record.offset in wanted]
    except PenstockError:
        return None


def _decoded(batch: StoredBatch) -> Iterator[Record]:
    return decode(batch.data)


def filter_of(config: ShareGroupConfig) -> Filter | None:
    """The group's filter, None if it takes all."""
    return None if config.filter is None else parse_filter(config.filter)
