"""Subscriptions on the deployed stack, from the API to each kind of target."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.http.transport import HttpTransport
from penstock_core.push.target import Target, target_to_json
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.target_resources import TargetResources

pytestmark = pytest.mark.stack

SECRET = "whsec_" + "QUFB" * 8


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The API of one stack, and a topic whose partition 0 gets all records."""

    transport: HttpTransport
    resources: TargetResources
    topic: str

    def put(self, target: Any, **settings: Any) -> tuple[int, Any]:
        """Status and answer of a PUT of the subscription that has the topic's name."""
        body = json.dumps({"topics": [self.topic], "target": target, "start": "earliest", **settings}).encode()
        answer = self.transport.call("PUT", f"/v1/subscriptions/{self.topic}", {}, {}, body)
        return answer.status, json.loads(answer.body)

    def create(self, target: Target, **settings: Any) -> None:
        """Makes the subscription. The target lets the service in as the first answer says."""
        document = target_to_json(target)
        status, answer = self.put(document, **settings)
        assert (status, answer["error"]["code"]) == (403, "ACCESS_DENIED"), answer
        self.resources.grant(target, answer["error"]["message"])
        status, answer = self.put(document, **settings)
        assert status == 200, answer

    def place(self) -> Any:
        """The state of partition 0."""
        answer = self.transport.call("GET", f"/v1/subscriptions/{self.topic}", {}, {}, b"")
        assert answer.status == 200, answer.body
        return next(each for each in json.loads(answer.body)["partitions"] if each["partition"] == 0)


@pytest.fixture
def subscribed(stack: Stack, transport: HttpTransport, topic: str) -> Iterator[Subscribed]:
    found = Subscribed(transport, TargetResources(stack), topic)
    yield found
    transport.call("DELETE", f"/v1/subscriptions/{topic}", {}, {}, b"")


@pytest.mark.parametrize(
    "make",
    [
        lambda resources: resources.function("push-grants", "batch"),
        lambda resources: resources.queue("push-grants"),
        lambda resources: resources.bus("push-grants"),
    ],
    ids=["function", "queue", "bus"],
)
def test_target_lets_the_service_in_as_the_refusal_says(
    subscribed: Subscribed, make: Callable[[TargetResources], Target]
) -> None:
    subscribed.create(make(subscribed.resources))
    assert subscribed.place()["last_result"] == "none"


def test_queue_of_the_service_itself_is_no_target(subscribed: Subscribed, stack: Stack) -> None:
    """The functions may send to it, and the role that delivers may not."""
    urls = stack.root_client("sqs").list_queues()["QueueUrls"]
    [own] = [url for url in urls if "PushDeliveries" in url]
    status, answer = subscribed.put({"sqs": own})
    assert (status, answer["error"]["code"]) == (403, "ACCESS_DENIED"), answer


def test_endpoint_of_another_network_is_no_target(subscribed: Subscribed) -> None:
    status, answer = subscribed.put({"https": {"url": "https://10.0.0.1/in", "secret": SECRET}})
    assert (status, answer["error"]["code"]) == (400, "INVALID_CONFIG"), answer
    assert "private" in answer["error"]["message"]
