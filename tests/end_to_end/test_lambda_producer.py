"""examples/lambda_producer.py as a Lambda function on the deployed stack, whose instances are frozen and killed.

The rule `freeze` stops a function's process (SIGSTOP) after each answer, and continues it before the next event.
"""

import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from localstack.clients import set_rules
from localstack.places import CHECKOUT
from penstock import Admin, Consumer
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
PACKAGES = [str(CHECKOUT / each) for each in ("functions", "sdk")]
EVENTS = 5
MESSAGES = 20
LINGER_MS = 2_000
GIVE_UP_MS = 2_500

# What the how-to warns of: the records wait for their linger time when the handler answers.
FORGETFUL = """
import os
from penstock import Producer
failures = []
def note(error, metadata):
    if error is not None:
        failures.append(type(error).__name__)
linger_ms, give_up_ms = int(os.environ["LINGER_MS"]), int(os.environ["GIVE_UP_MS"])
producer = Producer(linger_ms=linger_ms, delivery_timeout_ms=give_up_ms, on_delivery=note)
def handler(event, _context):
    for message in event["Records"]:
        producer.send(os.environ["PENSTOCK_TOPIC"], message["body"])
    return {"pid": os.getpid(), "failures": failures}
"""
TOLD_PID = "import os\nfrom lambda_producer import handler as inner\n" + (
    "def handler(event, context):\n    return {**inner(event, context), 'pid': os.getpid()}\n"
)

Invoke = Callable[[Mapping[str, Any]], dict[str, Any]]


@pytest.fixture
def frozen(stack: Stack) -> Iterator[None]:
    """Each function stands still between two events."""
    port = int(stack.endpoint_url.rpartition(":")[2])
    set_rules(port, "freeze")
    yield
    set_rules(port, "none")


@pytest.fixture
def deploy(stack: Stack, storage: StackStorage, topic: str, frozen: None) -> Iterator[Callable[..., Invoke]]:
    """Deploys a module `own` as a function that may produce only. Returns what invokes it."""
    functions, iam = stack.root_client("lambda"), stack.root_client("iam")
    name = f"producer-{topic}"[:64]
    trusted = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    policy = storage.outputs["ProducePolicyArn"]
    iam.attach_role_policy(RoleName=name, PolicyArn=policy)

    def start(own: str, **environment: str) -> Invoke:
        variables = {
            "PENSTOCK_URL": stack.url,
            "PENSTOCK_TOPIC": topic,
            "LINGER_MS": str(LINGER_MS),
            "PYTHONPATH": os.pathsep.join([*PACKAGES, *(each for each in sys.path if "site-packages" in each)]),
        }
        functions.create_function(
            FunctionName=name,
            Runtime=f"python{sys.version_info.major}.{sys.version_info.minor}",
            Role=role,
            Handler="own.handler",
            Code={"ZipFile": _zip(own)},
            Timeout=10,
            Environment={"Variables": {**variables, **environment}},
        )
        return lambda event: _answer(functions.invoke(FunctionName=name, Payload=json.dumps(event)))

    yield start
    functions.delete_function(FunctionName=name)
    iam.detach_role_policy(RoleName=name, PolicyArn=policy)
    iam.delete_role(RoleName=name)


def _zip(own: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("own.py", own)
        archive.write(CHECKOUT / "examples" / "lambda_producer.py", "lambda_producer.py")
    return data.getvalue()


def _answer(response: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(response["Payload"].read())
    assert "FunctionError" not in response, answer
    return answer


def _event(*numbers: int) -> dict[str, Any]:
    return {"Records": [{"messageId": f"id-{number}", "body": str(number)} for number in numbers]}


def _stored(stack: Stack, topic: str) -> list[int]:
    """The numbers in the topic now, sorted."""
    with Admin(transport=stack.transport()) as admin:
        count = sum(each.high_watermark for each in admin.describe_topic(topic).offsets)
    with Consumer(topic, transport=stack.transport(), auto_offset_reset="earliest") as consumer:
        return sorted(int(record.value or b"") for record in islice(consumer, count))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _is_stopped(pid: int) -> bool:
    return _state(pid) == "T"


def _kill(pid: int) -> None:
    """Kill the instance, and wait until the emulator can see that."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: _has_ended(pid))


def _has_ended(pid: int) -> bool:
    """The process is gone, or it waits for its parent and its last thread has ended."""
    try:
        return _state(pid) == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except FileNotFoundError:
        return True


def test_example_stores_every_record_although_its_instances_freeze_and_die(
    stack: Stack, topic: str, deploy: Callable[..., Invoke]
) -> None:
    invoke = deploy(TOLD_PID)
    pids = []
    for number in range(EVENTS):
        numbers = range(number * MESSAGES, (number + 1) * MESSAGES)
        answer = invoke(_event(*numbers))
        assert answer["batchItemFailures"] == []
        assert _stored(stack, topic) == list(range(numbers.stop)), "the records are there when the handler has answered"
        until(lambda: _is_stopped(answer["pid"]))  # noqa: B023  # it is called at once
        pids.append(answer["pid"])
        if number == 2:
            _kill(pids[-1])
    assert len(set(pids[:3])) == 1
    assert len(set(pids)) == 2


@pytest.mark.minutes
def test_records_that_are_not_flushed_wait_for_the_next_event(
    stack: Stack, topic: str, deploy: Callable[..., Invoke]
) -> None:
    invoke = deploy(FORGETFUL, GIVE_UP_MS="120000")
    pid = invoke(_event())["pid"]
    assert invoke(_event(*range(MESSAGES)))["pid"] == pid
    answered_s = time.monotonic()
    until(lambda: _is_stopped(pid) and time.monotonic() > answered_s + LINGER_MS / 1_000)
    assert _stored(stack, topic) == []

    until(lambda: invoke(_event())["pid"] == pid and _stored(stack, topic) == list(range(MESSAGES)))


@pytest.mark.minutes
def test_records_that_are_not_flushed_are_lost_with_their_instance(
    stack: Stack, topic: str, deploy: Callable[..., Invoke]
) -> None:
    invoke = deploy(FORGETFUL, GIVE_UP_MS="120000")
    invoke(_event())
    pid = invoke(_event(*range(MESSAGES)))["pid"]
    until(lambda: _is_stopped(pid))
    _kill(pid)

    assert invoke(_event(MESSAGES))["pid"] != pid
    until(lambda: bool(invoke(_event())["pid"]) and _stored(stack, topic) == [MESSAGES])


@pytest.mark.minutes
def test_records_that_are_not_flushed_expire_in_a_long_freeze(
    stack: Stack, topic: str, deploy: Callable[..., Invoke]
) -> None:
    invoke = deploy(FORGETFUL, GIVE_UP_MS=str(GIVE_UP_MS))
    invoke(_event())
    pid = invoke(_event(*range(MESSAGES)))["pid"]
    answered_s = time.monotonic()
    until(lambda: _is_stopped(pid) and time.monotonic() > answered_s + GIVE_UP_MS / 1_000)

    until(lambda: invoke(_event())["failures"] == ["DeliveryTimeoutError"] * MESSAGES)
    assert _stored(stack, topic) == []
