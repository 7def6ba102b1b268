"""The codes by which the APIs of transactions refuse, and the older codes for clients that do not know them.

| the gateway says            | so the client        | versions that do not know it get                 |
|-----------------------------|----------------------|--------------------------------------------------|
| INVALID_PRODUCER_ID_MAPPING | aborts, begins anew  |                                                  |
| TRANSACTION_ABORTABLE       | aborts               | POLICY_VIOLATION of Produce, else the code above |
| PRODUCER_FENCED             | stops                | INVALID_PRODUCER_EPOCH                           |
| INVALID_TXN_STATE           | stops                |                                                  |
| COORDINATOR_NOT_AVAILABLE   | asks again           |                                                  |
"""

from collections.abc import Mapping

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import ApiKey, Call
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error

_NEVER = 1_000
_ABORTABLE_SINCE: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
_FENCED_SINCE: Mapping[ApiKey, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_FITTER: Mapping[ErrorCode, KafkaError] = {
    ErrorCode.ACCESS_DENIED: KafkaError.transactional_id_authorization_failed,
    ErrorCode.INVALID_NAME: KafkaError.invalid_request,
    ErrorCode.CONCURRENT_UPDATE: KafkaError.concurrent_transactions,
}


def unknown_epoch(name: str) -> RequestRefused:
    """This gateway did not begin the epoch, or it has ended: the transaction is lost, and was never committed."""
    return RequestRefused(
        KafkaError.invalid_producer_id_mapping,
        f"transactional id {name!r}: this gateway has not begun this epoch. Abort, and take another epoch",
    )


def fenced(name: str) -> RequestRefused:
    """Another instance has begun."""
    return RequestRefused(KafkaError.producer_fenced, f"transactional id {name!r}: another instance has begun, stop")


def abortable(why: str) -> RequestRefused:
    """The transaction cannot go on, and was not committed."""
    return RequestRefused(KafkaError.transaction_abortable, f"{why}. Abort the transaction")


def wrong_state(why: str) -> RequestRefused:
    """The request does not fit the transaction, or the outcome of a commit is not known."""
    return RequestRefused(KafkaError.invalid_txn_state, why)


def code_for(error: PenstockError | RequestRefused, call: Call) -> KafkaError:
    """The code that tells the client of this version what to do."""
    code = transaction_error(error, call.key)
    is_new = call.version >= _ABORTABLE_SINCE.get(call.key, _NEVER)
    if code is KafkaError.transaction_abortable and not is_new:
        is_produce = call.key is ApiKey.PRODUCE
        return KafkaError.policy_violation if is_produce else KafkaError.invalid_producer_id_mapping
    if code is KafkaError.invalid_producer_id_mapping and call.key is ApiKey.PRODUCE and is_new:
        return KafkaError.transaction_abortable  # Java 4 stops for good after the other code
    if code is KafkaError.producer_fenced and call.version < _FENCED_SINCE.get(call.key, _NEVER):
        return KafkaError.invalid_producer_epoch
    return code


def transaction_error(error: PenstockError | RequestRefused, key: ApiKey) -> KafkaError:
    """The code that answers this error to a client that knows all codes."""
    if isinstance(error, PenstockError) and error.code.is_retriable:
        return KafkaError.kafka_storage_error if key is ApiKey.PRODUCE else KafkaError.coordinator_not_available
    return kafka_error(error, _FITTER)


def refuse_if_gone(call: Call) -> None:
    """Raises RequestRefused if the client has closed the connection: it sends the request again, or has gone on.

    A request that comes late must not change the client's next transaction.
    """
    if call.peer.gone.is_set():
        raise RequestRefused(KafkaError.coordinator_not_available, "the client has closed the connection")
