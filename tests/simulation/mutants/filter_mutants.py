"""Defects of fetches with a filter, and of tag filters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.filters import filtered_batch as filtered_batch_module
from penstock_core.filters.filtered_batch import FilteredBatch
from penstock_core.ids import Offset
from penstock_core.log.ref import Ref
from penstock_service.instance.instance import Instance
from penstock_service.records import append as append_module
from penstock_service.records import fetch as fetch_module
from penstock_service.records.append import PartitionBatches
from penstock_service.records.scan import Scan
from tests.simulation.mutants.mutant import Mutant, Patch


def _does_not_move() -> Patch:
    original = Scan.move_to

    def move_to(self: Scan, offset: int) -> None:
        if self.data:
            original(self, offset)

    return patch.object(Scan, "move_to", move_to)


def _moves_too_far() -> Patch:
    original = Scan.move_to

    def move_to(self: Scan, offset: int) -> None:
        original(self, min(offset + 1, self.head.next_offset))

    return patch.object(Scan, "move_to", move_to)


def _moves_to_the_end() -> Patch:
    original = Scan.end

    def end(self: Scan, error: Any = None) -> None:
        original(self, error)
        self.move_to(Offset(self.head.next_offset))

    return patch.object(Scan, "end", end)


def _tags_of_another_batch() -> Patch:
    original = append_module.put_batches
    before: list[int | None] = [0]

    def put_batches(instance: Instance, batches: Sequence[PartitionBatches], acks: Any) -> tuple[Any, list[Ref]]:
        stored, refs = original(instance, batches, acks)
        shifted = [replace(ref, tag_filter=before[0] if ref.tag_filter is not None else None) for ref in refs]
        before[0] = refs[-1].tag_filter if refs[-1].tag_filter is not None else before[0]
        return stored, shifted

    return patch.object(append_module, "put_batches", put_batches)


def _arms_before_the_end() -> Patch:
    return patch.object(fetch_module._PartitionFetch, "is_at_end", property(lambda self: not self.data))


def _sends_what_does_not_match() -> Patch:
    def matches(_wanted: Any, _headers: Any) -> bool:
        return True

    return patch.object(filtered_batch_module, "matches", matches)


def _drops_what_is_left_of_a_batch() -> Patch:
    original = filtered_batch_module.filter_batch

    def filter_batch(batch: Any, header: Any, wanted: Any, start_offset: int, budget: Any) -> FilteredBatch:
        found = original(batch, header, wanted, start_offset, budget)
        if found.data is None or found.data is batch:
            return found
        return FilteredBatch(data=None, next_offset=found.next_offset)

    return patch.object(filtered_batch_module, "filter_batch", filter_batch)


FILTER_MUTANTS = [
    Mutant("filter does not move", "filtering", _does_not_move),
    Mutant("filter moves too far", "filtering", _moves_too_far),
    Mutant("filter moves to the end", "filtering", _moves_to_the_end),
    Mutant("tags of another batch", "filtering", _tags_of_another_batch),
    Mutant("filter arms before the end", "filtering", _arms_before_the_end),
    Mutant("filter sends what does not match", "filtering", _sends_what_does_not_match),
    Mutant("filter drops a part of a batch", "filtering", _drops_what_is_left_of_a_batch),
]
