"""Policies of queues and event buses on the emulator mean what they mean on AWS."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from localstack.resource_policies import add_resource_policies

BUS = "arn:aws:events:us-east-1:000000000000:event-bus/orders"
STATEMENT = {"Sid": "Penstock", "Effect": "Allow", "Principal": {"AWS": "arn:role"}, "Resource": BUS}
POLICY = {"Version": "2012-10-17", "Statement": [STATEMENT]}


class MiniStack:
    """The three modules, the parts that are called, with the changes."""

    def __init__(self, **lookups: Any) -> None:
        self.own_permissions: list[Any] = []
        self.actions = SimpleNamespace(extract_iam_action=lambda service, action: action and f"{service}:{action}")
        self.evaluator = SimpleNamespace(_RESOURCE_POLICY_LOOKUPS={"sqs": ("sqs", "queue_policy_for_arn"), **lookups})
        self.buses: Any = SimpleNamespace(
            _event_bus_policies={},
            _put_permission=self.own_permissions.append,
            json_response=lambda body: body,
        )
        add_resource_policies(self.actions, self.evaluator, self.buses)


@pytest.mark.parametrize(
    ("service", "action", "name"),
    [
        ("sqs", "SendMessageBatch", "sqs:SendMessage"),
        ("sqs", "DeleteMessageBatch", "sqs:DeleteMessage"),
        ("sqs", "SendMessage", "sqs:SendMessage"),
        ("glue", "GetBatch", "glue:GetBatch"),
        ("sqs", None, None),
    ],
)
def test_batch_calls_of_sqs_are_allowed_as_single_ones(service: str, action: str | None, name: str | None) -> None:
    assert MiniStack().actions.extract_iam_action(service, action) == name


def test_policy_of_a_bus_is_found_by_its_arn() -> None:
    stack = MiniStack()
    assert stack.evaluator._RESOURCE_POLICY_LOOKUPS["events"] == ("eventbridge", "bus_policy_for_arn")
    stack.buses._put_permission({"EventBusName": "orders", "Policy": json.dumps(POLICY)})
    assert stack.buses.bus_policy_for_arn(BUS) == (POLICY, "000000000000")


def test_bus_without_a_policy_has_an_empty_one_and_a_rule_has_none() -> None:
    stack = MiniStack()
    assert stack.buses.bus_policy_for_arn(BUS) == ("", "000000000000")
    assert stack.buses.bus_policy_for_arn("arn:aws:events:us-east-1:000000000000:rule/orders/r") is None


def test_permission_of_another_account_is_left_to_ministack() -> None:
    stack = MiniStack()
    permission = {"EventBusName": "orders", "StatementId": "s", "Principal": "210987654321"}
    stack.buses._put_permission(permission)
    assert stack.own_permissions == [permission]
    assert stack.buses._event_bus_policies == {}


def test_newer_ministack_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="MiniStack reads policies of event buses now"):
        MiniStack(events=("eventbridge", "policy_for_arn"))
