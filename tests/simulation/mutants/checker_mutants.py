"""Defects that the history checker must find in what clients saw, while the workloads' own checks are off."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from penstock_core.groups.lease import Lease
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head
from penstock_core.transaction import Transaction, TransactionState
from penstock_service.adapters.dynamodb.groups import DynamoDbGroupStore
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.instance.instance import Instance
from penstock_service.records import fetch as fetch_module
from tests.history.model.anomaly import Kind
from tests.simulation.clients import share_worker
from tests.simulation.mutants.group_mutants import GROUP_MUTANTS
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.mutants.push_mutants import PUSH_MUTANTS
from tests.simulation.mutants.share_mutants import SHARE_MUTANTS
from tests.simulation.oracle import pushes, share_handouts, shares
from tests.simulation.oracle import transactions as transaction_checks
from tests.simulation.service import push_service
from tests.simulation.workloads import groups, transactions
from tests.simulation.workloads.sharing import worked_group
from tests.support.service import with_stores

_WITH_CHECKS = (
    *(groups, transactions, transaction_checks, shares, share_handouts, share_worker, worked_group, pushes),
    push_service,
)
_REMEMBERED_MS = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerMutant:
    """A defect, and the kind of anomaly that its histories have."""

    mutant: Mutant
    kind: Kind

    @contextmanager
    def patched(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in _WITH_CHECKS:
                stack.enter_context(patch.object(module, "expect", lambda *_: None))
            stack.enter_context(self.mutant.patched())
            yield


def _lease_is_granted_with(offset_of: Any) -> Patch:
    original = DynamoDbGroupStore.take_lease

    def take(store: DynamoDbGroupStore, *arguments: Any) -> Lease:
        lease = original(store, *arguments)
        return replace(lease, offset=offset_of(lease.offset))

    return patch.object(DynamoDbGroupStore, "take_lease", take)


@contextmanager
def _last_transaction_is_forgotten() -> Iterator[None]:
    begin, state_update = DynamoDbTransactionStore.begin_epoch, DynamoDbTransactionStore._state_update

    def begin_epoch(store: DynamoDbTransactionStore, *arguments: Any) -> TransactionState:
        state = begin(store, *arguments)
        return replace(state, number=max(-1, state.number - 1))

    def after_any(store: DynamoDbTransactionStore, transaction: Transaction) -> dict[str, Any]:
        update = state_update(store, transaction)
        del update["ExpressionAttributeValues"][":before"]
        condition = update["ConditionExpression"].replace("transaction_number = :before", "attribute_exists(pk)")
        return {**update, "ConditionExpression": condition}

    with (
        patch.object(DynamoDbTransactionStore, "begin_epoch", begin_epoch),
        patch.object(DynamoDbTransactionStore, "_state_update", after_any),
    ):
        yield


def _heads_are_remembered() -> Patch:
    original = fetch_module._look
    remembered: dict[tuple[int, PartitionKey], tuple[float, Head]] = {}

    class Remembering:
        def __init__(self, instance: Instance) -> None:
            self._instance = instance

        def heads(self, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Head]:
            now_ms, whose = self._instance.clock.monotonic_ms(), id(self._instance)
            for key, head in self._instance.stores.log.heads(keys).items():
                if now_ms - remembered.get((whose, key), (-_REMEMBERED_MS, head))[0] >= _REMEMBERED_MS:
                    remembered[whose, key] = now_ms, head
            return {key: remembered[whose, key][1] for key in keys if (whose, key) in remembered}

    def look(instance: Instance, entries: Any) -> Any:
        return original(with_stores(instance, log=Remembering(instance)), entries)

    return patch.object(fetch_module, "_look", look)


_OF_SHARE_GROUPS = {
    "share: deliveries not counted": Kind.DELIVERY_COUNT,
    "share: burial without condition": Kind.DEAD_LETTER_TWICE,
    "share: buried early": Kind.WRONG_DEAD_LETTER,
    "share: key order ignored": Kind.KEY_OVERTAKEN,
    "share: locks taken early": Kind.TWO_LOCKS,
    "share: rejected is finished": Kind.UNFINISHED,
}
_OF_SUBSCRIPTIONS = {
    "batch in another order": Kind.HANDLED_LATE,
    "half committed as the whole": Kind.UNHANDLED,
    "state put without its condition": Kind.DEAD_LETTER_TWICE,
}
_COMMIT_COUNTS = next(each for each in GROUP_MUTANTS if each.name == "commit counts for any member")
CHECKER_MUTANTS = [
    CheckerMutant(mutant=_COMMIT_COUNTS, kind=Kind.TWO_OWNERS),
    *(
        CheckerMutant(mutant=mutant, kind=_OF_SHARE_GROUPS[mutant.name])
        for mutant in SHARE_MUTANTS
        if mutant.name in _OF_SHARE_GROUPS
    ),
    *(
        CheckerMutant(mutant=mutant, kind=_OF_SUBSCRIPTIONS[mutant.name])
        for mutant in PUSH_MUTANTS
        if mutant.name in _OF_SUBSCRIPTIONS
    ),
    *(
        CheckerMutant(mutant=Mutant(name, workload, patched), kind=kind)
        for name, workload, kind, patched in (
            (
                "lease is granted past what was committed",
                "groups",
                Kind.GROUP_SKIP,
                lambda: _lease_is_granted_with(lambda offset: (offset or 0) + 1),
            ),
            (
                "lease is granted without what was committed",
                "groups",
                Kind.COMMIT_BACK,
                lambda: _lease_is_granted_with(lambda _: None),
            ),
            ("last transaction is forgotten", "transactions", Kind.REPEATED_EFFECT, _last_transaction_is_forgotten),
            ("heads are remembered", "transactions", Kind.TORN_TRANSACTION, _heads_are_remembered),
        )
    ),
]
