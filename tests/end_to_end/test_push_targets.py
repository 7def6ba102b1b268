"""Functions, queues and buses of the emulator as targets: their own policies let the service in, and what they get."""

import io
import json
import shlex
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import Any, cast

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.limits import QUEUE_BYTES_MAX
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.target import BusTarget, FunctionTarget, QueueTarget, Target
from penstock_service.adapters.aws import Storage, aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import ThreadExecutor
from penstock_service.adapters.targets.places import TargetPlaces
from penstock_service.ports.push import Targets
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

pytestmark = pytest.mark.stack

TIMEOUT_MS = 50_000
CODE = Path(__file__).with_name("target_function.py")
PACKAGES = ("aws-lambda-powertools", "jmespath", "typing-extensions")
GOOD = [
    StoredRecord(offset, key=b"c1", value=json.dumps({"id": offset}).encode(), headers=(("tag", b"\xe9"),))
    for offset in (15, 16, 17)
]
POISON = StoredRecord(18, key=b"c2", value=b'{"poison": true}', headers=(("tag", b"\xe9"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """A role without any policy of its own, and the targets as it reaches them."""

    stack: Stack
    role_arn: str
    targets: Targets

    def allow(self, target: Target) -> None:
        """Does what the refusal of `target` says."""
        told = refused(ErrorCode.ACCESS_DENIED, lambda: self.targets.check(target)).message.splitlines()[1]
        match target:
            case FunctionTarget():
                words = shlex.split(told)
                assert words[:3] == ["aws", "lambda", "add-permission"]
                given = dict(zip(words[3::2], words[4::2], strict=True))
                self.stack.root_client("lambda").add_permission(
                    FunctionName=given["--function-name"],
                    StatementId=given["--statement-id"],
                    Action=given["--action"],
                    Principal=given["--principal"],
                )
            case QueueTarget():
                attributes = {"Policy": _policy(told)}
                self.stack.root_client("sqs").set_queue_attributes(QueueUrl=target.url, Attributes=attributes)
            case BusTarget():
                bus = target.arn.rpartition("/")[2]
                self.stack.root_client("events").put_permission(EventBusName=bus, Policy=_policy(told))
        self.targets.check(target)


def _policy(statement: str) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [json.loads(statement)]})


@pytest.fixture(scope="module")
def deliverer(stack: Stack) -> Iterator[Deliverer]:
    iam = stack.root_client("iam")
    account = stack.root_client("sts").get_caller_identity()["Account"]
    role_arn = f"arn:aws:iam::{account}:role/deliverer"
    rule = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    user = {"AWS": f"arn:aws:iam::{account}:user/function"}
    policy = {"Version": "2012-10-17", "Statement": [{**rule, "Resource": role_arn}]}
    key_id, secret = stack.create_user("function", policy)
    trust = {
        "Version": "2012-10-17",
        "Statement": [{**rule, "Principal": user}],
    }
    iam.create_role(RoleName="deliverer", AssumeRolePolicyDocument=json.dumps(trust))
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
    yield Deliverer(stack=stack, role_arn=role_arn, targets=instance.stores.targets)
    cast(ThreadExecutor, instance.executor).close()


@pytest.fixture(scope="module")
def code() -> bytes:
    """The function and Powertools, as `pip install --target` would put them into a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(CODE, CODE.name)
        for package in PACKAGES:
            for file in files(package) or []:
                if file.suffix == ".py" and ".." not in file.parts:
                    archive.write(str(file.locate()), str(file))
    return packed.getvalue()


def _function(deliverer: Deliverer, code: bytes, handler: str) -> FunctionTarget:
    found = deliverer.stack.root_client("lambda").create_function(
        FunctionName=f"target-{handler}",
        Runtime="python3.11",
        Role=deliverer.role_arn,
        Handler=f"target_function.{handler}",
        Timeout=30,
        Code={"ZipFile": code},
    )
    return FunctionTarget(arn=found["FunctionArn"])


def _missing_function(deliverer: Deliverer, name: str) -> FunctionTarget:
    account = deliverer.role_arn.split(":")[4]
    return FunctionTarget(arn=f"arn:aws:lambda:{deliverer.stack.region}:{account}:function:{name}")


def _queue(deliverer: Deliverer, name: str) -> QueueTarget:
    return QueueTarget(url=deliverer.stack.root_client("sqs").create_queue(QueueName=name)["QueueUrl"])


def _bus(deliverer: Deliverer, name: str) -> BusTarget:
    return BusTarget(arn=deliverer.stack.root_client("events").create_event_bus(Name=name)["EventBusArn"])


def _received(stack: Stack, url: str, count: int) -> list[dict[str, Any]]:
    """The messages of a queue, once there are `count`."""
    sqs, found = stack.root_client("sqs"), list[dict[str, Any]]()

    def are_all() -> bool:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        found.extend(answer.get("Messages", []))
        return len(found) >= count

    until(are_all)
    return found


@pytest.fixture(scope="module")
def stream(deliverer: Deliverer, code: bytes) -> FunctionTarget:
    target = _function(deliverer, code, "stream")
    deliverer.allow(target)
    return target


@pytest.fixture(scope="module")
def batch(deliverer: Deliverer, code: bytes) -> FunctionTarget:
    target = _function(deliverer, code, "batch")
    deliverer.allow(target)
    return target


def test_powertools_kafka_consumer_handles_a_delivery(deliverer: Deliverer, stream: FunctionTarget) -> None:
    assert deliverer.targets.deliver(stream, orders(*GOOD), TIMEOUT_MS) == Answered()


def test_exception_of_a_function_refuses_the_batch_and_is_told(deliverer: Deliverer, stream: FunctionTarget) -> None:
    found = deliverer.targets.deliver(stream, orders(*GOOD, POISON), TIMEOUT_MS)
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert found.error.endswith("poison of c2 with {'tag': b'\\xe9'}")


def test_powertools_batch_processor_names_the_record_that_failed(deliverer: Deliverer, batch: FunctionTarget) -> None:
    records = orders(*GOOD, POISON)
    found = deliverer.targets.deliver(batch, records, TIMEOUT_MS)
    assert isinstance(found, Answered)
    assert found.failed == {records.records[3].place}
    assert deliverer.targets.deliver(batch, orders(*GOOD), TIMEOUT_MS) == Answered()


def test_powertools_refuses_a_batch_of_which_all_failed(deliverer: Deliverer, batch: FunctionTarget) -> None:
    found = deliverer.targets.deliver(batch, orders(POISON), TIMEOUT_MS)
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert "All records failed processing" in found.error


def test_function_whose_concurrency_is_used_up_is_away(deliverer: Deliverer, stream: FunctionTarget) -> None:
    functions = deliverer.stack.root_client("lambda")
    functions.put_function_concurrency(FunctionName=stream.arn, ReservedConcurrentExecutions=0)
    try:
        found = deliverer.targets.deliver(stream, orders(*GOOD), TIMEOUT_MS)
    finally:
        functions.delete_function_concurrency(FunctionName=stream.arn)
    assert isinstance(found, Failed)
    assert found.failure is Failure.AWAY


@pytest.mark.parametrize("make", [_missing_function, _queue, _bus])
def test_target_that_does_not_let_the_role_in_is_away(
    deliverer: Deliverer, make: Callable[[Deliverer, str], Target]
) -> None:
    target = make(deliverer, "closed")
    found = deliverer.targets.deliver(target, orders(*GOOD), TIMEOUT_MS)
    assert isinstance(found, Failed)
    assert found.failure is Failure.AWAY
    refused(ErrorCode.ACCESS_DENIED, lambda: deliverer.targets.check(target))


def test_queue_gets_a_message_for_each_record_and_nothing_by_the_check(deliverer: Deliverer) -> None:
    target = _queue(deliverer, "packing")
    deliverer.allow(target)
    large = StoredRecord(99, value=b"x" * QUEUE_BYTES_MAX)
    records = [*(StoredRecord(offset) for offset in range(23)), StoredRecord(23, key=b"\xff", value=None), large]
    found = deliverer.targets.deliver(target, orders(*records), TIMEOUT_MS)
    assert isinstance(found, Answered)
    assert {offset for _, offset in found.failed} == {99}
    messages = {_number(each, "offset"): each for each in _received(deliverer.stack, target.url, 24)}
    assert sorted(messages) == [*range(24)]
    tombstone = messages[23]["MessageAttributes"]
    assert messages[23]["Body"] == tombstone["penstock-encoding"]["StringValue"] == "null"
    assert tombstone["penstock-key"]["BinaryValue"] == b"\xff"
    assert (messages[7]["Body"], _number(messages[7], "partition")) == ("v", 0)


def test_bus_gets_an_event_for_each_record_that_a_rule_can_match(deliverer: Deliverer) -> None:
    target, queue = _bus(deliverer, "orders"), _queue(deliverer, "matched")
    deliverer.allow(target)
    stack, bus = deliverer.stack, target.arn.rpartition("/")[2]
    events, sqs = stack.root_client("events"), stack.root_client("sqs")
    queue_arn = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["penstock"], "detail-type": ["orders"], "detail": {"value": {"id": [{"numeric": [">", 15]}]}}}
    rule = events.put_rule(Name="matched", EventBusName=bus, EventPattern=json.dumps(pattern))["RuleArn"]
    events.put_targets(Rule="matched", EventBusName=bus, Targets=[{"Id": "queue", "Arn": queue_arn}])
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": _policy(json.dumps(statement))})
    assert deliverer.targets.deliver(target, orders(*GOOD), TIMEOUT_MS) == Answered()
    found = [json.loads(message["Body"])["detail"] for message in _received(stack, queue.url, 2)]
    assert sorted(detail["offset"] for detail in found) == [16, 17]
    assert {detail["key"] for detail in found} == {"c1"}
    assert found[0]["headers"] == {"tag": ["6Q=="]}
    assert found[0]["base64"] == ["headers.tag"]


def _number(message: dict[str, Any], name: str) -> int:
    return int(message["MessageAttributes"][f"penstock-{name}"]["StringValue"])
