"""CloudFormation lets deliveries into targets, and then subscribes them, on the emulator.

The emulator has no policies of buses in CloudFormation, so buses are missing here (tests/infra/test_declared.py).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack as CdkStack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from penstock_cdk import Penstock
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_own
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


def subscribed(queue: Penstock) -> None:
    stack = CdkStack.of(queue)
    orders, dead = queue.topic("orders", partitions=2), queue.topic("orders.dead")
    handler = lambda_.Function(
        stack,
        "Handler",
        runtime=lambda_.Runtime(
            f"python{SETTINGS.python_version}", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True
        ),
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context):\n    return None\n"),
    )
    orders.on_records(handler, filter={"type": ["order"]}, dead_letter_topic=dead)
    orders.on_records(sqs.Queue(stack, "Jobs"))
    orders.on_records(queue.topic("mirror", partitions=2))


def unsubscribed(queue: Penstock) -> None:
    queue.topic("orders", partitions=2)


@pytest.fixture
def own(stack: Stack, tmp_path: Path) -> Iterator[OwnStack]:
    try:
        yield deploy_own(stack, tmp_path / "out", subscribed)
    finally:
        stack.root_client("cloudformation").delete_stack(StackName=NAME)


def subscriptions_of(own: OwnStack) -> dict[str, Any]:
    answer = own.transport.call("GET", "/v1/subscriptions", {}, {}, b"")
    assert answer.status == 200, answer.body
    return {each["name"]: each for each in json.loads(answer.body)["subscriptions"]}


def test_targets_let_deliveries_in_and_get_records(own: OwnStack, stack: Stack, tmp_path: Path) -> None:
    found = subscriptions_of(own)
    assert {name: next(iter(each["target"])) for name, each in found.items()} == {
        "orders.Handler": "lambda",
        "orders.Jobs": "sqs",
        "orders.mirror": "topic",
    }
    assert found["orders.Handler"]["filter"] == {"type": ["order"]}
    assert found["orders.Handler"]["dead_letter_topic"] == "orders.dead"

    own.transport.call("POST", "/v1/topics/orders/records", {}, {}, b'{"records": [{"value": "a book"}]}')
    sqs_client, jobs = stack.root_client("sqs"), found["orders.Jobs"]["target"]["sqs"]
    bodies: list[str] = []

    def has_come() -> bool:
        bodies.extend(each["Body"] for each in sqs_client.receive_message(QueueUrl=jobs).get("Messages", []))
        return bool(bodies)

    until(has_come)
    assert bodies == ["a book"]

    deploy_own(stack, tmp_path / "out", unsubscribed)
    assert subscriptions_of(own) == {}
