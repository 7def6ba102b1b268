"""TransactionStore in memory, over the other stores of the same service. A commit holds those that it changes."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import refusal
from penstock_core.ids import Nonce, PartitionKey, TransactionalId
from penstock_core.log.index import partition_closed, unknown_partition
from penstock_core.log.timer import timer_exists
from penstock_core.share.share_update import apply
from penstock_core.storage.dynamodb_limits import check_actions
from penstock_core.storage.transactions.transaction_stage_item import StagedRef
from penstock_core.transaction import (
    DeliveryCommit,
    Move,
    ShareCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
    committed_state,
    lock_lost,
    may_commit,
)
from penstock_service.adapters.memory.contention import Contention, held_items
from penstock_service.adapters.memory.groups import MemoryGroupStore
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.adapters.memory.push import MemoryPushStore
from penstock_service.adapters.memory.share import MemoryShareStore
from penstock_service.adapters.memory.timers import MemoryTimerStore


class MemoryTransactionStore:
    """TransactionStore: the port documents its methods."""

    def __init__(
        self,
        log: MemoryLogIndex,
        groups: MemoryGroupStore,
        share: MemoryShareStore,
        timers: MemoryTimerStore,
        push: MemoryPushStore,
        contention: Contention | None = None,
    ) -> None:
        self._log = log
        self._timers = timers
        self._contention = contention
        self._groups = groups
        self._share = share
        self._push = push
        self._lock = threading.Lock()
        self._states: dict[TransactionalId, TransactionState] = {}
        self._stages: dict[tuple[TransactionalId, int, int, Nonce], dict[int, Sequence[StagedRef]]] = {}

    def get(self, transactional_id: TransactionalId) -> TransactionState | None:
        return self._states.get(transactional_id)

    def begin_epoch(
        self, transactional_id: TransactionalId, old: TransactionState | None, new: TransactionState
    ) -> TransactionState:
        with self._lock:
            stored = self._states.get(transactional_id)
            if _epoch(stored) != _epoch(old):
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    f"another instance of producer {transactional_id!r} has begun at the same time: try again",
                )
            current = stored or new
            self._states[transactional_id] = replace(
                new, number=current.number, segments=current.segments, nonce=current.nonce
            )
            return self._states[transactional_id]

    def release(self, transactional_id: TransactionalId) -> bool:
        with self._lock:
            stored = self._states.get(transactional_id)
            if stored is not None:
                self._states[transactional_id] = replace(stored, principal="")
            return stored is not None

    def put_stage(
        self,
        producer: TransactionalProducer,
        transaction: int,
        nonce: Nonce,
        stage: int,
        refs: Sequence[StagedRef],
        now_ms: int,  # noqa: ARG002 - memory keeps a stage for ever
    ) -> None:
        with self._lock:
            key = producer.transactional_id, producer.epoch, transaction, nonce
            self._stages.setdefault(key, {})[stage] = refs

    def stages(self, producer: TransactionalProducer, transaction: int, nonce: Nonce) -> Sequence[Sequence[StagedRef]]:
        with self._lock:
            key = producer.transactional_id, producer.epoch, transaction, nonce
            return [refs for _, refs in sorted(self._stages.get(key, {}).items())]

    def commit(self, transaction: Transaction) -> bool:
        producer = transaction.producer
        check_actions(
            1 + len(transaction.refs) + len(transaction.offsets) + len(transaction.shares) + len(transaction.timers)
        )
        items = [*transaction.refs, *(each.key for each in transaction.shares)]
        with held_items(self._contention, items), self._lock, self._log.held(), self._groups.held(), self._share.held():
            state = self._states.get(producer.transactional_id)
            if state is None or not may_commit(state, transaction):
                return False
            self._check(transaction)
            for key, refs in transaction.refs.items():
                self._log.append_held(key, refs)
            for timer in transaction.timers:
                self._timers.put(timer)
            for each in transaction.offsets:
                self._groups.commit(each.group, each.committed, each.token, True, each.may_create)
            for share in transaction.shares:
                self._share.update_held(share.key, share.update)
            self._states[producer.transactional_id] = committed_state(state, transaction)
            return True

    def move(self, move: Move) -> bool:
        check_actions(len(move.refs) + len(move.shares) + len(move.deliveries))
        items = [*move.refs, *(each.key for each in move.shares), *(each.key for each in move.deliveries)]
        with held_items(self._contention, items), self._log.held(), self._share.held(), self._push.held():
            if self._first_refused(move.shares) is not None or not all(map(self._is_next, move.deliveries)):
                return False
            self._check_heads(move.refs)
            for key, refs in move.refs.items():
                self._log.append_held(key, refs)
            for share in move.shares:
                self._share.update_held(share.key, share.update)
            for each in move.deliveries:
                self._push.put_delivery_held(each.key, each.state)
            return True

    def _is_next(self, commit: DeliveryCommit) -> bool:
        """True if the stored state is the one before."""
        stored = self._push.find_deliveries([commit.key]).get(commit.key)
        return commit.state.version == 1 + (0 if stored is None else stored.version)

    def _first_refused(self, shares: Sequence[ShareCommit]) -> ShareCommit | None:
        """The first share update whose conditions do not hold."""
        states = self._share.find_states([each.key for each in shares])
        return next((each for each in shares if apply(states.get(each.key), each.update) is None), None)

    def _check_heads(self, partitions: Iterable[PartitionKey]) -> None:
        wanted = [*partitions]
        heads = self._log.heads(wanted)
        for key in wanted:
            if key not in heads:
                raise unknown_partition(key)
            if heads[key].is_closed:
                raise partition_closed(key)

    def _check(self, transaction: Transaction) -> None:
        self._check_heads(transaction.refs)
        for timer in transaction.timers:
            if self._timers.get(timer.key, timer.place) is not None:
                raise timer_exists(timer)
        for each in transaction.offsets:
            key = each.committed.partition
            lease = self._groups.find_leases(each.group, [key]).get(key)
            offset = each.committed.offset
            if error := refusal(lease, key, offset, each.token, may_go_back=True, may_create=each.may_create):
                raise error
        if (refused := self._first_refused(transaction.shares)) is not None:
            raise lock_lost(refused.key)


def _epoch(state: TransactionState | None) -> tuple[int, int] | None:
    return None if state is None else (state.producer_id, state.epoch)
