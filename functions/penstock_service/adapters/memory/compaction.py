"""CompactionStore in memory, over the log of the same service. A swap holds the log, and so does a move."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock_core.compaction.merging import CompactionState, MergedSequence, Swap, find_sequence
from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.storage.dynamodb_limits import check_actions
from penstock_service.adapters.memory.contention import Contention, held_items
from penstock_service.adapters.memory.log import MemoryLogIndex


class MemoryCompactionStore:
    """CompactionStore: the port documents its methods."""

    def __init__(self, log: MemoryLogIndex, contention: Contention | None = None) -> None:
        self._log = log
        self._contention = contention
        self._lock = threading.Lock()
        self._states: dict[PartitionKey, CompactionState] = {}
        self._retired: dict[PartitionKey, list[tuple[int, frozenset[SegmentId]]]] = {}
        self._sequences: dict[PartitionKey, list[MergedSequence]] = {}

    def acquire(self, key: PartitionKey, now_ms: int, deadline_ms: int) -> CompactionState | None:
        with self._lock:
            state = self._states.get(key)
            if state is not None and state.deadline_ms >= now_ms:
                return None
            before = state or CompactionState(epoch=0, deadline_ms=0)
            self._states[key] = replace(before, epoch=before.epoch + 1, deadline_ms=deadline_ms)
            return self._states[key]

    def save(self, key: PartitionKey, state: CompactionState) -> bool:
        with self._lock:
            if key not in self._states or self._states[key].epoch != state.epoch:
                return False
            self._states[key] = state
            return True

    def swap(self, key: PartitionKey, swap: Swap) -> bool:
        check_actions(swap.actions)
        with held_items(self._contention, [key]), self._lock, self._log.held():
            state = self._states.get(key)
            if state is None or state.epoch != swap.epoch or not self._log.swap_pages(key, swap.old, swap.new):
                return False
            self._states[key] = replace(state, deadline_ms=swap.deadline_ms)
            self._retired.setdefault(key, []).append((swap.swapped_ms, swap.retired))
            self._sequences.setdefault(key, []).extend(swap.sequences)
            return True

    def move_tail(self, key: PartitionKey, move: TailMove) -> bool:
        with held_items(self._contention, [key]), self._lock, self._log.held():
            if not self._log.move_held(key, move):
                return False
            self._retired.setdefault(key, []).append((move.moved_ms, move.retired))
            return True

    def retired(self, key: PartitionKey, since_ms: int) -> Sequence[SegmentId]:
        with self._lock:
            return sorted({each for at_ms, ids in self._retired.get(key, ()) if at_ms >= since_ms for each in ids})

    def find_merged(self, key: PartitionKey, sequence: ProducerSequence) -> Offset | None:
        with self._lock:
            return find_sequence(reversed(self._sequences.get(key, [])), sequence)
