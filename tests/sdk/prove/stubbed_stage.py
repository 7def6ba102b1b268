"""A stage of a service in memory, whose AWS answers as a test says, in the shapes of botocore's models."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
from botocore.validate import validate_parameters

from penstock.admin.admin import Admin
from penstock.configuration import Configuration, StaticCredentials
from penstock.doctor.account_checks import Account
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.prove.leftover_kinds import undoings
from penstock.prove.leftovers import FILE_NAME, Leftovers
from penstock.prove.proof import Proof, ProofRow, ProvenRow, Steps
from penstock.prove.prove_run import ProofBudget, ProveRun
from penstock.prove.proven_stage import ProvenStage
from penstock.system import monotonic_ms
from penstock.testing import MemoryPenstock

URL = "https://abcdefghij.execute-api.us-east-1.amazonaws.com"
CONFIGURATION = Configuration(url=URL, region="us-east-1", credentials=StaticCredentials("AKIA", "secret"))
ACCOUNT = "123456789012"
FUNCTIONS = ("produce", "fetch", "admin", "upkeep", "hourly", "sweep", "promote", "deliver", "dispatch", "replicate")
LIVE = ("AWS::Lambda::Alias", f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:penstock-produce:live")
OUTPUTS = {
    "ApiId": "abcdefghij",
    "TimerPlaces": f"https://sqs/timers,penstock-promote,arn:aws:sqs:us-east-1:{ACCOUNT}:timers,penstock-promote",
    "ZoneBuckets": "a=zone-a--use1-az4--x-s3,b=zone-b--use1-az5--x-s3,c=zone-c--use1-az6--x-s3",
    "LogTable": "log",
    "GroupsTable": "groups",
    **{f"{each}PolicyArn": f"arn:aws:iam::{ACCOUNT}:policy/{each}" for each in ("Produce", "Consume", "Transact")},
}
MAPPINGS = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222")
SESSION = botocore.session.Session()  # it remembers the models that it has loaded
SESSION.set_credentials("testing", "testing")
AwsAnswer = Mapping[str, Any] | str | Callable[[Mapping[str, Any]], Mapping[str, Any] | str]


class CannedAws:
    """Answers by `service.Operation`: a document, an error's code, or a function of the call's parameters.

    `asked` has each call with its parameters. A call that no answer is for fails the test.
    """

    def __init__(self) -> None:
        self.answers: dict[str, AwsAnswer] = {
            "cloudformation.DescribeStacks": {"Stacks": [stack()]},
            "cloudformation.ListStackResources": {"StackResourceSummaries": resources()},
        }
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.calls = AwsCalls()

        @cache
        def client(service: str) -> Any:
            made = SESSION.create_client(service, region_name="us-east-1")
            made.meta.events.register("provide-client-params", self._hear)
            made.meta.events.register("before-call", self._answer)
            return made

        self.client: Callable[[str], Any] = client
        self._params: Mapping[str, Any] = {}

    def _hear(self, params: Mapping[str, Any], **_: Any) -> None:
        self._params = params

    def _answer(self, model: Any, **_: Any) -> tuple[Any, Mapping[str, Any]]:
        name = f"{model.service_model.service_name}.{model.name}"
        self.asked.append((name, self._params))
        self.calls.names.append(name)
        assert name in self.answers, f"no answer for {name}"
        answer = self.answers[name]
        found = answer(self._params) if callable(answer) else answer
        if isinstance(found, str):
            return SimpleNamespace(status_code=400), {"Error": {"Code": found, "Message": f"user/ann of {ACCOUNT}"}}
        validate_parameters(found, model.output_shape)
        return SimpleNamespace(status_code=200), {**found, "ResponseMetadata": {"HTTPStatusCode": 200}}


def stack() -> dict[str, Any]:
    """The stack as DescribeStacks tells it."""
    outputs = [{"OutputKey": name, "OutputValue": value} for name, value in OUTPUTS.items()]
    return {
        "StackName": "Penstock",
        "CreationTime": "2026-11-29T00:00:00Z",
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": outputs,
    }


def resources(*more: tuple[str, str]) -> list[dict[str, Any]]:
    """The resources of the stack, and some more by their type and id."""
    named = [
        *more,
        *(("AWS::Lambda::Function", f"penstock-{each}") for each in FUNCTIONS),
        ("AWS::Lambda::Function", "Penstock-Emptying-1f"),
        *(("AWS::Lambda::EventSourceMapping", each) for each in MAPPINGS),
        ("AWS::CloudWatch::Alarm", "penstock-api-5xx"),
    ]
    return [
        {
            "LogicalResourceId": f"Resource{number}",
            "PhysicalResourceId": name,
            "ResourceType": kind,
            "LastUpdatedTimestamp": "2026-11-29T00:00:00Z",
            "ResourceStatus": "CREATE_COMPLETE",
        }
        for number, (kind, name) in enumerate(named)
    ]


class DeployedTransport:
    """A Transport to a service in memory that answers as a deployed function does: with its time and its calls.

    `calls` has the storage calls by path, `took_ms` the time. An answer of `instead` takes the place of the service's:
    it is asked with method, path and body, and None means no other answer.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.took_ms = 12.0
        self.calls = {
            "/v1/produce": "dynamodb.UpdateItem=1,s3.PutObject=3",
            "/v1/fetch": "dynamodb.GetItem=1,s3.GetObject=1",
        }
        self.instead: Callable[[str, str, bytes], Response | None] = lambda *_: None
        self.sent: list[str] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.sent.append(f"{method} {path}")
        answer = self.instead(method, path, body) or self.inner.call(method, path, query, headers, body)
        told = {
            "Server-Timing": f"total;dur={self.took_ms}, cpu;dur=1.00",
            "Penstock-Storage-Calls": self.calls.get(path, "s3.PutObject=1" if _is_json_produce(path) else ""),
        }
        return Response(answer.status, {**answer.headers, **told}, answer.body)

    def close(self) -> None:
        self.inner.close()


