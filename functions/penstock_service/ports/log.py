"""The ports of the index and of compaction. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a function that carries records loads no compaction
    from penstock_core.compaction.merging import CompactionState, Swap
    from penstock_core.compaction.tail_move import TailMove
    from penstock_core.ids import Offset, PartitionKey, SegmentId, TopicId
    from penstock_core.log.index import Head, HeadAppend, HeadJump, HeldHead, Page
    from penstock_core.log.ref import LocatedRef, Ref
    from penstock_core.mirror.group_offsets import MirroredOffsets
    from penstock_core.mirror.push import HeadMove, HeadReopening, LogEnd, MirrorAppend
    from penstock_core.records.producer_state import ProducerSequence, ProducerState


class LogIndex(Protocol):
    """Heads and pages of partitions. Reads are consistent."""

    def create_head(self, key: PartitionKey, has_push_waiter: bool = False, held: HeldHead | None = None) -> None:
        """Creates an empty head, unless the partition has a head. One conditional put.

        An empty head that a mirror has left counts as none.

        With `has_push_waiter`, the first append starts deliveries. A `held` head takes only pushes of its mirror.
        """

    def delete_head(self, key: PartitionKey) -> None:
        """Deletes the head, so that every later append to the partition is refused. One delete."""

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        """The heads of these partitions. A partition without a head is missing. One call for each 100."""

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> HeadAppend:
        """Appends the ref, advances the next offset, and takes both waiters out of the head, if there are any.

        `unconfirmed_zones` is the bitmap of zones that have not confirmed the segment. Raises UNKNOWN_PARTITION if
        there is no head, and PARTITION_CLOSED if it is closed. One conditional update, never repeated once it may have
        been applied.
        """

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,
        sequence: ProducerSequence,
        looked_at: Offset | None,
    ) -> HeadAppend:
        """Appends the ref, as `append` does, if its `sequence` comes next for its producer and the head is open.

        If the head has an entry of the producer, that entry must be the one before `sequence`. If it has none, the
        writer must know that `sequence` is right, in one of two ways:

        - It has looked for the producer outside the head. `looked_at` is the next offset of a head without the entry,
          which the writer read before that. The tail base must not be above it. Then the producer has appended nothing
          since: its ref would still be in the tail, and no producer with a ref in the tail leaves the head
          (docs/adr/0019).
        - `sequence` is a producer's first, and no producer has ever left the head.

        Raises UNKNOWN_PARTITION if there is no head. One conditional update. It is repeated if it may have been
        applied, because its condition refuses a second one.
        """

    def arm(self, key: PartitionKey, seen_next_offset: Offset, now_ms: int) -> tuple[bool, Head | None]:
        """Sets the reader's waiter of the head if its next offset is still the seen one.

        Returns whether it did, and the head then, None if there is none. One conditional update. It is repeated if it
        may have been applied: then it may be refused because of an append that has come between.
        """

    def arm_push(self, key: PartitionKey, seen_next_offset: Offset) -> tuple[bool, Head | None]:
        """Sets the push waiter of the head, as `arm` sets that of readers.

        Every write that raises the next offset takes it out: an append, a transaction, a delivery of timers. The stream
        of the log table tells of it. No other write takes it out (docs/adr/0042).
        """

    def move_to_layout(self, key: PartitionKey, layout: int, closed_ms: int | None) -> Head | None:
        """Closes the head at `closed_ms`, or opens it (None), if `layout` is newer than the head's.

        `closed_offset` keeps the next offset of the first closing. An opened head has a push waiter: a subscription may
        have begun while readers did not know of the partition. Returns the head then, None if there is none. One
        conditional update. It is repeated if it may have been applied: the repeat changes nothing.
        """

    def jump(self, key: PartitionKey, jump: HeadJump, unconfirmed_zones: int) -> tuple[bool, Head | None]:
        """Lets the head go on behind a jump if its next offset is still the seen one.

        It may be closed: timers deliver into it, and it may open again. A reader's waiter stays for the next append.
        Returns what `shorten_tail` returns, and costs the same. It takes the push waiter out, as an append does.
        """

    def name_log(self, key: PartitionKey, log_id: str) -> Head | None:
        """Gives the log this name unless it has one. The head with its name, None without a head. One update."""

    def append_mirrored(self, key: PartitionKey, append: MirrorAppend, unconfirmed_zones: int) -> HeadAppend | None:
        """Appends a push, if the mirror writes the head, and the log is the same and ends where the push begins.

        None without a head. It takes both waiters, as `append` does. One conditional update; it may be repeated,
        because the place refuses a second. With marks, a read, and one transaction that puts them, whatever is there:
        then `took_waiter` is set blindly.
        """

    def promote(
        self, key: PartitionKey, mirror: str, layout: int, closed_ms: int | None, end: LogEnd | None = None
    ) -> Head | None:
        """Ends the mirror's writes: the head is open, or closed at `closed_ms`, and follows `layout`.

        With an `end`, only a log that ends there. The head as it is then, also where an earlier call has done it; None
        without a head. One conditional update.
        """

    def move(self, key: PartitionKey, move: HeadMove) -> Head | None:
        """Ends the log for its mirror, which goes on. No write raises its next offset from then on.

        The head as it is then, also where an earlier call has done it, or the move was given up; None without a head.
        One conditional update.
        """

    def reopen(self, key: PartitionKey, reopened: HeadReopening) -> Head | None:
        """Lets the log of a move that was given up go on. It returns as `move`.

        A log that the move has not ended goes on, too: the move cannot end it later. A `move` may come between the two
        updates of that: then the head returned has its number. One conditional update, or two.
        """

    def return_to(self, key: PartitionKey, move: int, mirror: str) -> Head | None:
        """Lets pushes of `mirror` alone go on with the log of this move. It returns and costs as `move`."""

    def put_offsets(self, topic_id: TopicId, number: int, offsets: MirroredOffsets) -> tuple[int, MirroredOffsets]:
        """Stores what groups of the source have committed, under the number, if the number before it is stored.

        It returns what is stored then, 0 and none if nothing is. One conditional write; it may be repeated, because
        the number refuses a second.
        """

    def find_offsets(self, topic_id: TopicId) -> MirroredOffsets | None:
        """The offsets that `put_offsets` has stored last. One read."""

    def delete_offsets(self, topic_id: TopicId) -> None:
        """Removes what `put_offsets` has stored. One delete."""

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        """The producer's entry of the time when it last left the head, None if it never did. One read."""

    def put_page(self, key: PartitionKey, page: Page) -> Page | None:
        """Puts the page if its key is free, and returns the page that is there now: this one, or an earlier one.

        None if a merge has left its mark there. One conditional put.
        """

    def replace_page(self, key: PartitionKey, old: Page, new: Page) -> bool:
        """Puts the refs of `new` in the place of those of `old`, which has the same range; false if `old` has changed.

        One conditional update.
        """

    def shorten_tail(self, key: PartitionKey, page: Page) -> tuple[bool, Head | None]:
        """Takes the refs of the page out of the tail, as `penstock_core.log.roll.shortened` says.

        Returns whether it did, and the head then, None if there is none. One conditional update. It is repeated if it
        may have been applied: then it may be refused because of its own first attempt.
        """

    def put_evicted(self, key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> None:
        """Puts the producer's own item, which expires `PRODUCER_KEPT_MS` after `evicted_ms`.

        An item stays as it is if it is newer by (epoch, last sequence), or equal and kept longer. One conditional put.
        """

    def remove_producers(self, key: PartitionKey, leaving: Mapping[int, ProducerState]) -> tuple[bool, Head | None]:
        """Takes the producers out of the head if each of their entries is unchanged.

        Returns what `shorten_tail` returns, and costs the same.
        """

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        """The page that covers `offset` and the pages above it, `limit` at most, in order. One query."""

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        """The pages that end at `offset` or below, newest first, `limit` at most. One query."""

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        """Raises the log start offset to `offset`, unless it is as high already, and returns the head after that.

        Raises OFFSET_OUT_OF_RANGE if `offset` is above the high watermark, and UNKNOWN_PARTITION if there is no head.
        One conditional update.
        """

    def count_reader(self, key: PartitionKey) -> Head | None:
        """Raises `reader_changes` of the head, and returns the head after that, None if there is none.

        One conditional update. It may be repeated: the number only has to differ.
        """

    def raise_passed(self, key: PartitionKey, offset: Offset, reader_changes: int) -> tuple[bool, Head | None]:
        """Raises the log start to `offset` if it is lower, and if `reader_changes` is still that number.

        Returns whether it did, and the head then, None if there is none. One conditional update. It is repeated if it
        may have been applied: then its own first attempt may refuse it.
        """

    def mark_stored(self, key: PartitionKey, marks: Mapping[LocatedRef, int]) -> int:
        """Sets the bits of zones in refs of the tail or of pages, and returns how many of these refs there still are.

        The other bits of a ref may differ from those given. A roll takes the bits along. Raises CONCURRENT_UPDATE if
        other writers were faster `MARK_ATTEMPTS_MAX` times; some of the bits may be set then.

        One read of the head. Then one conditional update for `TAIL_ROLL_REFS` refs of the tail, and one query and one
        such update for each page, unless the bits are set.
        """

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        """Notes in the head that its log start was `offset` at `seen_ms`.

        Raises UNKNOWN_PARTITION if there is no head. Such a note stays true for ever, so the order of two notes does
        not matter. One conditional update.
        """

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        """Removes the page whose range ends at `end_offset`, exclusive, if it is there. One delete."""


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
