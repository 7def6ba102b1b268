"""Each target has its adapter and its client."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from botocore.config import Config

from penstock_core.errors import ErrorCode
from penstock_core.push.batch import Answered
from penstock_core.push.targets.public_address import parse_networks
from penstock_core.push.targets.target import BusTarget, FunctionTarget, HttpsTarget, QueueTarget, Target, TopicTarget
from penstock_service.adapters.system import SequentialExecutor, SystemEntropy
from penstock_service.adapters.targets.aws_targets import AwsTargets, TargetPlaces
from penstock_service.ports.runtime import Runtime
from tests.service.adapters.targets.entry_service import ROLE, FakeEntryService
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused
from tests.support.service import SteppedClock

FUNCTION = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
QUEUE = QueueTarget(url="https://sqs.eu-west-1.amazonaws.com/123456789012/pack")
BUS = BusTarget(arn="arn:aws:events:eu-west-1:123456789012:event-bus/orders")
SECRET = "whsec_" + "QUFB" * 8
BATCH = orders(StoredRecord(15))


class FakeAws(FakeEntryService):
    """All services in one, with a note of each client that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, Config]] = []

    def make(self, service: str, config: Config) -> Any:
        self.made.append((service, config))
        return self

    def invoke(self, **_arguments: Any) -> dict[str, Any]:
        return {"Payload": io.BytesIO(b"null")}


def targets(aws: FakeAws, networks: str = "") -> AwsTargets:
    runtime = Runtime(clock=SteppedClock(), entropy=SystemEntropy(), executor=SequentialExecutor())
    return AwsTargets(TargetPlaces(role_arn=ROLE, private_networks=parse_networks(networks)), aws.make, runtime)


@pytest.mark.parametrize(("target", "service"), [(FUNCTION, "lambda"), (QUEUE, "sqs"), (BUS, "events")])
@pytest.mark.parametrize(
    "call", [lambda found, target: found.deliver(target, BATCH, 50_000), lambda found, target: found.check(target)]
)
def test_client_is_made_when_it_is_needed(target: Target, service: str, call: Callable[..., Any]) -> None:
    aws = FakeAws()
    found = targets(aws)
    assert aws.made == []
    call(found, target)
    call(found, target)
    assert [name for name, _ in aws.made] == [service]


def test_function_is_invoked_once_and_has_its_whole_time() -> None:
    aws = FakeAws()
    found = targets(aws)
    for timeout_ms in (50_000, 50_000, 20_000):
        assert found.deliver(FUNCTION, BATCH, timeout_ms) == Answered()
    assert [config.read_timeout for _, config in aws.made] == [52, 22]
    assert all(config.retries == {"total_max_attempts": 1} for _, config in aws.made)


@pytest.mark.parametrize(
    "target",
    [
        FunctionTarget(arn=FUNCTION.arn.replace("123456789012", "210987654321")),
        QueueTarget(url=QUEUE.url.replace("123456789012", "210987654321")),
        BusTarget(arn=BUS.arn.replace("123456789012", "210987654321")),
    ],
)
def test_target_of_another_account_is_refused_without_a_call(target: Target) -> None:
    aws = FakeAws()
    error = refused(ErrorCode.INVALID_CONFIG, lambda: targets(aws).check(target))
    assert "is in account 210987654321" in error.message
    assert aws.made == []


def test_endpoint_at_a_private_address_is_refused_unless_the_network_is_allowed() -> None:
    endpoint = HttpsTarget(url="https://127.0.0.1:4444/in", secret=SECRET)
    error = refused(ErrorCode.INVALID_CONFIG, lambda: targets(FakeAws()).check(endpoint))
    assert "loopback" in error.message
    targets(FakeAws(), "127.0.0.0/8").check(endpoint)


def test_endpoint_is_called_by_the_endpoints() -> None:
    endpoint = HttpsTarget(url="https://127.0.0.1:4444/in", secret=SECRET)
    found = targets(FakeAws()).deliver(endpoint, BATCH, 50_000)
    assert "loopback" in getattr(found, "error", "")


def test_topic_is_no_target_of_a_call() -> None:
    found, topic = targets(FakeAws()), TopicTarget(topic=BATCH.records[0].topic)
    with pytest.raises(ValueError, match="a copy to a topic is a transaction"):
        found.deliver(topic, BATCH, 50_000)
    with pytest.raises(ValueError, match="a copy to a topic is a transaction"):
        found.check(topic)
