"""A transaction holds its items: other writes of them are refused as DynamoDB refuses them, and reads are served."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.like_aws.conftest import Emulated, item
from tests.localstack.like_aws.raw_calls import raw_call
from tests.support.deadlines import until

pytestmark = pytest.mark.slow
HELD = "item_locks.hold_ms_min=400,item_locks.hold_ms_max=400"
DYNAMODB = "com.amazonaws.dynamodb.v20120810#"


@contextmanager
def transaction(emulated: Emulated, table: str, *pks: str) -> Iterator[None]:
    """Runs a transaction over these items while the block runs, and sees that it was applied."""
    actions = [{"Put": {"TableName": table, "Item": item(pk, by={"S": "transaction"})}} for pk in pks]
    dynamodb = emulated.client("dynamodb")

    def is_applied() -> bool:
        try:
            dynamodb.transact_write_items(TransactItems=actions)
        except ClientError as error:  # a transaction of the block came first: it comes again after that one
            if error.response["Error"]["Code"] != "TransactionCanceledException":
                raise
            return False
        return True

    thread = threading.Thread(target=until, args=(is_applied,), kwargs={"step": lambda: None})
    thread.start()
    try:
        yield
    finally:
        thread.join()
    stored = emulated.client("dynamodb").get_item(TableName=table, Key=item(pks[0]), ConsistentRead=True)["Item"]
    assert stored["by"] == {"S": "transaction"}


def refused(call: Callable[[], Any], code: str) -> ClientError:
    """Calls until the call is refused with the code: the concurrent transaction has to arrive first."""
    errors: list[ClientError] = []

    def is_refused() -> bool:
        try:
            call()
        except ClientError as error:
            if error.response["Error"]["Code"] != code:
                raise
            errors.append(error)
        return bool(errors)

    until(is_refused, step=lambda: None)
    return errors[0]


def test_write_is_refused_with_a_conflict_while_a_transaction_holds_the_item(
    under: Callable[[str], Emulated], table: str
) -> None:
    emulated = under(HELD)
    dynamodb = emulated.client("dynamodb")
    update = {"TableName": table, "Key": item("a"), "UpdateExpression": "SET n = :n"}
    calls: list[Callable[[], Any]] = [
        lambda: dynamodb.put_item(TableName=table, Item=item("a")),
        lambda: dynamodb.update_item(**update, ExpressionAttributeValues={":n": {"N": "1"}}),
        lambda: dynamodb.delete_item(TableName=table, Key=item("a")),
    ]
    for call in calls:
        with transaction(emulated, table, "a"):
            error = refused(call, "TransactionConflictException")
            assert error.response["Error"]["Message"] == "Transaction is ongoing for the item"
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400
            dynamodb.put_item(TableName=table, Item=item("free"))
            dynamodb.get_item(TableName=table, Key=item("a"), ConsistentRead=True)
    assert emulated.counts()["item_locks: calls refused"] >= 3


def test_conflict_has_the_bytes_of_dynamodb(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under(HELD)
    headers = {"X-Amz-Target": "DynamoDB_20120810.PutItem", "Content-Type": "application/x-amz-json-1.0"}
    body = json.dumps({"TableName": table, "Item": item("a")}).encode()
    with transaction(emulated, table, "a"):
        status, answered, found = raw_call(emulated.port, "dynamodb", "POST", "/", body, headers)
        while status == 200:
            status, answered, found = raw_call(emulated.port, "dynamodb", "POST", "/", body, headers)
    assert status == 400
    assert answered["content-type"] == "application/x-amz-json-1.0"
    expected = '{"__type":"%sTransactionConflictException","message":"Transaction is ongoing for the item"}'
    assert found.decode() == expected % DYNAMODB


@pytest.mark.parametrize("operation", ["transact_write_items", "transact_get_items"])
def test_transaction_is_cancelled_with_a_reason_for_the_held_item(
    under: Callable[[str], Emulated], table: str, operation: str
) -> None:
    emulated = under(HELD)
    call = getattr(emulated.client("dynamodb"), operation)
    is_write = operation == "transact_write_items"

    def action(pk: str) -> dict[str, Any]:
        if is_write:
            return {"Put": {"TableName": table, "Item": item(pk)}}
        return {"Get": {"TableName": table, "Key": item(pk)}}

    with transaction(emulated, table, "a", "c"):
        error = refused(lambda: call(TransactItems=[action("a"), action("b")]), "TransactionCanceledException")
    reason = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    assert error.response["CancellationReasons"] == [reason, {"Code": "None"}]
    text = "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]"
    assert error.response["Error"]["Message"] == text
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_item_is_free_again_after_a_transaction_that_was_cancelled(
    under: Callable[[str], Emulated], table: str
) -> None:
    dynamodb = under("item_locks").client("dynamodb")
    missing = {"TableName": table, "Key": item("a"), "ConditionExpression": "attribute_exists(pk)"}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        dynamodb.transact_write_items(TransactItems=[{"ConditionCheck": missing}])
    dynamodb.put_item(TableName=table, Item=item("a"))


def test_nothing_is_refused_when_the_rule_is_off(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput")
    with transaction(emulated, table, "b"):
        for _ in range(20):
            emulated.client("dynamodb").update_item(TableName=table, Key=item("a"))
    assert "item_locks: calls refused" not in emulated.counts()
