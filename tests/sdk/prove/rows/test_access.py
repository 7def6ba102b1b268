"""The rows about who may call what: each holds, and each one finds the hole that it is for."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from penstock.http.http_message import Response
from penstock.prove.proof import Proof
from penstock.prove.rows import access
from penstock_core.routes import CONSUME, PRODUCE, ROUTES, TRANSACT
from tests.sdk.prove.stubbed_stage import ACCOUNT, CONFIGURATION, StubbedStage

API = f"arn:aws:execute-api:us-east-1:{ACCOUNT}:abcdefghij"
NAMESPACE = f"arn:aws:appsync:us-east-1:{ACCOUNT}:apis/1/channelNamespace/wake"
FORBIDDEN = Response(403, {}, b'{"message":"Forbidden"}')
REACHED = Response(400, {"Penstock-Storage-Calls": ""}, b"{}")
KEYS = {
    "AccessKeyId": "ASIA567890123456",
    "SecretAccessKey": "s",
    "SessionToken": "t",
    "Expiration": "2026-11-29T01:00:00Z",
}


def _document(policy: str, *more: str) -> dict[str, Any]:
    arns = [
        f"{API}/$default/{route.method}" + "/".join("*" if each.startswith("{") else each for each in route.segments)
        for route in ROUTES
        if policy in route.policies
    ]
    receive = [{"Effect": "Allow", "Action": "appsync:EventSubscribe", "Resource": NAMESPACE}]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": [*arns, *more]},
            *(receive if policy == CONSUME else []),
        ],
    }


class Iam:
    """IAM's simulator of policies: `fnmatch` of the document's resources. It answers in any of three shapes."""

    def __init__(self, stubbed: StubbedStage, shape: str = "one for each") -> None:
        self.documents = {policy: _document(policy) for policy in (PRODUCE, CONSUME, TRANSACT)}
        self.shape = shape
        stubbed.aws.answers |= {
            "iam.GetPolicy": {"Policy": {"DefaultVersionId": "v3"}},
            "iam.GetPolicyVersion": lambda asked: {
                "PolicyVersion": {"Document": json.dumps(self.documents[asked["PolicyArn"].rpartition("/")[2].lower()])}
            },
            "iam.SimulateCustomPolicy": self.simulate,
        }

    def simulate(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        document = json.loads(asked["PolicyInputList"][0])
        [action] = asked["ActionNames"]
        arns = asked["ResourceArns"] if self.shape != "the first only" else asked["ResourceArns"][:1]
        decisions = [(arn, self._decision(document, action, arn)) for arn in arns]
        if self.shape == "parts":
            parts = [{"EvalResourceName": arn, "EvalResourceDecision": decision} for arn, decision in decisions]
            results = [{"EvalActionName": action, "EvalDecision": decisions[0][1], "ResourceSpecificResults": parts}]
        else:
            results = [
                {"EvalActionName": action, "EvalResourceName": arn, "EvalDecision": decision}
                for arn, decision in decisions
            ]
        return {"EvaluationResults": results, "IsTruncated": False}

    def _decision(self, document: Mapping[str, Any], action: str, arn: str) -> str:
        for statement in document["Statement"]:
            listed = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            if action in actions and any(fnmatchcase(arn, each) for each in listed):
                return "allowed"
        return "implicitDeny"


@pytest.mark.parametrize("shape", ["one for each", "parts", "the first only"])
def test_policies_hold_in_each_shape_of_the_simulators_answer(stubbed: StubbedStage, shape: str) -> None:
    Iam(stubbed, shape)
    found = stubbed.ask(access.policies)
    assert (found.ruling.value, found.figures["wrong"]) == ("holds", 0), found.fact
    assert int(found.figures["questions"]) > 2 * len(ROUTES)


@pytest.mark.parametrize(
    ("policy", "more", "told"),
    [
        (PRODUCE, f"{API}/$default/POST/v1/fetch", "produce: execute-api:Invoke on POST/v1/fetch is allowed"),
        (CONSUME, f"{API}/$default/*", "consume: execute-api:Invoke on POST/v1/topics is allowed"),
    ],
)
def test_policy_that_is_too_wide_is_found(stubbed: StubbedStage, policy: str, more: str, told: str) -> None:
    Iam(stubbed).documents[policy] = _document(policy, more)
    found = stubbed.ask(access.policies)
    assert found.ruling.value == "does not hold"
    assert told in found.fact


def test_policy_that_lacks_a_route_is_found(stubbed: StubbedStage) -> None:
    iam = Iam(stubbed)
    iam.documents[PRODUCE]["Statement"][0]["Resource"].remove(f"{API}/$default/POST/v1/produce")
    found = stubbed.ask(access.policies)
    assert "produce: execute-api:Invoke on POST/v1/produce is not allowed" in found.fact


def test_consumer_that_may_publish_wake_ups_is_found(stubbed: StubbedStage) -> None:
    iam = Iam(stubbed)
    iam.documents[CONSUME]["Statement"][1]["Action"] = ["appsync:EventSubscribe", "appsync:EventPublish"]
    found = stubbed.ask(access.policies)
    assert found.ruling.value == "does not hold"
    assert "appsync:EventPublish" in found.fact


class Gateway:
    """API Gateway: what each of the keys may call, and what it answers otherwise."""

    def __init__(self) -> None:
        self.allowed: dict[str, set[str]] = {}
        self.denied = FORBIDDEN
        self.published = 403

    def called(self, key: str | None, name: str) -> Response:
        if key is not None and name in self.allowed.get(key, set()):
            body = {"realtime": "wss://r/event/realtime", "host": "h", "realtime_host": "r", "namespace": "wake"}
            return Response(REACHED.status, REACHED.headers, json.dumps(body).encode())
        return self.denied


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """The gateway in place of each HTTP transport that a row makes."""
    made = Gateway()

    class Signed:
        def __init__(self, configuration: Any, **_: Any) -> None:
            self._configuration = configuration

        def call(self, method: str, path: str, *_: object) -> Response:
            frozen = self._configuration.credentials.get_frozen_credentials()
            key = None if frozen.secret_key == "x" * 6 else frozen.access_key
            return made.called(key, f"{method} {path}")

        def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
            return {"host": host}

        def close(self) -> None:
            pass

    class Bare(Signed):
        def __init__(self, url: str) -> None:
            assert url == CONFIGURATION.url

        def call(self, method: str, path: str, *_: object) -> Response:
            return made.called(None, f"{method} {path}")

    monkeypatch.setattr(access, "HttpTransport", Signed)
    monkeypatch.setattr(access, "_Unsigned", Bare)
    monkeypatch.setattr("urllib3.request", lambda *_, **__: type("Answer", (), {"status": made.published})())
    return made


def test_unsigned_and_forged_calls_that_are_refused_hold(stubbed: StubbedStage, gateway: Gateway) -> None:
    found = stubbed.ask(access.unsigned)
    assert (found.ruling.value, found.figures) == ("holds", {"unsigned_status": 403, "forged_status": 403})


@pytest.mark.parametrize("denied", [Response(200, {}, b"{}"), Response(403, REACHED.headers, b"{}")])
def test_unsigned_call_that_reaches_a_function_is_found(
    stubbed: StubbedStage, gateway: Gateway, denied: Response
) -> None:
    gateway.denied = denied
    assert stubbed.ask(access.unsigned).ruling.value == "does not hold"


def _session(stubbed: StubbedStage, gateway: Gateway, *, produces: str = "", consumes: str = "") -> Proof:
    """The row's answer, where the principals may call these routes on top of their own."""
    keys = {"Produce": "ASIAPRODUCE12345", "Consume": "ASIACONSUME12345"}
    own = {"POST /v1/produce"}, {"POST /v1/fetch", "GET /v1/wake-ups"}
    gateway.allowed = {keys["Produce"]: own[0] | {produces}, keys["Consume"]: own[1] | {consumes}}

    def credentials(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        policy = asked["PolicyArns"][0]["arn"].rpartition("/")[2]
        return {"Credentials": {**KEYS, "AccessKeyId": keys[policy]}}

    stubbed.aws.answers |= {"sts.GetFederationToken": credentials, "sts.AssumeRole": credentials}
    return stubbed.ask(access.session)


def test_principals_of_one_policy_hold(stubbed: StubbedStage, gateway: Gateway) -> None:
    stubbed.aws.answers["sts.GetCallerIdentity"] = {"Arn": f"arn:aws:iam::{ACCOUNT}:user/ann"}
    found = _session(stubbed, gateway)
    assert (found.ruling.value, found.figures) == ("holds", {"calls": 7, "wrong": 0}), found.fact


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"produces": "POST /v1/fetch"}, "a producer fetches: let through"),
        ({"produces": "GET /v1/topics"}, "a producer lists topics: let through"),
        ({"produces": "POST /v1/zones/none"}, "a producer takes a zone out: let through"),
        ({"consumes": "POST /v1/produce"}, "a consumer produces: let through"),
    ],
)
def test_principal_that_may_do_more_is_found(
    stubbed: StubbedStage, gateway: Gateway, more: dict[str, str], told: str
) -> None:
    stubbed.aws.answers["sts.GetCallerIdentity"] = {"Arn": f"arn:aws:iam::{ACCOUNT}:user/ann"}
    found = _session(stubbed, gateway, **more)
    assert found.ruling.value == "does not hold"
    assert told in found.fact