def _is_json_produce(path: str) -> bool:
    return path.startswith("/v1/topics/") and path.endswith("/records")


def refusal(status: int, code: str | None, *, maybe_applied: bool = False) -> Response:
    """An error of the service, or one of AWS's that has no code."""
    if code is None:
        return Response(status, {}, b'{"message":"Forbidden"}')
    error = {"code": code, "message": "told", "maybe_applied": maybe_applied}
    return Response(status, {}, json.dumps({"error": error}).encode())


class StubbedStage:
    """The stage, its service and its AWS. `stage` is made with the options."""

    def __init__(self, folder: Path, *, has_account: bool = True, **options: Any) -> None:
        self.service = MemoryPenstock()
        self.transport = DeployedTransport(self.service.transport)
        self.aws = CannedAws()
        self.path = folder / FILE_NAME
        self.waits: list[float] = []
        admin = Admin(transport=self.service.transport)
        account = Account(client=self.aws.client, stack="Penstock", api_url=URL) if has_account else None
        self.stage = ProvenStage(
            transport=RecordingTransport(self.transport),
            account=account,
            leftovers=Leftovers(self.path, URL, undoings(admin, self.aws.client, self.functions, self.destroyed)),
            aws_calls=self.aws.calls,
            wait=self.waits.append,
            **options,
        )
        self.destroyed_names: list[str] = []

    def functions(self) -> tuple[str, ...]:
        return self.stage.functions

    def destroyed(self, entry: Mapping[str, Any]) -> None:
        self.destroyed_names.append(entry["name"])

    def topics(self) -> list[str]:
        return [each.name for each in self.service.admin().list_topics()]

    def ask(self, row: Callable[[ProvenStage], Proof | Steps]) -> Proof:
        """The row's answer. It waits for nothing."""
        found = row(self.stage)
        if isinstance(found, Proof):
            return found
        while True:
            try:
                self.waits.append(next(found) / 1_000)
            except StopIteration as stop:
                proof: Proof = stop.value
                return proof

    def run(self, *rows: ProofRow, usd_max: float = 1.0, seconds_max: float = 600.0) -> list[ProvenRow]:
        """The answered rows of a run."""
        made = self.made_run(*rows, usd_max=usd_max, seconds_max=seconds_max)
        made.run()
        return made.answered

    def made_run(self, *rows: ProofRow, usd_max: float = 1.0, seconds_max: float = 600.0) -> ProveRun:
        budget = ProofBudget(usd_max=usd_max, seconds_max=seconds_max)
        return ProveRun(self.stage, [rows], budget, tell=lambda _: None, began_ms=monotonic_ms())
