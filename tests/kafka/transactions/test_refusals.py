"""The codes of transactions by API and version, as docs/protocol/gateway and the how-to have them."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import ApiKey, Call, Peer
from penstock_kafka.errors import RequestRefused
from penstock_kafka.transactions.refusals import abortable, code_for, fenced, unknown_epoch, wrong_state

_AWAY = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")
_OTHERS_ID = PenstockError(ErrorCode.ACCESS_DENIED, "of another role")


@pytest.mark.parametrize(
    ("error", "key", "version", "code"),
    [
        (abortable("full"), ApiKey.PRODUCE, 11, "transaction_abortable"),
        (abortable("full"), ApiKey.PRODUCE, 10, "policy_violation"),
        (abortable("full"), ApiKey.END_TXN, 4, "transaction_abortable"),
        (abortable("full"), ApiKey.END_TXN, 3, "invalid_producer_id_mapping"),
        (abortable("full"), ApiKey.ADD_PARTITIONS_TO_TXN, 3, "invalid_producer_id_mapping"),
        (fenced("t"), ApiKey.INIT_PRODUCER_ID, 4, "producer_fenced"),
        (fenced("t"), ApiKey.INIT_PRODUCER_ID, 3, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.END_TXN, 1, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.PRODUCE, 11, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.TXN_OFFSET_COMMIT, 4, "invalid_producer_epoch"),
        (unknown_epoch("t"), ApiKey.PRODUCE, 3, "invalid_producer_id_mapping"),
        (unknown_epoch("t"), ApiKey.PRODUCE, 11, "transaction_abortable"),
        (wrong_state("late"), ApiKey.END_TXN, 0, "invalid_txn_state"),
        (_AWAY, ApiKey.END_TXN, 4, "coordinator_not_available"),
        (_AWAY, ApiKey.PRODUCE, 11, "kafka_storage_error"),
        (_OTHERS_ID, ApiKey.INIT_PRODUCER_ID, 5, "transactional_id_authorization_failed"),
    ],
)
def test_code_is_one_that_the_version_knows(
    error: PenstockError | RequestRefused, key: ApiKey, version: int, code: str
) -> None:
    call = Call(key=key, version=version, client_id="", peer=Peer(number=1, address=""), request=None)
    assert code_for(error, call).name == code