def test_consumer_whose_publication_is_taken_is_found(stubbed: StubbedStage, gateway: Gateway) -> None:
    stubbed.aws.answers["sts.GetCallerIdentity"] = {"Arn": f"arn:aws:iam::{ACCOUNT}:user/ann"}
    gateway.published = 200
    assert "a consumer publishes a wake-up: let through" in _session(stubbed, gateway).fact


@pytest.mark.parametrize("status", [404, 429, 503])
def test_answer_that_is_no_refusal_shows_nothing(stubbed: StubbedStage, gateway: Gateway, status: int) -> None:
    stubbed.aws.answers["sts.GetCallerIdentity"] = {"Arn": f"arn:aws:iam::{ACCOUNT}:user/ann"}
    gateway.denied = Response(status, {}, b"{}")
    found = _session(stubbed, gateway)
    assert (found.ruling.value, f"a producer fetches: status {status}" in found.fact) == ("unknown", True)


def test_callers_role_names_another_role_or_the_row_is_left_out(tmp_path: Path, gateway: Gateway) -> None:
    session = {"Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/Operator/ann"}
    without = StubbedStage(tmp_path / "a", configuration=CONFIGURATION)
    without.aws.answers["sts.GetCallerIdentity"] = session
    found = without.ask(access.session)
    assert found.ruling.value == "left out"
    assert "--assume-role" in found.fact
    with_role = StubbedStage(tmp_path / "b", configuration=CONFIGURATION, role_arn=f"arn:aws:iam::{ACCOUNT}:role/r")
    with_role.aws.answers["sts.GetCallerIdentity"] = session
    assert _session(with_role, gateway).ruling.value == "holds"
    assert "sts.AssumeRole" in with_role.aws.calls.names
    assert "sts.GetFederationToken" not in with_role.aws.calls.names


@pytest.mark.parametrize(
    ("leak", "ruling"), [(None, "holds"), ("#quotas", "does not hold"), ("billing", "does not hold")]
)
def test_roles_reach_their_own_items_only(stubbed: StubbedStage, leak: str | None, ruling: str) -> None:
    role = "arn:aws:iam::123456789012:role/{}"

    def simulate(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        function = asked["PolicySourceArn"].rpartition("-")[2]
        [key] = asked["ContextEntries"][0]["ContextKeyValues"]
        own = key.startswith("share#") if function == "share" else not key.startswith("#")
        decision = "allowed" if own or key == leak else "implicitDeny"
        return {"EvaluationResults": [{"EvalActionName": asked["ActionNames"][0], "EvalDecision": decision}]}

    stubbed.aws.answers |= {
        "dynamodb.DescribeTable": {"Table": {"TableArn": "arn:aws:dynamodb:us-east-1:1:table/groups"}},
        "lambda.GetFunctionConfiguration": lambda asked: {"Role": role.format(asked["FunctionName"])},
        "iam.SimulatePrincipalPolicy": simulate,
    }
    found = stubbed.ask(access.roles)
    assert found.ruling.value == ruling, found.fact
    assert found.figures["questions"] == 5
