"""Transactions: appends to many partitions, and offsets of groups, that become visible by one write (docs/adr/0011).

Pure. A transactional producer numbers its transactions, from 0, and on through its epochs. Its item holds the newest
epoch and the number of the last transaction that was committed, and the write that commits one moves that number on: so
a transaction is committed once, in order, and by nobody whose epoch is older. Nothing of it is visible before. A new
epoch leaves the number: whoever begins one learns for good whether the last transaction was committed.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, SegmentId, TransactionalId
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey
from penstock_core.lease import Tenure
from penstock_core.limits import PRODUCER_EPOCH_MAX, TRANSACTION_PARTS_MAX
from penstock_core.producer_state import Verdict
from penstock_core.ref import Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """Who asks: one instance of the producer with that id, told apart from others by its epoch."""

    transactional_id: TransactionalId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transactional id's item. `number` is that of the last committed transaction, -1 for none, and `segments` are
    those that it named."""

    producer_id: int
    epoch: int
    number: int = -1
    segments: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """An offset that a transaction commits for a group; `tenure` None: of a partition that no member owns."""

    group: GroupName
    committed: CommittedOffset
    tenure: Tenure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What becomes visible at once. `unconfirmed` are bitmaps of zones that lack some of the partition's segments."""

    producer: TransactionalProducer
    number: int
    refs: Mapping[PartitionKey, Sequence[Ref]]
    unconfirmed: Mapping[PartitionKey, int] = field(default_factory=dict)
    offsets: Sequence[OffsetCommit] = ()

    @property
    def segments(self) -> tuple[SegmentId, ...]:
        return tuple(dict.fromkeys(ref.segment_id for refs in self.refs.values() for ref in refs))


def next_epoch(state: TransactionState | None, producer_id: int) -> TransactionState:
    """The state with which a new instance begins; with `producer_id` if it is the first, or epochs have run out."""
    if state is None:
        return TransactionState(producer_id=producer_id, epoch=0)
    if state.epoch >= PRODUCER_EPOCH_MAX:
        return replace(state, producer_id=producer_id, epoch=0)
    return replace(state, epoch=state.epoch + 1)


def committed_state(state: TransactionState, transaction: Transaction) -> TransactionState:
    """The item after the transaction was committed."""
    return TransactionState(
        producer_id=state.producer_id,
        epoch=state.epoch,
        number=transaction.number,
        segments=transaction.segments,
    )


def judge_transaction(
    state: TransactionState | None,
    producer: TransactionalProducer,
    number: int,
    segments: Sequence[SegmentId] = (),
) -> Verdict:
    """What transaction `number` of this producer, over these segments, is to a service that knows `state`.

    Raises PRODUCER_FENCED unless the epoch is the newest, OUT_OF_ORDER_SEQUENCE if the number is not the next. That of
    the same segments was committed, whatever has begun since: by an attempt whose answer was lost.
    """
    if state is not None and segments and (state.number, state.segments) == (number, tuple(segments)):
        return Verdict.REPEATS
    if state is None or state.epoch != producer.epoch:
        known = "nothing is known of it" if state is None else f"epoch {state.epoch} has begun since"
        raise PenstockError(
            ErrorCode.PRODUCER_FENCED,
            f"transactional producer {producer.transactional_id!r} with epoch {producer.epoch}: {known}; another "
            "instance has taken over, stop this one",
            maybe_applied=state is not None and state.number >= number,  # in its own time
            epoch=None if state is None else state.epoch,
        )
    if number == state.number:
        return Verdict.REPEATS
    if number == state.number + 1:
        return Verdict.FOLLOWS
    raise PenstockError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"transaction {number} of {producer.transactional_id!r}, epoch {producer.epoch}, after {state.number}: "
        f"{state.number + 1} must come first",
        expected_sequence=state.number + 1,
    )


def check_size(partitions: Set[PartitionKey], offsets: Sequence[OffsetCommit]) -> None:
    """Raises TRANSACTION_TOO_LARGE if one write cannot hold a transaction over these."""
    if len(partitions) + len(offsets) > TRANSACTION_PARTS_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"a transaction over {len(partitions)} partitions and {len(offsets)} offsets: "
            f"{TRANSACTION_PARTS_MAX} together at most. Nothing was written: commit more often, or to fewer partitions",
            limit=TRANSACTION_PARTS_MAX,
        )
