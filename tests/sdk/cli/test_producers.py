"""`penstock producers release` lets another role or user go on with a transactional id."""

import json

import pytest

from penstock import Producer
from penstock.errors import AccessDeniedError
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

OTHER_USER = "arn:aws:iam::111122223333:user/successor"


def _book(service: MemoryPenstock, principal_arn: str) -> None:
    with (
        Producer(transport=service.transport_as(principal_arn), transactional_id="ledger") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("orders", b"booked")


@pytest.mark.parametrize("as_json", [True, False])
def test_id_is_free_for_another_user_when_it_is_released(service: MemoryPenstock, as_json: bool) -> None:
    service.create_topic("orders")
    _book(service, "arn:aws:iam::111122223333:user/predecessor")
    with pytest.raises(AccessDeniedError, match="'ledger'"):
        _book(service, OTHER_USER)
    if as_json:
        assert run_json(service.transport, "producers", "release", "ledger") == {"released": "ledger"}
    else:
        result = run(service.transport, "producers", "release", "ledger")
        assert (result.exit_code, result.stdout) == (0, "released ledger\n")
    _book(service, OTHER_USER)
    assert len(service.records("orders")) == 2


def test_id_that_never_began_a_transaction_is_refused(service: MemoryPenstock) -> None:
    result = run(service.transport, "producers", "release", "nobody", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["code"] == "UNKNOWN_PRODUCER"
