"""Transactions: appends to many partitions, and offsets of groups, that one write makes visible (docs/adr/0011).

Pure. A transactional producer numbers its transactions one by one, and its epochs do not reset the number. Its item
holds the newest epoch and the number of the last committed transaction. The write that commits a transaction moves that
number on. So each transaction is committed once, in order, and never by an older epoch. Nothing of it is visible
before.

An id that rests for `TRANSACTIONAL_ID_KEPT_MS` is forgotten. Its first number is the time of its first begin, so all
numbers of a later life of the id are above those of an earlier one (docs/protocol/transactions).

The client draws a nonce for each transaction and for each begin. A commit writes its nonce into the item. So the client
compares nonces to learn whether its own transaction was committed: a number may be another instance's
(docs/protocol/transactions).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset, LeaseToken
from penstock_core.ids import NO_NONCE, GroupName, Nonce, PartitionKey, SegmentId, TransactionalId
from penstock_core.limits import (
    PRODUCER_EPOCH_MAX,
    TRANSACTION_BEGINS_KEPT,
    TRANSACTION_PARTS_MAX,
    TRANSACTIONAL_ID_KEPT_MS,
    TRANSACTIONAL_ID_RENEWED_MS,
)
from penstock_core.log.ref import Ref
from penstock_core.log.timer import Timer
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.records.producer_state import Verdict
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.share_state import ShareKey

if TYPE_CHECKING:  # most transactions have none
    from penstock_core.schedules.schedule import ScheduleRun

_KEPT_DAYS = TRANSACTIONAL_ID_KEPT_MS // (24 * 3_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """One instance of the producer with that id. Its epoch tells it from other instances.

    `principal` stands for the caller that speaks as this instance, "" if nothing tells who calls.
    """

    transactional_id: TransactionalId
    epoch: int
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A wish to begin an epoch.

    `last` is the producer id and epoch that the caller had, None for a new instance. A caller that repeats its begin
    sends the same `nonce`.
    """

    nonce: Nonce
    last: tuple[int, int] | None = None
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transactional id's item.

    `number` is that of the last committed transaction. Before the first it is one below the number of that.
    `segments` are the segments that it named, and `nonce` is its nonce. `begins` are the nonces of the last begins, the
    newest first. `principal` is whom the id belongs to, "" for nobody. DynamoDB forgets the id some time after
    `expires_at_s`, and the state counts until then. An item of an earlier version may have -1, and no end: None.
    """

    producer_id: int
    epoch: int
    number: int = -1
    expires_at_s: int | None = None
    segments: tuple[SegmentId, ...] = ()
    nonce: Nonce = NO_NONCE
    begins: tuple[Nonce, ...] = ()
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """An offset that a transaction commits for a group.

    `token` is None if no member owns the partition. Unless it `may_create`, the group has a lease there.
    """

    group: GroupName
    committed: CommittedOffset
    token: LeaseToken | None
    may_create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCommit:
    """An update of a share item that a transaction makes. One transaction has one for each share item at most.

    Nothing tells whether it took a waiter: leave `takes_waiter` false, and read the share item afterwards.
    """

    key: ShareKey
    update: ShareUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCommit:
    """The next state of a subscription in a partition. Its version is one more than that of the stored state."""

    key: DeliveryKey
    state: DeliveryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Records that a share group or a subscription is done with, and that are appended elsewhere at once.

    They are dead letters, their way back, a subscription's copies, or records of schedules. A move has no number and no
    producer. Its share updates expect what they take away, its deliveries the version before their own, and its runs of
    schedules the due time that they move on. So they refuse a second application. At least one share update must take
    an entry away, or there must be a delivery or a run.
    """

    shares: Sequence[ShareCommit] = ()
    deliveries: Sequence[DeliveryCommit] = ()
    runs: "Sequence[ScheduleRun]" = ()
    refs: Mapping[PartitionKey, Sequence[Ref]]
    unconfirmed: Mapping[PartitionKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """What happened to a move. `maybe_applied`: it was refused, and an attempt without an answer came before that."""

    is_applied: bool
    maybe_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The refs, offsets and changes of share items that become visible at once, and the timers that begin to wait.

    `unconfirmed` has for each partition the bitmap of zones that lack some of its segments. `expires_at_s` is the new
    end of the producer's id.
    """

    producer: TransactionalProducer
    number: int
    expires_at_s: int
    refs: Mapping[PartitionKey, Sequence[Ref]]
    nonce: Nonce = NO_NONCE
    unconfirmed: Mapping[PartitionKey, int] = field(default_factory=dict)
    offsets: Sequence[OffsetCommit] = ()
    shares: Sequence[ShareCommit] = ()
    timers: Sequence[Timer] = ()

    @property
    def segments(self) -> tuple[SegmentId, ...]:
        """The segments that the refs and timers name, each once, in the order of the refs."""
        refs = (ref for refs in self.refs.values() for ref in refs)
        return tuple(dict.fromkeys(ref.segment_id for ref in (*refs, *(timer.ref for timer in self.timers))))


def judge_begin(state: TransactionState | None, transactional_id: TransactionalId, begin: Begin) -> Verdict:
    """REPEATS if the newest epoch is that of this very begin, else FOLLOWS.

    Raises PRODUCER_FENCED if another instance has begun since the caller's last epoch, or since an earlier try of this
    begin. Raises ACCESS_DENIED if the id belongs to another principal.
    """
    _check_principal(state, transactional_id, begin.principal)
    if state is not None and state.begins[:1] == (begin.nonce,):
        return Verdict.REPEATS
    is_overtaken = state is not None and begin.nonce in state.begins
    last = None if state is None else (state.producer_id, state.epoch)
    if is_overtaken or (begin.last is not None and begin.last != last):
        raise _fenced(state, transactional_id, "the epoch that it had", maybe_applied=False)
    return Verdict.FOLLOWS


def id_expiry_s(now_ms: int) -> int:
    """The end of an id that is used now, in seconds since 1970."""
    return (now_ms + TRANSACTIONAL_ID_KEPT_MS) // 1_000


def must_renew(state: TransactionState, now_ms: int) -> bool:
    """True if the id could end before a transaction that is staged now."""
    return state.expires_at_s is not None and state.expires_at_s * 1_000 < now_ms + TRANSACTIONAL_ID_RENEWED_MS


def next_producer_epoch(
    state: TransactionState | None, producer_id: int, begin: Begin, now_ms: int
) -> TransactionState:
    """The state with which an instance begins.

    It takes `producer_id` if it is the first instance, or if the old id has run out of epochs (`PRODUCER_EPOCH_MAX`).
    The id belongs to its principal from now on. The number of its first transaction is `now_ms`.
    """
    if state is None:
        return TransactionState(
            producer_id=producer_id,
            epoch=0,
            number=now_ms - 1,
            expires_at_s=id_expiry_s(now_ms),
            begins=(begin.nonce,),
            principal=begin.principal,
        )
    has_run_out = state.epoch >= PRODUCER_EPOCH_MAX
    return replace(
        state,
        producer_id=producer_id if has_run_out else state.producer_id,
        epoch=0 if has_run_out else state.epoch + 1,
        expires_at_s=id_expiry_s(now_ms),
        begins=(begin.nonce, *state.begins)[:TRANSACTION_BEGINS_KEPT],
        principal=state.principal or begin.principal,
    )


def judge_transaction(
    state: TransactionState | None,
    producer: TransactionalProducer,
    number: int,
    nonce: Nonce = NO_NONCE,
    segments: Sequence[SegmentId] = (),
) -> Verdict:
    """The verdict on transaction `number` of this producer, over these segments, by the stored `state`.

    REPEATS means that this transaction is the last committed one, whatever epoch has begun since: an attempt whose
    answer was lost has committed it. Its nonce tells. A transaction without a nonce is recognised by its segments, or
    by its number while its epoch is the newest.

    Raises ACCESS_DENIED if the id belongs to another principal. Raises PRODUCER_FENCED unless the epoch is the newest.
    Raises OUT_OF_ORDER_SEQUENCE if the number is not the next. The errors say `maybe_applied` if the transaction may
    have been committed, and the state does not tell: a later one was, or the id was forgotten since.
    """
    _check_principal(state, producer.transactional_id, producer.principal)
    if state is not None and state.number == number:
        is_same = state.nonce == nonce if nonce else bool(segments) and state.segments == tuple(segments)
        if is_same:
            return Verdict.REPEATS
    # A number is committed once: if it was committed under another nonce, this transaction was not.
    last_sure = number if nonce else number - 1
    maybe_applied = state is None or state.number > last_sure
    if state is None or state.epoch != producer.epoch:
        raise _fenced(state, producer.transactional_id, f"epoch {producer.epoch}", maybe_applied=maybe_applied)
    if number == state.number and not nonce:
        return Verdict.REPEATS
    if number == state.number + 1:
        return Verdict.FOLLOWS
    raise PenstockError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"transaction {number} of {producer.transactional_id!r}, epoch {producer.epoch}, after {state.number}: "
        f"{state.number + 1} must come first",
        maybe_applied=maybe_applied,
        expected_sequence=state.number + 1,
    )


def _fenced(
    state: TransactionState | None, transactional_id: TransactionalId, what: str, *, maybe_applied: bool
) -> PenstockError:
    """`last_transaction` and `last_nonce` let the caller learn whether its own last transaction was committed.

    Without a state they are None and "": a number below all would tell it that the transaction was not.
    """
    known = (
        f"nothing is known of it. It has never begun, or has rested for {_KEPT_DAYS} days: start another instance"
        if state is None
        else f"epoch {state.epoch} has begun since; another instance has taken over, stop this one"
    )
    return PenstockError(
        ErrorCode.PRODUCER_FENCED,
        f"transactional producer {transactional_id!r} with {what}: {known}",
        maybe_applied=maybe_applied,
        epoch=None if state is None else state.epoch,
        last_transaction=None if state is None else state.number,
        last_nonce="" if state is None else state.nonce.hex(),
    )


def _check_principal(state: TransactionState | None, transactional_id: TransactionalId, principal: str) -> None:
    if state is not None and state.principal not in ("", principal):
        raise PenstockError(
            ErrorCode.ACCESS_DENIED,
            f"transactional id {transactional_id!r} belongs to the IAM role or user that began it first, which is not "
            "yours: choose another id, or let an operator release this one "
            f"(POST /v1/producers/{transactional_id}/release)",
        )


def lock_lost(key: ShareKey) -> PenstockError:
    """The error of a transaction whose update of a share item was refused."""
    return PenstockError(
        ErrorCode.LOCK_LOST,
        f"the locks on partition {key.partition} of topic id {key.topic_id} are not as they were. Acquire the "
        "records again",
        topic_id=key.topic_id,
        partition=key.partition,
    )


def check_transaction_size(
    partitions: Set[PartitionKey],
    offsets: Sequence[OffsetCommit],
    shares: Sequence[ShareCommit] = (),
    *,
    timers: int = 0,
) -> None:
    """Raises TRANSACTION_TOO_LARGE if one write cannot hold a transaction over so many parts."""
    counts = {
        "partitions": len(partitions),
        "offsets": len(offsets),
        "share items": len(shares),
        "delayed batches": timers,
    }
    if sum(counts.values()) > TRANSACTION_PARTS_MAX:
        *others, last = [f"{count} {name}" for name, count in counts.items() if count]
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"a transaction over {' and '.join([', '.join(others), last] if others else [last])}: "
            f"{TRANSACTION_PARTS_MAX} together at most. Nothing was written: commit more often, or to fewer partitions",
            limit=TRANSACTION_PARTS_MAX,
        )
