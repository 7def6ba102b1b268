"""Functions, queues and buses of the emulator, as users make them and let the service in."""

import io
import json
import shlex
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

from penstock_core.push.targets.target import BusTarget, FunctionTarget, QueueTarget, Target
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

_CODE = Path(__file__).with_name("target_function.py")
_PACKAGES = ("aws-lambda-powertools", "jmespath", "typing-extensions")
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


@dataclass(frozen=True, slots=True)
class TargetResources:
    """Makes targets on a stack, and looks at what they got."""

    stack: Stack

    def function(self, name: str, handler: str) -> FunctionTarget:
        """A function with Powertools, which runs `handler` of target_function.py."""
        iam = self.stack.root_client("iam")
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUST))["Role"]["Arn"]
        made = self.stack.root_client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.11",
            Role=role,
            Handler=f"{_CODE.stem}.{handler}",
            Timeout=30,
            Code={"ZipFile": _packed()},
        )
        return FunctionTarget(arn=made["FunctionArn"])

    def queue(self, name: str) -> QueueTarget:
        return QueueTarget(url=self.stack.root_client("sqs").create_queue(QueueName=name)["QueueUrl"])

    def bus(self, name: str) -> BusTarget:
        return BusTarget(arn=self.stack.root_client("events").create_event_bus(Name=name)["EventBusArn"])

    def queue_of_rule(self, bus: BusTarget, pattern: dict[str, Any], name: str) -> QueueTarget:
        """A queue that gets the events of the bus which match the pattern."""
        queue, events = self.queue(name), self.stack.root_client("events")
        bus_name = bus.arn.rpartition("/")[2]
        rule = events.put_rule(Name=name, EventBusName=bus_name, EventPattern=json.dumps(pattern))["RuleArn"]
        arn = self._queue_arn(queue)
        events.put_targets(Rule=name, EventBusName=bus_name, Targets=[{"Id": "queue", "Arn": arn}])
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        self._set_policy(queue, json.dumps(statement))
        return queue

    def grant(self, target: Target, refusal: str) -> None:
        """Does what the message of a refusal says."""
        told = refusal.splitlines()[1]
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
                self._set_policy(target, told)
            case BusTarget():
                bus = target.arn.rpartition("/")[2]
                self.stack.root_client("events").put_permission(EventBusName=bus, Policy=_policy(told))

    def received(self, queue: QueueTarget, count: int) -> list[dict[str, Any]]:
        """The messages of a queue, once there are `count`."""
        sqs, found = self.stack.root_client("sqs"), list[dict[str, Any]]()

        def are_all() -> bool:
            answer = sqs.receive_message(QueueUrl=queue.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
            found.extend(answer.get("Messages", []))
            return len(found) >= count

        until(are_all, shown=lambda: found)
        return found

    def _queue_arn(self, queue: QueueTarget) -> str:
        sqs = self.stack.root_client("sqs")
        found = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def _set_policy(self, queue: QueueTarget, statement: str) -> None:
        attributes = {"Policy": _policy(statement)}
        self.stack.root_client("sqs").set_queue_attributes(QueueUrl=queue.url, Attributes=attributes)


def number_of(message: dict[str, Any], name: str) -> int:
    """The number that an attribute `penstock-<name>` of a message has."""
    return int(message["MessageAttributes"][f"penstock-{name}"]["StringValue"])


def _policy(statement: str) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [json.loads(statement)]})


@cache
def _packed() -> bytes:
    """The function and Powertools, as `pip install --target` would put them into a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_CODE, _CODE.name)
        for package in _PACKAGES:
            for file in files(package) or []:
                if file.suffix == ".py" and ".." not in file.parts:
                    archive.write(str(file.locate()), str(file))
    return packed.getvalue()
