"""examples/cdk on the emulator: Penstock calls the consumer with orders, and a bad one becomes a dead letter."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.cdk.app import Shop
from localstack.places import CHECKOUT
from penstock import Consumer, ConsumerRecord
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_app
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
# The emulator's functions find the SDK in the checkout, and Powertools in the tests' own packages.
PACKAGES = [str(CHECKOUT / each) for each in ("functions", "sdk")]


@pytest.fixture
def shop(stack: Stack, tmp_path: Path) -> Iterator[OwnStack]:
    own = deploy_app(stack, tmp_path / "out", lambda app: Shop(app, NAME, settings=replace(SETTINGS, name="example")))
    functions = stack.root_client("lambda")
    packages = [*PACKAGES, *(each for each in sys.path if "site-packages" in each)]
    changed = {
        "PENSTOCK_URL": own.url,  # the name of the emulator's API does not resolve everywhere
        "PYTHONPATH": os.pathsep.join(packages),
    }
    try:
        for name in ("ProducerFunction", "ConsumerFunction"):
            function = own.outputs[name]
            given = functions.get_function_configuration(FunctionName=function).get("Environment", {})
            variables = {**given.get("Variables", {}), **changed}
            functions.update_function_configuration(FunctionName=function, Environment={"Variables": variables})
        yield own
    finally:
        stack.root_client("cloudformation").delete_stack(StackName=NAME)


def send(own: OwnStack, order: dict[str, object]) -> dict[str, Any]:
    """Lets the producer function store an order. Returns where."""
    client = own.local.root_client("lambda")
    response = client.invoke(FunctionName=own.outputs["ProducerFunction"], Payload=json.dumps(order))
    answer = json.loads(response["Payload"].read())
    assert "FunctionError" not in response, answer
    return dict(answer)


def parcels(own: OwnStack) -> dict[str, int]:
    """What the consumer has noted: the pieces of each place."""
    client = own.local.root_client("dynamodb")
    items = client.scan(TableName=own.outputs["ParcelsTable"], ConsistentRead=True)["Items"]
    return {item["place"]["S"]: int(item["pieces"]["N"]) for item in items}


def dead_letters(own: OwnStack) -> list[ConsumerRecord]:
    with Consumer("orders.dead", transport=own.transport, auto_offset_reset="earliest", wait="poll") as consumer:
        return list(consumer.poll(100, 1_000))


def test_orders_reach_the_consumer_and_a_bad_one_becomes_a_dead_letter_with_its_reason(shop: OwnStack) -> None:
    """The orders wait for a paused subscription, so the bad one comes in a batch behind a good one."""
    admin = shop.admin()
    [subscription] = admin.list_subscriptions()
    admin.pause_subscription(subscription.name)
    good = [{"customer": f"c{number % 5}", "pieces": number} for number in range(1, 12)]
    bad = {"customer": "c1", "pieces": 0}
    noted: dict[str, int] = {}
    for order in [*good[:8], bad, *good[8:]]:
        stored = send(shop, order)
        if order is not bad:
            noted["{topic}-{partition}-{offset}".format_map(stored)] = int(str(order["pieces"]))
    assert len(noted) == len(good)
    admin.resume_subscription(subscription.name)

    until(lambda: len(dead_letters(shop)) > 0, shown=lambda: admin.describe_subscription(subscription.name))
    until(lambda: parcels(shop) == noted, shown=lambda: parcels(shop))
    [letter] = dead_letters(shop)
    assert json.loads(letter.value or b"") == bad
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    assert headers["penstock.dead-letter.subscription"] == subscription.name
    assert headers["penstock.dead-letter.deliveries"] == "3"
    assert headers["penstock.dead-letter.reason"].rstrip().endswith("ValueError: an order has one piece or more")
