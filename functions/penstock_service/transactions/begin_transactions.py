"""An instance of a transactional producer begins the next epoch. That fences the instance that had the last one.

A new instance begins whatever epoch there is. An instance that had an epoch, and could not learn what happened to a
request, begins another one only if its own is still the newest. Otherwise it is fenced: it must not fence the instance
that has taken over. A begin that arrives twice begins once (docs/protocol/transactions).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NO_NONCE, NONCE_BYTES, Nonce, parse_transactional_id
from penstock_core.limits import TRANSACTION_BEGIN_ATTEMPTS_MAX
from penstock_core.records.producer_state import Verdict
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState, judge_begin, next_producer_epoch
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.ports.transactions import TransactionStore
from penstock_service.records.produce import ProduceEntry

NEW_INSTANCE = Begin(nonce=NO_NONCE)


def begin_transactions(instance: Instance, transactional_id: str, begin: Begin = NEW_INSTANCE) -> TransactionState:
    """The state to begin with. Its last transaction is committed, and no later one of an older instance ever will be.

    So no consumer ever sees data that an older instance staged and did not commit. A begin without nonce gets one: it
    repeats no other. The id is kept for `TRANSACTIONAL_ID_KEPT_MS` from now. One read and one update, and both again if
    another instance begins at the same time. Raises INVALID_NAME, CONCURRENT_UPDATE, PRODUCER_FENCED and ACCESS_DENIED.
    """
    name = parse_transactional_id(transactional_id)
    transactions, entropy = instance.stores.transactions, instance.entropy
    if not begin.nonce:
        nonce = Nonce(entropy.random_bytes(NONCE_BYTES))
        begin = Begin(nonce=nonce, last=begin.last, principal=begin.principal)
    for attempt in range(TRANSACTION_BEGIN_ATTEMPTS_MAX):
        old = transactions.get(name)
        if judge_begin(old, name, begin) is Verdict.REPEATS and old is not None:
            return old
        producer_id = int.from_bytes(entropy.random_bytes(8), "big") >> 1
        new = next_producer_epoch(old, producer_id, begin, instance.clock.now_ms())
        try:
            return transactions.begin_epoch(name, old, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE or attempt == TRANSACTION_BEGIN_ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def release_transactional_id(transactions: TransactionStore, transactional_id: str) -> None:
    """Let the id belong to nobody: the next principal that begins with it has it.

    Epoch, number and stages stay. One conditional update. Raises INVALID_NAME and UNKNOWN_PRODUCER.
    """
    name = parse_transactional_id(transactional_id)
    if not transactions.release(name):
        raise PenstockError(
            ErrorCode.UNKNOWN_PRODUCER, f"no producer has ever begun with transactional id {name!r}: check its spelling"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """One request of transaction `number` of the producer: its entries, to be put as `acks` asks for.

    All requests of one transaction carry its `nonce`. Groups that its commit makes count as those of `principal`.
    """

    producer: TransactionalProducer
    number: int
    entries: Sequence[ProduceEntry]
    acks: Acks
    nonce: Nonce = NO_NONCE
    principal: str = ""
