"""The bill of single requests: captured calls, priced, against the budgets. Run with -s to see what costs what."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws
from rich.console import Console

from bench.bill.budgets import (
    OPERATIONS,
    POLLING_CONSUMER_USD_PER_DAY,
    WAITING_CONSUMER_USD_PER_DAY,
    WAITING_FUNCTION_S_PER_MINUTE,
    WAITING_MEMBER_USD_PER_DAY,
    WAITING_WORKER_USD_PER_DAY,
)
from bench.bill.deployment import billed_profile
from bench.bill.idle_consumers import (
    MEMBER_MS,
    POLLING_MS,
    bill_polling_consumer,
    bill_waiting_consumer,
    bill_waiting_member,
)
from bench.bill.metered_calls import EXPRESS, STANDARD, MeteredCalls
from bench.bill.requests import DAY_MS, HOUR_MS, PROFILES
from bench.bill.shared_records import bill_all_operations, bill_waiting_worker
from bench.report.result import load_results
from bench.report.tables import to_console
from penstock_cdk.storage_profile import Profile

KIB = 1024
APPEND_USD_PER_MILLION_MAX = 9.0  # of 1 KB in one bucket, which the design promises
REGION = "us-east-1"
KEYS: dict[str, str] = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": REGION}


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile", [each if each == "express3" else pytest.param(each, marks=pytest.mark.minutes) for each in PROFILES]
)
def test_operations_cost_at_most_their_budgets(profile: Profile) -> None:
    operations = bill_all_operations(billed_profile(profile))
    Console(width=200).print(to_console("dollars of a million", [operation.row() for operation in operations]))
    assert {operation.name for operation in operations} == OPERATIONS[profile].keys()
    for operation in operations:
        budget = OPERATIONS[profile][operation.name]
        assert sum(operation.calls.values()) <= budget.storage_calls, operation.calls
        assert operation.usd_per_million <= budget.usd_per_million, operation.bill
        written = load_results()["bill"].find(f"{profile}, a million", {"operation": operation.name}, "sum_usd")
        assert operation.usd_per_million == pytest.approx(written, rel=0.02), "run python -m bench.bill --write"


def test_append_in_one_bucket_stays_below_the_promise() -> None:
    assert OPERATIONS["standard1"]["append of 1 KB"].usd_per_million <= APPEND_USD_PER_MILLION_MAX


@pytest.mark.minutes
def test_consumer_that_polls_costs_at_most_its_budget() -> None:
    bill = bill_polling_consumer(billed_profile("standard1"))
    assert bill.usd * DAY_MS / POLLING_MS <= POLLING_CONSUMER_USD_PER_DAY, bill


@pytest.mark.minutes
def test_consumer_that_waits_for_wake_ups_costs_what_the_design_promises() -> None:
    bill = bill_waiting_consumer(billed_profile("standard1"))
    assert bill.usd * DAY_MS / HOUR_MS <= WAITING_CONSUMER_USD_PER_DAY, bill
    assert bill.function_ms * 60 / HOUR_MS <= WAITING_FUNCTION_S_PER_MINUTE
    assert bill.write_units == 0  # the heads stay armed


@pytest.mark.minutes
def test_worker_of_a_share_group_that_waits_costs_at_most_its_budget() -> None:
    bill = bill_waiting_worker(billed_profile("standard1"))
    assert bill.usd * DAY_MS / HOUR_MS <= WAITING_WORKER_USD_PER_DAY, bill
    assert bill.write_units == 0  # the heads stay armed


@pytest.mark.minutes
@pytest.mark.parametrize("session_timeout_ms", WAITING_MEMBER_USD_PER_DAY)
def test_member_that_waits_for_wake_ups_costs_at_most_its_budget(session_timeout_ms: int) -> None:
    bill = bill_waiting_member(billed_profile("standard1"), session_timeout_ms)
    assert bill.usd * DAY_MS / MEMBER_MS <= WAITING_MEMBER_USD_PER_DAY[session_timeout_ms], bill


@pytest.fixture
def clients() -> Iterator[tuple[Any, Any, MeteredCalls]]:
    """DynamoDB and S3 on moto, watched, and the capture."""
    with mock_aws():
        unwatched = boto3.client("dynamodb", **KEYS)
        unwatched.create_table(
            TableName="log",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamodb, s3 = boto3.client("dynamodb", **KEYS), boto3.client("s3", **KEYS)
        s3.create_bucket(Bucket="zone-a")
        capture = MeteredCalls(unwatched)
        capture.watch(dynamodb)
        capture.watch(s3)
        yield dynamodb, s3, capture


def _key(number: int = 0) -> dict[str, Any]:
    return {"pk": {"S": "p"}, "sk": {"S": str(number)}}


def _item(size: int, number: int = 0) -> dict[str, Any]:
    return {**_key(number), "v": {"B": b"x" * size}}


def test_write_takes_units_of_the_larger_item(clients: tuple[Any, Any, MeteredCalls]) -> None:
    dynamodb, _, capture = clients
    dynamodb.put_item(TableName="log", Item=_item(3 * KIB))
    assert capture.take().write_units == 4
    dynamodb.put_item(TableName="log", Item=_item(10))  # the old item was larger
    assert capture.take().write_units == 4
    dynamodb.update_item(
        TableName="log", Key=_key(), UpdateExpression="SET v = :v", ExpressionAttributeValues={":v": {"B": b"y"}}
    )
    usage = capture.take()
    assert usage.write_units == 1
    assert usage.calls == {"dynamodb.UpdateItem": 1}


def test_refused_write_takes_units_too(clients: tuple[Any, Any, MeteredCalls]) -> None:
    dynamodb, _, capture = clients
    dynamodb.put_item(TableName="log", Item=_item(1_500))
    capture.take()
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(TableName="log", Item=_item(1), ConditionExpression="attribute_not_exists(pk)")
    assert capture.take().write_units == 2


def test_transaction_takes_twice_the_units(clients: tuple[Any, Any, MeteredCalls]) -> None:
    dynamodb, _, capture = clients
    puts = [{"Put": {"TableName": "log", "Item": _item(size, number)}} for number, size in enumerate((10, 1_500))]
    dynamodb.transact_write_items(TransactItems=puts)
    assert capture.take().write_units == 2 * (1 + 2)


def test_reads_take_units_of_whole_items_and_half_if_eventual(clients: tuple[Any, Any, MeteredCalls]) -> None:
    dynamodb, _, capture = clients
    for number in range(3):
        dynamodb.put_item(TableName="log", Item=_item(3 * KIB, number))
    capture.take()
    dynamodb.get_item(TableName="log", Key=_key(), ConsistentRead=True, ProjectionExpression="sk")
    dynamodb.get_item(TableName="log", Key=_key(9))
    assert capture.take().read_units == 1.5
    dynamodb.query(
        TableName="log",
        ConsistentRead=True,
        KeyConditionExpression="pk = :p",
        ProjectionExpression="#s",
        ExpressionAttributeNames={"#s": "sk"},
        ExpressionAttributeValues={":p": {"S": "p"}},
    )
    assert capture.take().read_units == 3  # nine KiB together
    keys = [_key(number) for number in range(3)]
    dynamodb.batch_get_item(RequestItems={"log": {"Keys": keys, "ConsistentRead": True}})
    assert capture.take().read_units == 3  # an item each


def test_bucket_is_billed_by_its_kind(clients: tuple[Any, Any, MeteredCalls]) -> None:
    _, s3, capture = clients
    s3.put_object(Bucket="zone-a", Key="k", Body=b"x" * 1_000_000)
    s3.get_object(Bucket="zone-a", Key="k", Range="bytes=0-499999")["Body"].read()
    s3.delete_object(Bucket="zone-a", Key="k")
    usage = capture.take()
    assert usage.lines(lambda _: STANDARD).total() == pytest.approx(5e-6 + 0.4e-6)
    assert usage.lines(lambda _: EXPRESS).total() == pytest.approx(1.13e-6 + 0.03e-6 + 3.2e-6 + 0.3e-6)


def test_call_without_a_price_is_refused(clients: tuple[Any, Any, MeteredCalls]) -> None:
    dynamodb, _, _ = clients
    with pytest.raises(LookupError, match=r"dynamodb\.ListTables"):
        dynamodb.list_tables()
