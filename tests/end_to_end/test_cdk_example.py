"""examples/cdk on the emulator: a producer stores orders, a consumer handles them, and bad ones become dead letters."""

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
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_app
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
# The emulator's functions find the SDK in the checkout. On AWS, it is in their package.
PACKAGES = [str(CHECKOUT / each) for each in ("functions", "sdk")]


@pytest.fixture
def shop(stack: Stack, tmp_path: Path) -> Iterator[OwnStack]:
    own = deploy_app(stack, tmp_path / "out", lambda app: Shop(app, NAME, settings=replace(SETTINGS, name="example")))
    functions = stack.root_client("lambda")
    try:
        for name in ("ProducerFunction", "ConsumerFunction"):
            variables = {
                "PENSTOCK_URL": own.url,  # the name of the emulator's API does not resolve everywhere
                "PYTHONPATH": os.pathsep.join([*PACKAGES, *(each for each in sys.path if "site-packages" in each)]),
            }
            functions.update_function_configuration(
                FunctionName=own.outputs[name], Environment={"Variables": variables}
            )
        yield own
    finally:
        stack.root_client("cloudformation").delete_stack(StackName=NAME)


def invoke(own: OwnStack, name: str, event: object) -> Any:
    response = own.local.root_client("lambda").invoke(FunctionName=own.outputs[name], Payload=json.dumps(event))
    answer = json.loads(response["Payload"].read())
    assert "FunctionError" not in response, answer
    return answer


def test_orders_go_from_the_producer_to_the_consumer_and_bad_ones_become_dead_letters(shop: OwnStack) -> None:
    orders = [{"customer": f"c{number % 5}", "pieces": number} for number in range(8)]
    stored = [invoke(shop, "ProducerFunction", order) for order in orders]
    assert {each["topic"] for each in stored} == {"orders"}
    assert len({(each["partition"], each["offset"]) for each in stored}) == len(orders)
    handled: list[dict[str, object]] = []
    rejected: list[int] = []

    def is_done() -> bool:
        answer = invoke(shop, "ConsumerFunction", {})
        handled.extend(answer["handled"])
        rejected.append(answer["rejected"])
        return len(handled) + sum(rejected) >= len(orders)

    until(is_done)
    assert sorted(handled, key=lambda order: int(str(order["pieces"]))) == orders[1:]
    assert sum(rejected) == 1

    def dead_letters() -> int:
        invoke(shop, "ConsumerFunction", {})  # the next acquire moves what was rejected
        return sum(each.high_watermark for each in shop.admin().describe_topic("orders.dead").offsets)

    until(lambda: dead_letters() == 1)
