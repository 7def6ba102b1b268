"""A key and a table have units a second, by the real sizes of items; a call above them is refused as DynamoDB does.

A transaction holds its items: other writes of them are refused as DynamoDB refuses them, and reads are served.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.like_aws.conftest import Emulated, item, make_table
from tests.localstack.like_aws.raw_calls import raw_call
from tests.support.deadlines import until

pytestmark = pytest.mark.slow
BIG = {"S": "x" * 9_000}  # with keys 9 to 10 write units, 3 read units


def refusal(call: Callable[[], Any]) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call()
    return dict(caught.value.response)


def test_key_is_throttled_when_its_writes_exceed_its_units(under: Callable[[str], Emulated], table: str) -> None:
    dynamodb = under("throughput.write_units_per_key=1").client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("hot", value=BIG))  # 9 units: a debt of 8 seconds
    answer = refusal(lambda: dynamodb.put_item(TableName=table, Item=item("hot", "other")))
    assert answer["Error"]["Code"] == "ThrottlingException"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    arn = f"arn:aws:dynamodb:us-east-1:000000000000:table/{table}"
    assert answer["throttlingReasons"] == [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": arn}]
    dynamodb.put_item(TableName=table, Item=item("cold"))
    dynamodb.get_item(TableName=table, Key=item("hot"))


def test_refusal_has_the_bytes_of_dynamodb(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput.write_units_per_key=1")
    emulated.client("dynamodb").put_item(TableName=table, Item=item("hot", value=BIG))
    headers = {"X-Amz-Target": "DynamoDB_20120810.PutItem", "Content-Type": "application/x-amz-json-1.0"}
    body = json.dumps({"TableName": table, "Item": item("hot")}).encode()
    status, _, found = raw_call(emulated.port, "dynamodb", "POST", "/", body, headers)
    assert status == 400
    assert json.loads(found)["__type"] == "com.amazon.coral.availability#ThrottlingException"
    assert json.loads(found)["message"].startswith("Throughput exceeds the current capacity of your table or index.")
    assert list(json.loads(found)) == ["__type", "message", "throttlingReasons"]


def test_provisioned_table_answers_the_other_exception(under: Callable[[str], Emulated], emulated: Emulated) -> None:
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    table = make_table(emulated, "provisioned", BillingMode="PROVISIONED", ProvisionedThroughput=units)
    dynamodb = under("throughput.write_units_per_key=1").client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("hot", value=BIG))
    answer = refusal(lambda: dynamodb.delete_item(TableName=table, Key=item("hot")))
    assert answer["Error"]["Code"] == "ProvisionedThroughputExceededException"
    assert answer["ThrottlingReasons"][0]["reason"] == "TableWriteKeyRangeThroughputExceeded"


def test_table_is_throttled_over_all_its_keys(under: Callable[[str], Emulated], table: str) -> None:
    dynamodb = under("throughput.write_units_per_table=1").client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("one", value=BIG))
    answer = refusal(lambda: dynamodb.put_item(TableName=table, Item=item("two")))
    assert answer["Error"]["Code"] == "ThrottlingException"


def test_transaction_is_cancelled_and_costs_twice(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput.write_units_per_key=1")
    dynamodb = emulated.client("dynamodb")
    hot = {"Put": {"TableName": table, "Item": item("hot", value=BIG)}}
    cold = {"Put": {"TableName": table, "Item": item("cold")}}
    dynamodb.transact_write_items(TransactItems=[hot])
    assert emulated.counts()["throughput: write units"] == 2 * 2 * 9  # counted in halves
    answer = refusal(lambda: dynamodb.transact_write_items(TransactItems=[cold, hot]))
    assert answer["Error"]["Code"] == "TransactionCanceledException"
    assert [reason["Code"] for reason in answer["CancellationReasons"]] == ["None", "ThrottlingError"]
    assert "Item" not in dynamodb.get_item(TableName=table, Key=item("cold"))


@pytest.mark.parametrize("returned", ["NONE", "ALL_NEW", "ALL_OLD"])
def test_update_costs_what_the_item_weighs_then(under: Callable[[str], Emulated], table: str, returned: str) -> None:
    emulated = under("throughput")
    emulated.client("dynamodb").update_item(
        TableName=table,
        Key=item("a"),
        UpdateExpression="SET v = :v",
        ExpressionAttributeValues={":v": BIG},
        ReturnValues=returned,
    )
    assert emulated.counts()["throughput: write units"] == 2 * 9


def test_delete_costs_what_the_item_weighed(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput")
    dynamodb = emulated.client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("a", value=BIG))
    dynamodb.delete_item(TableName=table, Key=item("a"))
    dynamodb.delete_item(TableName=table, Key=item("a"))
    assert emulated.counts()["throughput: write units"] == 2 * (9 + 9 + 1)


def test_failed_condition_costs_a_write(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput")
    dynamodb = emulated.client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("a", value=BIG))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        dynamodb.put_item(TableName=table, Item=item("a"), ConditionExpression="attribute_not_exists(pk)")
    assert emulated.counts()["throughput: write units"] == 2 * (9 + 9)


@pytest.mark.parametrize(("is_consistent", "halves"), [(True, 2), (False, 1)])
def test_reads_cost_by_size_and_consistency(
    under: Callable[[str], Emulated], table: str, is_consistent: bool, halves: int
) -> None:
    emulated = under("throughput")
    dynamodb = emulated.client("dynamodb")
    for sk in ("1", "2"):
        dynamodb.put_item(TableName=table, Item=item("a", sk, value=BIG))
    reads: list[tuple[Callable[[], Any], int]] = [
        (lambda: dynamodb.get_item(TableName=table, Key=item("a", "1"), ConsistentRead=is_consistent), 3),
        (lambda: dynamodb.get_item(TableName=table, Key=item("a", "9"), ConsistentRead=is_consistent), 1),
        (lambda: dynamodb.query(**_query(table), ConsistentRead=is_consistent), 5),  # 18,050 bytes together
        (lambda: dynamodb.scan(TableName=table, ConsistentRead=is_consistent), 5),
        (lambda: dynamodb.batch_get_item(RequestItems={table: _keys(is_consistent)}), 6),
    ]
    before = 0
    for read, units in reads:
        read()
        after = emulated.counts()["throughput: read units"]
        assert after - before == units * halves
        before = after


@pytest.mark.parametrize("operation", ["get_item", "query", "batch_get_item"])
def test_reads_of_a_key_are_throttled(under: Callable[[str], Emulated], table: str, operation: str) -> None:
    dynamodb = under("throughput.read_units_per_key=1").client("dynamodb")
    dynamodb.put_item(TableName=table, Item=item("a", "1", value=BIG))
    dynamodb.get_item(TableName=table, Key=item("a", "1"), ConsistentRead=True)
    arguments = {
        "get_item": {"TableName": table, "Key": item("a", "2")},
        "query": _query(table),
        "batch_get_item": {"RequestItems": {table: _keys(True)}},
    }[operation]
    answer = refusal(lambda: getattr(dynamodb, operation)(**arguments))
    assert answer["throttlingReasons"][0]["reason"] == "TableReadKeyRangeThroughputExceeded"


def test_aws_figures_let_a_usual_load_pass(under: Callable[[str], Emulated], table: str) -> None:
    emulated = under("throughput")
    dynamodb = emulated.client("dynamodb")
    for number in range(50):
        dynamodb.put_item(TableName=table, Item=item("a", str(number)))
    assert "throughput: calls throttled" not in emulated.counts()


def _query(table: str) -> dict[str, Any]:
    return {
        "TableName": table,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": "a"}},
    }


def _keys(is_consistent: bool) -> dict[str, Any]:
    return {"Keys": [item("a", "1"), item("a", "2")], "ConsistentRead": is_consistent}


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
