"""Defects put into the closing of partitions, and into what becomes of their records."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import EMPTY_HEAD, Head, HeadAppend, appended, appended_in_sequence, in_layout
from penstock_core.log.ref import Ref
from penstock_core.records.producer_state import Verdict, judge
from penstock_service.adapters.memory import log as log_module
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.records import append_in_sequence as sequence_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _append_to_closed_heads() -> Patch:
    def append(self: MemoryLogIndex, key: PartitionKey, ref: Ref, *_: Any) -> HeadAppend:
        return self._append(key, lambda head: appended(head, ref))

    return patch.object(MemoryLogIndex, "append", append)


def _append_in_sequence_to_closed_heads() -> Patch:
    def in_sequence(head: Head, *rest: Any) -> Head | None:
        done = appended_in_sequence(replace(head, closed_ms=None), *rest)
        return None if done is None else replace(done, closed_ms=head.closed_ms)

    return patch.object(log_module, "appended_in_sequence", in_sequence)


def _older_layout_wins() -> Patch:
    def any_layout(head: Head, layout: int, closed_ms: int | None) -> Head | None:
        return replace(
            head, layout=layout, closed_ms=closed_ms, closed_offset=None if closed_ms is None else head.next_offset
        )

    return patch.object(log_module, "in_layout", any_layout)


def _closed_head_refuses_repeats() -> Patch:
    def refusing(state: Any, sequence: Any) -> Verdict:
        verdict = judge(state, sequence)
        return Verdict.FOLLOWS if verdict is Verdict.REPEATS else verdict

    return patch.object(sequence_module, "judge", refusing)


def _records_that_may_be_stored_move() -> Patch:
    def other_partitions(_: Accumulator, entry: Entry, error: PenstockError) -> tuple[int, int] | None:
        topic = entry.queue.topic
        if error.code is ErrorCode.PARTITION_CLOSED or error.maybe_applied:
            return topic.first, int(error.facts.get("writable_partitions", topic.partitions))
        return None

    return patch.object(Accumulator, "_other_partitions", other_partitions)


def _opening_begins_anew() -> Patch:
    def begun_anew(head: Head, layout: int, closed_ms: int | None) -> Head | None:
        moved = in_layout(head, layout, closed_ms)
        if moved is None or moved.is_closed or not head.is_closed:
            return moved
        return replace(EMPTY_HEAD, layout=layout)

    return patch.object(log_module, "in_layout", begun_anew)


DRAINING_MUTANTS = [
    Mutant("append to closed heads", "draining", _append_to_closed_heads),
    Mutant("append in sequence to closed heads", "draining", _append_in_sequence_to_closed_heads),
    Mutant("older layout wins", "draining", _older_layout_wins),
    Mutant("closed head refuses repeats", "draining", _closed_head_refuses_repeats),
    Mutant("records that may be stored move", "draining", _records_that_may_be_stored_move),
    Mutant("opening begins anew", "draining", _opening_begins_anew),
]
