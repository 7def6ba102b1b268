"""Defects put into transactions, in the service and in the SDK. The simulator must find each of them."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.http.steps import Calls
from penstock.producer.transaction_core import TransactionCore
from penstock.producer.transactional.transactional_state import TransactionalState
from penstock_core import transaction as transaction_module
from penstock_core.errors import PenstockError
from penstock_core.ids import NO_NONCE, NONCE_BYTES, Nonce
from penstock_core.records.producer_state import Verdict
from penstock_core.transaction import Begin, judge_begin, judge_transaction, next_producer_epoch
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.transactions import begin_transactions as begin_module
from penstock_service.transactions import commit_transaction as commit_module
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.workloads import transactions as workload


def _stages_share_a_key() -> Patch:
    put, stages = DynamoDbTransactionStore.put_stage, DynamoDbTransactionStore.stages

    def put_stage(store: Any, producer: Any, transaction: int, _: Nonce, *rest: Any) -> None:
        put(store, producer, transaction, NO_NONCE, *rest)

    def all_stages(store: Any, producer: Any, transaction: int, _: Nonce) -> Any:
        return stages(store, producer, transaction, NO_NONCE)

    return patch.multiple(DynamoDbTransactionStore, put_stage=put_stage, stages=all_stages)


def _outcome_is_learnt_by_the_number() -> Patch:
    def learn(core: TransactionCore, failure: PenstockError) -> Calls[None]:
        try:
            yield from core._state.begin_epoch()
        except PenstockError as error:
            if int(error.facts.get("last_transaction") or -1) < core._number:
                raise failure from None
            return
        if core._state.number == core._number:
            failure.maybe_applied = False
            raise failure

    return patch.object(TransactionCore, "_learn", learn)


def _begin_without_nonce() -> Patch:
    fresh = iter(range(10**9))

    def judge(state: Any, name: Any, begin: Begin) -> Verdict:
        return judge_begin(state, name, replace(begin, nonce=Nonce(next(fresh).to_bytes(NONCE_BYTES))))

    return patch.object(begin_module, "judge_begin", judge)


def _begin_without_the_last_epoch() -> Patch:
    def judge(state: Any, name: Any, begin: Begin) -> Verdict:
        return judge_begin(state, name, replace(begin, last=None))

    return patch.object(begin_module, "judge_begin", judge)


def _late_begin_begins_anew() -> Patch:
    """The item remembers the newest begin only."""

    def next_epoch(*arguments: Any) -> Any:
        state = next_producer_epoch(*arguments)
        return replace(state, begins=state.begins[:1])

    return patch.object(begin_module, "next_producer_epoch", next_epoch)


def _fenced_begin_is_forgotten() -> Patch:
    """An instance that learns that it is fenced begins as if it were a new one."""
    original = TransactionalState.failed

    def failed(state: TransactionalState, error: PenstockError) -> None:
        original(state, error)
        state._fenced, state._last, state._begin_nonce = None, {}, ""

    return patch.object(TransactionalState, "failed", failed)


def _later_try_denies() -> Patch:
    return patch.object(workload, "final_error", lambda _, error, **__: error)


def _repeat_is_known_by_its_number() -> Patch:
    def judge(state: Any, producer: Any, number: int, _nonce: Nonce, segments: Any = ()) -> Verdict:
        newest = producer if state is None else replace(producer, epoch=state.epoch)
        return judge_transaction(state, newest, number, NO_NONCE, segments)

    return patch.object(commit_module, "judge_transaction", judge)


def _gathered_sends_do_not_wait() -> Patch:
    def until_staged(_: TransactionCore) -> Calls[None]:
        yield from ()

    return patch.object(TransactionCore, "_until_staged", until_staged)


def _forgotten_id_counts_from_0() -> Patch:
    def next_epoch(state: Any, *arguments: Any) -> Any:
        new = next_producer_epoch(state, *arguments)
        return replace(new, number=-1) if state is None else new

    return patch.object(begin_module, "next_producer_epoch", next_epoch)


def _forgotten_id_denies_all() -> Patch:
    """It says that its last transaction has a number below all others."""
    original = transaction_module._fenced

    def fenced(state: Any, *arguments: Any, **named: Any) -> PenstockError:
        error = original(state, *arguments, **named)
        if state is None:
            error.facts["last_transaction"] = -1
        return error

    return patch.object(transaction_module, "_fenced", fenced)


def _zombie_of_a_forgotten_id_begins() -> Patch:
    def judge(state: Any, name: Any, begin: Begin) -> Verdict:
        return judge_begin(state, name, replace(begin, last=None) if state is None else begin)

    return patch.object(begin_module, "judge_begin", judge)


def _commit_leaves_the_end() -> Patch:
    return patch.object(commit_module, "id_expiry_s", lambda now_ms: now_ms // 1_000)


TRANSACTION_MUTANTS = [
    Mutant(name, workload_name, patched)
    for workload_name, name, patched in (
        ("transactions", "stages of two transactions share a key", _stages_share_a_key),
        ("transactions", "outcome learnt by the number", _outcome_is_learnt_by_the_number),
        ("transactions", "begin without nonce", _begin_without_nonce),
        ("transactions", "begin without the last epoch", _begin_without_the_last_epoch),
        ("transactions", "late begin begins anew", _late_begin_begins_anew),
        ("transactions", "fenced instance begins as a new one", _fenced_begin_is_forgotten),
        ("transactions", "later try denies what an earlier one did", _later_try_denies),
        ("transactions", "repeat known by its number", _repeat_is_known_by_its_number),
        ("transactions", "gathered sends do not wait for the stage", _gathered_sends_do_not_wait),
        ("forgetting", "forgotten id counts from 0", _forgotten_id_counts_from_0),
        ("forgetting", "forgotten id denies all", _forgotten_id_denies_all),
        ("forgetting", "zombie of a forgotten id begins", _zombie_of_a_forgotten_id_begins),
        ("forgetting", "commit leaves the end", _commit_leaves_the_end),
    )
]
