"""Functions, queues and buses of the emulator as targets: their own policies let the service in, and what they get."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.limits import QUEUE_BYTES_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure
from penstock_core.push.targets.target import FunctionTarget, Target
from penstock_service.adapters.aws import Storage, aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import ThreadExecutor
from penstock_service.adapters.targets.aws_targets import TargetPlaces
from penstock_service.ports.push import Targets
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.target_resources import TargetResources, number_of
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

pytestmark = pytest.mark.stack

GOOD = [
    StoredRecord(offset, key=b"c1", value=json.dumps({"id": offset}).encode(), headers=(("tag", b"\xe9"),))
    for offset in (15, 16, 17)
]
POISON = StoredRecord(18, key=b"c2", value=b'{"poison": true}', headers=(("tag", b"\xe9"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """A role without any policy of its own, and the targets as it reaches them."""

    role_arn: str
    targets: Targets
    resources: TargetResources

    def deliver(self, target: Target, *records: StoredRecord) -> Answer:
        return self.targets.deliver(target, orders(*records), 50_000)

    def allow(self, target: Target) -> None:
        """Does what the refusal of `target` says. The target lets the role in then."""
        error = refused(ErrorCode.ACCESS_DENIED, lambda: self.targets.check(target))
        self.resources.grant(target, error.message)
        self.targets.check(target)


@pytest.fixture(scope="module")
def deliverer(stack: Stack) -> Iterator[Deliverer]:
    """Its caller is a user who may assume the role and nothing else, as the functions of the service may."""
    account = stack.root_client("sts").get_caller_identity()["Account"]
    role_arn = f"arn:aws:iam::{account}:role/deliverer"
    rule = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    user = {"AWS": f"arn:aws:iam::{account}:user/deliverer"}
    policy = {"Version": "2012-10-17", "Statement": [{**rule, "Resource": role_arn}]}
    key_id, secret = stack.create_user("deliverer", policy)
    trust = {"Version": "2012-10-17", "Statement": [{**rule, "Principal": user}]}
    stack.root_client("iam").create_role(RoleName="deliverer", AssumeRolePolicyDocument=json.dumps(trust))
    storage = Storage(
        topics_table="none",
        log_table="none",
        groups_table="none",
        repair_queue_url=None,
        zones=(),
        archive="none",
        targets=TargetPlaces(role_arn=role_arn),
        region=stack.region,
        endpoint_url=stack.endpoint_url,
        access_key=key_id,
        secret_key=secret,
    )
    instance = aws_instance(storage, StorageCalls())
    yield Deliverer(role_arn=role_arn, targets=instance.stores.targets, resources=TargetResources(stack))
    cast(ThreadExecutor, instance.executor).close()


@pytest.fixture(scope="module")
def stream(deliverer: Deliverer) -> FunctionTarget:
    target = deliverer.resources.function("target-stream", "stream")
    deliverer.allow(target)
    return target


@pytest.fixture(scope="module")
def batch(deliverer: Deliverer) -> FunctionTarget:
    target = deliverer.resources.function("target-batch", "batch")
    deliverer.allow(target)
    return target


def test_powertools_kafka_consumer_handles_a_delivery(deliverer: Deliverer, stream: FunctionTarget) -> None:
    assert deliverer.deliver(stream, *GOOD) == Answered()


def test_exception_of_a_function_refuses_the_batch_and_is_told(deliverer: Deliverer, stream: FunctionTarget) -> None:
    found = deliverer.deliver(stream, *GOOD, POISON)
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert found.error.endswith("poison of c2 with {'tag': b'\\xe9'}")


def test_powertools_batch_processor_names_the_record_that_failed(deliverer: Deliverer, batch: FunctionTarget) -> None:
    found = deliverer.deliver(batch, *GOOD, POISON)
    assert isinstance(found, Answered)
    assert {offset for _, offset in found.failed} == {18}
    assert deliverer.deliver(batch, *GOOD) == Answered()


def test_powertools_refuses_a_batch_of_which_all_failed(deliverer: Deliverer, batch: FunctionTarget) -> None:
    found = deliverer.deliver(batch, POISON)
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert "All records failed processing" in found.error


def test_function_whose_concurrency_is_used_up_is_away(deliverer: Deliverer, stream: FunctionTarget) -> None:
    functions = deliverer.resources.stack.root_client("lambda")
    functions.put_function_concurrency(FunctionName=stream.arn, ReservedConcurrentExecutions=0)
    try:
        found = deliverer.deliver(stream, *GOOD)
    finally:
        functions.delete_function_concurrency(FunctionName=stream.arn)
    assert isinstance(found, Failed)
    assert found.failure is Failure.AWAY


def _missing_function(deliverer: Deliverer) -> FunctionTarget:
    account = deliverer.role_arn.split(":")[4]
    return FunctionTarget(arn=f"arn:aws:lambda:{deliverer.resources.stack.region}:{account}:function:closed")


@pytest.mark.parametrize(
    "make",
    [_missing_function, lambda found: found.resources.queue("closed"), lambda found: found.resources.bus("closed")],
)
def test_target_that_does_not_let_the_role_in_is_away(deliverer: Deliverer, make: Callable[..., Target]) -> None:
    target = make(deliverer)
    found = deliverer.deliver(target, *GOOD)
    assert isinstance(found, Failed)
    assert found.failure is Failure.AWAY
    refused(ErrorCode.ACCESS_DENIED, lambda: deliverer.targets.check(target))


def test_queue_gets_a_message_for_each_record_and_nothing_by_the_check(deliverer: Deliverer) -> None:
    target = deliverer.resources.queue("packing")
    deliverer.allow(target)
    large = StoredRecord(99, value=b"x" * QUEUE_BYTES_MAX)
    plain = [StoredRecord(offset) for offset in range(23)]
    found = deliverer.deliver(target, *plain, StoredRecord(23, key=b"\xff", value=None), large)
    assert isinstance(found, Answered)
    assert {offset for _, offset in found.failed} == {99}
    messages = {number_of(each, "offset"): each for each in deliverer.resources.received(target, 24)}
    assert sorted(messages) == [*range(24)]
    tombstone = messages[23]["MessageAttributes"]
    assert messages[23]["Body"] == tombstone["penstock-encoding"]["StringValue"] == "null"
    assert tombstone["penstock-key"]["BinaryValue"] == b"\xff"
    assert (messages[7]["Body"], number_of(messages[7], "partition")) == ("v", 0)


def test_bus_gets_an_event_for_each_record_that_a_rule_can_match(deliverer: Deliverer) -> None:
    target = deliverer.resources.bus("orders")
    deliverer.allow(target)
    pattern = {"source": ["penstock"], "detail-type": ["orders"], "detail": {"value": {"id": [{"numeric": [">", 15]}]}}}
    queue = deliverer.resources.queue_of_rule(target, pattern, "matched")
    assert deliverer.deliver(target, *GOOD) == Answered()
    found = [json.loads(message["Body"])["detail"] for message in deliverer.resources.received(queue, 2)]
    assert sorted(detail["offset"] for detail in found) == [16, 17]
    assert {detail["key"] for detail in found} == {"c1"}
    assert found[0]["headers"] == {"tag": ["6Q=="]}
    assert found[0]["base64"] == ["headers.tag"]
