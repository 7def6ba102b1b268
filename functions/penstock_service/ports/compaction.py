"""The port of compaction. `penstock_service.ports` says what all methods raise."""

from collections.abc import Sequence
from typing import Protocol

from penstock_core.compaction.merging import CompactionState, Swap
from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.records.producer_state import ProducerSequence


class CompactionStore(Protocol):
    """Leases of compaction, the writes that exchange pages or refs, and the traces of that for a while. Consistent."""

    def acquire(self, key: PartitionKey, now_ms: int, deadline_ms: int) -> CompactionState | None:
        """Takes the lease under its next epoch. None while another run holds it.

        One conditional update, never repeated once it may have been applied. If its answer is lost, no run has the
        lease until the deadline.
        """

    def save(self, key: PartitionKey, state: CompactionState) -> bool:
        """Stores the deadline and the cleaned ranges. False if another run has the lease. One conditional update."""

    def swap(self, key: PartitionKey, swap: Swap) -> bool:
        """Exchanges the pages. False, and nothing is changed, if a condition of the swap does not hold.

        An earlier attempt of this call, whose answer was lost, may be what made the condition fail. One transaction of
        `swap.actions` actions.
        """

    def move_tail(self, key: PartitionKey, move: TailMove) -> bool:
        """Exchanges refs of the head's tail, and notes the segments that this retires.

        False, and nothing is changed, if a condition of the move does not hold. An earlier attempt of this call, whose
        answer was lost, may be what made the condition fail. One transaction of two actions.
        """

    def retired(self, key: PartitionKey, since_ms: int) -> Sequence[SegmentId]:
        """The segments that swaps and moves have retired since `since_ms`. One query for each MB."""

    def find_merged(self, key: PartitionKey, sequence: ProducerSequence) -> Offset | None:
        """The offset of the first record of the sequence, if a swap has merged the ref that held it.

        Searches the swaps of the last `MERGED_SEQUENCES_KEPT_MS`, newest first. None if none of them has merged it, or
        if it lies behind the first `MERGED_QUERIES_MAX` MB. One query for each MB.
        """
