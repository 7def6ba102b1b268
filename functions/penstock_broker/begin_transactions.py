"""A new instance of a transactional producer: it gets the next epoch, and whoever had the one before is fenced."""

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_transactional_id
from penstock_core.transaction import TransactionState, next_epoch

_ATTEMPTS_MAX = 5


def begin_transactions(broker: Broker, transactional_id: str) -> TransactionState:
    """The state to begin with; its last transaction is committed, and all that came after it never will be. One read
    and one update, again if another instance begins at the same time.

    Whatever an older instance has staged and not committed is never seen. Raises INVALID_NAME, CONCURRENT_UPDATE.
    """
    name = parse_transactional_id(transactional_id)
    for attempt in range(_ATTEMPTS_MAX):
        old = broker.transactions.get(name)
        new = next_epoch(old, int.from_bytes(broker.chance.random_bytes(8), "big") >> 1)
        try:
            return broker.transactions.begin_epoch(name, old, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE or attempt == _ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
