"""Sift the batches of an acquire: which records the group's filter takes, which are gone, which cannot be decoded."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.share.record_set import Ranges, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.share.batches.decode_batches import decode_batches
from penstock_service.share.batches.read_batches import StoredBatch


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
