"""The port of transactions. `penstock_service.ports` says what all methods raise."""

from collections.abc import Sequence
from typing import Protocol

from penstock_core.ids import Nonce, TransactionalId
from penstock_core.storage.transaction_items import StagedRef
from penstock_core.transaction import Move, MoveOutcome, Transaction, TransactionalProducer, TransactionState


class TransactionStore(Protocol):
    """Transactional producers, and the one write that commits a transaction. Reads are consistent."""

    def get(self, transactional_id: TransactionalId) -> TransactionState | None:
        """The producer's state, or None if it never began, or was forgotten. One read."""

    def begin_epoch(
        self, transactional_id: TransactionalId, old: TransactionState | None, new: TransactionState
    ) -> TransactionState:
        """Stores the producer id, epoch, end, begins and principal of `new`, and returns the state after that.

        The last transaction in the state stays as it is. Raises CONCURRENT_UPDATE unless the stored epoch is still the
        one of `old`. One conditional update, never repeated once it may have been applied.
        """

    def release(self, transactional_id: TransactionalId) -> bool:
        """Lets the id belong to nobody. False if it never began. One conditional update."""

    def renew(self, producer: TransactionalProducer, expires_at_s: int) -> bool:
        """Puts the id's end off. False if the producer's epoch is not the newest. One conditional update."""

    def put_stage(
        self,
        producer: TransactionalProducer,
        transaction: int,
        nonce: Nonce,
        stage: int,
        refs: Sequence[StagedRef],
        now_ms: int,
    ) -> None:
        """Keeps the refs of a stage for a day at least, in place of earlier refs of the same stage. One put."""

    def stages(self, producer: TransactionalProducer, transaction: int, nonce: Nonce) -> Sequence[Sequence[StagedRef]]:
        """The refs of the stages with this nonce, in the order of the stages. One query for each MB."""

    def commit(self, transaction: Transaction) -> bool:
        """Commits all of the transaction or nothing.

        False, and nothing is changed, where the producer has another epoch, its last transaction is not the one before
        this, or it belongs to another principal. Raises UNKNOWN_PARTITION if a partition has no head, PARTITION_CLOSED
        if its head is closed, the errors of `GroupStore.commit` for an offset, LOCK_LOST if a condition of a share
        update does not hold, and TIMER_EXISTS if a timer's id is taken. One transaction, and one read if an offset or a
        head is refused. It is repeated if it may have been applied, because its conditions refuse a second one.
        """

    def move(self, move: Move) -> MoveOutcome:
        """Appends the refs, makes the share updates, stores the states of deliveries, notes runs: all or nothing.

        Not applied, and nothing is changed, if a condition of a share update does not hold, the stored version of a
        delivery is not the one before its state's, or a schedule is not as its run has read it. With `maybe_applied`,
        that may be so because of this call's own first attempt: read the share items again; a stored state that equals
        the move's means done. Raises UNKNOWN_PARTITION if a partition has no head, and PARTITION_CLOSED if it is
        closed. One transaction, and one read then. It is repeated if it may have been applied, because the share
        updates, the states and the due times refuse a second one.
        """
