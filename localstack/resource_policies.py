"""Three rules of AWS about policies that MiniStack lacks, and that targets of subscriptions need.

- A policy that allows `sqs:SendMessage` allows SendMessageBatch, and so for the other batch calls of SQS. MiniStack
  takes each batch call for an action of its own, which AWS does not know.
- The policy of an event bus lets a role of the same account put events. MiniStack keeps the policy, and does not read
  it.
- PutPermission with `Policy` replaces the policy of the bus. MiniStack adds a statement that lets everybody in.

It imports nothing of Penstock, because MiniStack's Python runs it.
"""

import json
from types import ModuleType
from typing import Any

_LOOKUP = "bus_policy_for_arn"
_BATCH = "Batch"


def add_resource_policies(actions: ModuleType | Any, evaluator: ModuleType | Any, buses: ModuleType | Any) -> None:
    """Changes MiniStack's modules of IAM actions, of policies, and of EventBridge.

    Raises RuntimeError if MiniStack reads the policies of buses: then a newer MiniStack may not need this.
    """
    if "events" in evaluator._RESOURCE_POLICY_LOOKUPS:
        raise RuntimeError("MiniStack reads policies of event buses now: look at localstack/resource_policies.py")
    _name_batch_calls(actions)
    evaluator._RESOURCE_POLICY_LOOKUPS["events"] = ("eventbridge", _LOOKUP)
    setattr(buses, _LOOKUP, lambda arn: _policy(buses, arn))
    _replace_whole_policies(buses)


def _name_batch_calls(actions: Any) -> None:
    own = actions.extract_iam_action

    def extract_iam_action(service: str, *arguments: Any) -> str | None:
        action: str | None = own(service, *arguments)
        return action.removesuffix(_BATCH) if service == "sqs" and action is not None else action

    actions.extract_iam_action = extract_iam_action


def _policy(buses: Any, arn: str) -> tuple[Any, str] | None:
    """The policy of a bus and its account, as MiniStack's modules of other services tell them; None for a rule."""
    account, _, bus = arn.split(":", 4)[4].partition(":event-bus/")
    return (buses._event_bus_policies.get(bus, ""), account) if bus else None


def _replace_whole_policies(buses: Any) -> None:
    own = buses._put_permission

    def put_permission(data: dict[str, Any]) -> Any:
        if "Policy" not in data:
            return own(data)
        name, policy = data.get("EventBusName", "default"), json.loads(data["Policy"])
        buses._event_bus_policies[name] = policy
        return buses.json_response({})

    buses._put_permission = put_permission
