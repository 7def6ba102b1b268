"""A topic with a subscription whose target is a function of this bench."""

import io
import json
import os
import secrets
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.push.facts import Invocation, Place, Verdict, judge, read_ledger
from localstack.clients import client
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.model import ConsumerRecord
from penstock_core.share.dead_letter import HEADER_PREFIX

DELIVER = "penstock-deliver"
PATIENCE_S = 240  # for one more record to be handled: longer than a lane's lock
_TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)
_SOURCE = Path(__file__).with_name("handler.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedTopic:
    """A topic, its dead-letter topic of as many partitions, the target, and the files beside it."""

    admin: Admin
    name: str
    partitions: int
    folder: Path
    function_arn: str
    sent: list[Place] = field(default_factory=list)

    @property
    def dead_letter_topic(self) -> str:
        """The name of the topic that takes what cannot be handled."""
        return f"{self.name}.dead"

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self.name

    @property
    def ledger(self) -> Path:
        """The file that the target writes to."""
        return self.folder / "ledger.jsonl"

    def control(self, **settings: object) -> None:
        """Let the target do this from its next invocation on."""
        beside = self.folder / "control.new"
        beside.write_text(json.dumps(settings), encoding="utf-8")
        beside.replace(self.folder / "control.json")

    def subscribe(self, **settings: Any) -> None:
        """Create the subscription."""
        self.admin.put_subscription(self.subscription, [self.name], {"lambda": self.function_arn}, settings)

    def send(self, values: list[bytes]) -> None:
        """Send records to the partitions in turn, and wait for the answers."""
        with Producer() as producer:
            sent = [
                producer.send(self.name, value, partition=number % self.partitions)
                for number, value in enumerate(values)
            ]
            producer.flush()
        for each in sent:
            answer = each.result()
            self.sent.append((answer.partition, answer.offset))

    def invocations(self) -> list[Invocation]:
        """All invocations of the target so far."""
        return read_ledger(self.ledger)

    def dead_letters(self) -> list[ConsumerRecord]:
        """All records of the dead-letter topic."""
        where = [TopicPartition(self.dead_letter_topic, number) for number in range(self.partitions)]
        found: list[ConsumerRecord] = []
        with Consumer() as consumer:
            consumer.assign(where)
            ends = consumer.end_offsets(where)
            while any(consumer.position(each) < end for each, end in ends.items()):
                found += consumer.poll()
        return found

    def lag(self) -> int:
        """The records that the subscription has not finished."""
        return self.admin.describe_subscription(self.subscription).lag

    def wait_until_delivered(self, patience_s: float = PATIENCE_S) -> float:
        """Wait until no record is left; the seconds that it took. Raises ClickException if it gets nowhere."""
        began_s = time.monotonic()
        self.wait_for(lambda: not self.lag(), progress=self.lag, patience_s=patience_s)
        return time.monotonic() - began_s

    def wait_for(
        self, is_over: Callable[[], bool], progress: Callable[[], int], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until it is over, as long as `progress` changes at least each `patience_s`."""
        seen, deadline_s = progress(), time.monotonic() + patience_s
        while not is_over():
            time.sleep(0.2)
            now = progress()
            if now != seen:
                seen, deadline_s = now, time.monotonic() + patience_s
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"nothing has changed for {patience_s:,} s: {seen:,}")

    def verdict(self) -> Verdict:
        """The judgement on all that was sent."""
        return judge(self.invocations(), self.sent, [origin(each) for each in self.dead_letters()])


def origin(letter: ConsumerRecord) -> Place:
    """The partition and the offset that a dead letter came from."""
    headers = dict(letter.headers)
    return int(headers[f"{HEADER_PREFIX}partition"] or b""), int(headers[f"{HEADER_PREFIX}offset"] or b"")


@contextmanager
def pushed_topic(folder: Path, *, partitions: int) -> Iterator[PushedTopic]:
    """A topic and a target, which are deleted afterwards. Call `subscribe` to begin."""
    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    lambdas, name = client("lambda", port), f"push-{secrets.token_hex(4)}"
    iam = client("iam", port)
    (folder / "control.json").write_text("{}", encoding="utf-8")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
    arn = lambdas.create_function(
        FunctionName=name,
        Runtime=f"python3.{sys.version_info.minor}",
        Role=role,
        Handler="handler.handler",
        Code={"ZipFile": _zipped()},
        Timeout=30,
        Environment={"Variables": {"LEDGER": str(folder / "ledger.jsonl"), "CONTROL": str(folder / "control.json")}},
    )["FunctionArn"]
    lambdas.add_permission(
        FunctionName=name, StatementId="penstock", Action="lambda:InvokeFunction", Principal=_targets_role(lambdas)
    )
    with Admin() as admin:
        topic = PushedTopic(admin=admin, name=name, partitions=partitions, folder=folder, function_arn=arn)
        for each in (topic.name, topic.dead_letter_topic):
            admin.create_topic(each, partitions=partitions)
        try:
            yield topic
        finally:
            admin.delete_subscription(topic.subscription)
            for each in (topic.name, topic.dead_letter_topic):
                admin.delete_topic(each)
            lambdas.delete_function(FunctionName=name)
            iam.delete_role(RoleName=name)


def _targets_role(lambdas: Any) -> str:
    """The role under which the service calls targets."""
    variables = lambdas.get_function_configuration(FunctionName=DELIVER)["Environment"]["Variables"]
    return str(variables["PENSTOCK_TARGETS"].partition(",")[0])


def _zipped() -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("handler.py", _SOURCE.read_text(encoding="utf-8"))
        return file.getvalue()
