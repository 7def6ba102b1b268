"""TransactionStore in memory, over the log and the groups of the same service: both are held for a commit."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock_broker.adapters.memory_groups import MemoryGroupStore
from penstock_broker.adapters.memory_log import MemoryLogIndex
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.index import unknown_partition
from penstock_core.lease import refusal
from penstock_core.transaction import Transaction, TransactionalProducer, TransactionState, committed_state
from penstock_core.transaction_items import StagedRef


class MemoryTransactionStore:
    """TransactionStore."""

    def __init__(self, log: MemoryLogIndex, groups: MemoryGroupStore) -> None:
        self._log = log
        self._groups = groups
        self._lock = threading.Lock()
        self._states: dict[TransactionalId, TransactionState] = {}
        self._stages: dict[tuple[TransactionalProducer, int], dict[int, Sequence[StagedRef]]] = {}

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
            self._states[transactional_id] = replace(current, producer_id=new.producer_id, epoch=new.epoch)
            return self._states[transactional_id]

    def put_stage(
        self,
        producer: TransactionalProducer,
        transaction: int,
        stage: int,
        refs: Sequence[StagedRef],
        now_ms: int,  # noqa: ARG002 - here it is kept for ever
    ) -> None:
        with self._lock:
            self._stages.setdefault((producer, transaction), {})[stage] = refs

    def stages(self, producer: TransactionalProducer, transaction: int) -> Sequence[Sequence[StagedRef]]:
        with self._lock:
            return [refs for _, refs in sorted(self._stages.get((producer, transaction), {}).items())]

    def commit(self, transaction: Transaction) -> bool:
        producer = transaction.producer
        with self._lock, self._log.held(), self._groups.held():
            state = self._states.get(producer.transactional_id)
            if state is None or (state.epoch, state.number) != (producer.epoch, transaction.number - 1):
                return False
            self._check(transaction)
            for key, refs in transaction.refs.items():
                for ref in refs:
                    self._log.append(key, ref, transaction.unconfirmed.get(key, 0))
            for each in transaction.offsets:
                self._groups.commit(each.group, each.committed, each.tenure, True)
            self._states[producer.transactional_id] = committed_state(state, transaction)
            return True

    def _check(self, transaction: Transaction) -> None:
        heads = self._log.heads([*transaction.refs])
        for key in transaction.refs:
            if key not in heads:
                raise unknown_partition(key)
        for each in transaction.offsets:
            key = each.committed.partition
            lease = self._groups.find_leases(each.group, [key]).get(key)
            if error := refusal(lease, key, each.committed.offset, each.tenure, may_go_back=True):
                raise error


def _epoch(state: TransactionState | None) -> tuple[int, int] | None:
    return None if state is None else (state.producer_id, state.epoch)
