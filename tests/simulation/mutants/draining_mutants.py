"""Defects put into the closing of partitions, and into what happens to their records."""

from typing import Any
from unittest.mock import patch

from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head
from penstock_core.records.producer_state import Verdict, judge
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.records import append_in_sequence as sequence_module
from tests.simulation.mutants.mutant import Mutant, Patch


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
    original = DynamoDbLogIndex.move_to_layout

    def moved(log: Any, key: PartitionKey, layout: int, closed_ms: int | None) -> Head | None:
        head = log.heads([key]).get(key)
        if head is not None and head.is_closed and closed_ms is None:
            log.delete_head(key)
            log.create_head(key)
        return original(log, key, layout, closed_ms)

    return patch.object(DynamoDbLogIndex, "move_to_layout", moved)


DRAINING_MUTANTS = [
    Mutant("closed head refuses repeats", "draining", _closed_head_refuses_repeats),
    Mutant("records that may be stored move", "draining", _records_that_may_be_stored_move),
    Mutant("opening begins anew", "draining", _opening_begins_anew),
]
