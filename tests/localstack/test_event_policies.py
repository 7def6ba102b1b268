"""The emulator asks IAM about wake-ups: the API for a connection, the namespace for the rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from localstack.event_policies import add_event_policies

API = "arn:aws:appsync:us-east-1:000000000000:apis/one"
NAMESPACE = f"{API}/channelNamespace/wake"
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=AKIA1/20261128/us-east-1/appsync/aws4_request, Signature=0"}


class MiniStack:
    """The two modules, the parts that are called, with the changes. `allowed` has actions with their resources."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.events: Any = SimpleNamespace(
            EVENT_CONNECT="EVENT_CONNECT",
            EVENT_SUBSCRIBE="EVENT_SUBSCRIBE",
            EVENT_PUBLISH="EVENT_PUBLISH",
            _api_arn=lambda api_id: f"arn:aws:appsync:us-east-1:000000000000:apis/{api_id}",
            _channel_namespace_arn=lambda api_id, name: f"{API}/channelNamespace/{name}",
            _channel_namespace_for=lambda channel: channel.split("/")[1],
            _operation_auth_modes=lambda api_id, channel, operation: {"AWS_IAM"},
            _modes_accept=lambda api_id, modes, auth: (bool(auth) and "AWS_IAM" in modes, None),
        )

        def enforce(key: str, action: str, service: str, region: str, resource_arn: str) -> str | None:
            self.asked.append((key, action, resource_arn))
            return None if (action, resource_arn) in allowed else "ImplicitDeny"

        add_event_policies(self.events, SimpleNamespace(enforce=enforce))

    def takes(self, operation: str, channel: str | None, auth: Any = SIGNED) -> bool:
        modes = self.events._operation_auth_modes("one", channel, operation)
        return bool(self.events._modes_accept("one", modes, auth)[0])


@pytest.mark.parametrize(
    ("operation", "channel", "action", "resource"),
    [
        ("EVENT_CONNECT", None, "appsync:EventConnect", API),
        ("EVENT_SUBSCRIBE", "/wake/topic/3", "appsync:EventSubscribe", NAMESPACE),
        ("EVENT_PUBLISH", "/wake/topic/3", "appsync:EventPublish", NAMESPACE),
    ],
)
def test_operation_asks_for_its_action_on_the_resource_that_aws_names(
    operation: str, channel: str | None, action: str, resource: str
) -> None:
    stack = MiniStack((action, resource))
    assert stack.takes(operation, channel)
    assert stack.asked == [("AKIA1", action, resource)]


@pytest.mark.parametrize("resource", [f"{NAMESPACE}/*", f"{NAMESPACE}/topic/*", API])
def test_policy_that_names_more_than_the_namespace_allows_nothing(resource: str) -> None:
    stack = MiniStack(("appsync:EventPublish", resource), ("appsync:EventSubscribe", resource))
    assert not stack.takes("EVENT_PUBLISH", "/wake/topic/3")
    assert not stack.takes("EVENT_SUBSCRIBE", "/wake/topic/3")


def test_what_ministack_refuses_is_refused_and_a_caller_without_a_signature_is_left_to_it() -> None:
    stack = MiniStack(("appsync:EventPublish", NAMESPACE))
    assert not stack.takes("EVENT_PUBLISH", "/wake/topic/3", None)
    assert stack.takes("EVENT_PUBLISH", "/wake/topic/3", {"x-api-key": "key"})
    assert stack.asked == []


def test_newer_ministack_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="MiniStack checks events in another way now"):
        add_event_policies(SimpleNamespace(), SimpleNamespace())
