"""Rows about who may call what: unsigned calls, the policies of clients, and the reach of the functions' roles."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import urllib3

from penstock.configuration import StaticCredentials
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport, Transport
from penstock.prove.proof import Emulator, Proof, ProofRow, left_out, ruled, unknown
from penstock.prove.proven_stage import ProvenStage
from penstock_core.routes import CONSUME, PRODUCE, ROUTES, TRANSACT, Route

_POLICIES = {PRODUCE: "ProducePolicyArn", CONSUME: "ConsumePolicyArn", TRANSACT: "TransactPolicyArn"}
_DENIED, _TAKEN = (401, 403), 200
_LET_THROUGH, _REFUSED = "let through", "refused"
_TIMEOUT_S = 10.0
_SESSION = "penstock-prove"
_SESSION_S = 900  # AWS takes no shorter one
_INVOKE = "execute-api:Invoke"
# A function, an action on an item of the groups table, the item's partition key, and whether its role allows it.
REACH_OF_ROLES = (
    ("share", "dynamodb:GetItem", "share#one#0", True),
    ("share", "dynamodb:GetItem", "billing", False),
    ("groups", "dynamodb:PutItem", "billing", True),
    ("groups", "dynamodb:PutItem", "#quotas", False),
    ("groups", "dynamodb:PutItem", "#subscriptions", False),
)
_STORAGE_CALLS = "penstock-storage-calls"  # each answer of a function has this header


class _Question(NamedTuple):
    """One question to IAM's simulator, and the answer that is expected."""

    action: str
    resource: str
    is_allowed: bool


def unsigned(stage: ProvenStage) -> Proof:
    """A call without a signature, and one that is signed with a wrong secret."""
    if stage.configuration is None:
        return left_out("this service has no URL")
    configuration = stage.configuration
    bare = _asked(stage, _Unsigned(configuration.url), "GET", "/v1/zones")
    key = configuration.credentials.get_frozen_credentials()
    forged = replace(configuration, credentials=StaticCredentials(key.access_key, "x" * len(key.secret_key), key.token))
    wrong = _asked(stage, HttpTransport(forged, timeout_s=_TIMEOUT_S), "GET", "/v1/zones")
    fact = f"unsigned: {bare.status}, wrong secret: {wrong.status}"
    is_so = not any(_reached(each) or each.status not in _DENIED for each in (bare, wrong))
    return ruled(is_so, fact, unsigned_status=bare.status, forged_status=wrong.status)


class _Unsigned:
    """A transport that signs nothing."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request. Raises as urllib3 does."""
        del query  # no row has one
        found = urllib3.request(
            method, self._url + path, headers=dict(headers), body=body, timeout=_TIMEOUT_S, retries=False
        )
        return Response(found.status, found.headers, found.data)

    def close(self) -> None:
        """It keeps no connection."""


def policies(stage: ProvenStage) -> Proof:
    """IAM's decisions on each client policy with each route, and on wake-ups."""
    wrong: list[str] = []
    asked = 0
    for policy, output in _POLICIES.items():
        document = _document(stage, stage.outputs[output])
        questions = [*_of_routes(policy, document), *(_of_wake_ups(document) if policy == CONSUME else ())]
        asked += len(questions)
        wrong += [f"{policy}: {each}" for each in _wrongly_answered(stage, document, questions)]
    fact = f"{asked} questions about {len(_POLICIES)} policies, {len(wrong)} answered otherwise than the routes say"
    fact += f": {'; '.join(wrong[:3])}" if wrong else ""
    return ruled(not wrong, fact, questions=asked, wrong=len(wrong))


def _document(stage: ProvenStage, arn: str) -> dict[str, Any]:
    """The policy's document, by two calls. botocore has parsed it."""
    iam = stage.client("iam")
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    found: dict[str, Any] = json.loads(document) if isinstance(document, str) else document
    return found


def _of_routes(policy: str, document: Mapping[str, Any]) -> list[_Question]:
    """Each route that the policy is for, and each other one that none of its own routes covers, as IAM's `*` does."""
    patterns = list(_resources(document, _INVOKE))
    start = patterns[0].partition("/")[0]  # arn:aws:execute-api:<region>:<account>:<api>
    own = [_arn(start, route, "*") for route in ROUTES if policy in route.policies]
    questions = []
    for route in ROUTES:
        arn = _arn(start, route, "one")
        if policy in route.policies:
            questions.append(_Question(_INVOKE, arn, True))
        elif not any(fnmatchcase(arn, pattern) for pattern in own):
            questions.append(_Question(_INVOKE, arn, False))
    return questions


def _arn(start: str, route: Route, name: str) -> str:
    path = "/".join(name if part.startswith("{") else part for part in route.segments)
    return f"{start}/$default/{route.method}{path}"


def _of_wake_ups(document: Mapping[str, Any]) -> list[_Question]:
    [namespace] = _resources(document, "appsync:EventSubscribe")
    return [
        _Question("appsync:EventSubscribe", namespace, True),
        _Question("appsync:EventPublish", namespace, False),
    ]


def _resources(document: Mapping[str, Any], action: str) -> Iterable[str]:
    for statement in document["Statement"]:
        if action in _listed(statement["Action"]):
            yield from _listed(statement["Resource"])


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _wrongly_answered(stage: ProvenStage, document: Mapping[str, Any], questions: Sequence[_Question]) -> list[str]:
    """The questions that IAM answers otherwise. It takes all resources of an action at once; an emulator takes one."""
    decisions: dict[tuple[str, str], bool] = {}
    for action in dict.fromkeys(each.action for each in questions):
        arns = [each.resource for each in questions if each.action == action]
        decisions |= _decisions(stage, document, action, arns)
        for arn in arns:
            if (action, arn) not in decisions:
                decisions |= _decisions(stage, document, action, [arn])
    return [
        f"{each.action} on {each.resource.rpartition('/$default/')[2]} is "
        f"{'not allowed' if each.is_allowed else 'allowed'}"
        for each in questions
        if decisions.get((each.action, each.resource)) is not each.is_allowed
    ]


def _decisions(
    stage: ProvenStage, document: Mapping[str, Any], action: str, arns: Sequence[str]
) -> dict[tuple[str, str], bool]:
    pages = stage.client("iam").get_paginator("simulate_custom_policy")
    results = [
        result
        for page in pages.paginate(PolicyInputList=[json.dumps(document)], ActionNames=[action], ResourceArns=arns)
        for result in page["EvaluationResults"]
    ]
    found = {}
    for result in results:
        parts = [
            (each["EvalResourceName"], each["EvalResourceDecision"])
            for each in result.get("ResourceSpecificResults", ())
        ]
        for arn, decision in parts or [(result.get("EvalResourceName", arns[0]), result["EvalDecision"])]:
            found[action, arn] = decision == "allowed"
    return found


def session(stage: ProvenStage) -> Proof:
    """Calls of two principals with one policy each, which live for 15 minutes: one that produces, one that consumes."""
    if stage.configuration is None:
        return left_out("this service has no URL")
    arn = stage.client("sts").get_caller_identity()["Arn"]
    is_user = ":user/" in arn or arn.endswith(":root")
    if not is_user and stage.role_arn is None:
        return left_out(
            "your credentials are a role's, which has no users of less right: name a role that you may assume, and "
            "that has the stage's policy Admin, by --assume-role ARN"
        )
    with ExitStack() as transports:
        producer, consumer = (
            transports.enter_context(closing(_session_of(stage, stage.outputs[_POLICIES[policy]])))
            for policy in (PRODUCE, CONSUME)
        )
        found = _calls_of_principals(stage, producer, consumer)
    outcomes = {outcome for outcome, expected in found.values() if outcome != expected}
    wrong = [f"{name}: {outcome}" for name, (outcome, expected) in found.items() if outcome != expected]
    fact = f"{len(found) - len(wrong)} of {len(found)} calls were let through or refused as they should be"
    fact += f"; {'; '.join(wrong)}" if wrong else ""
    if wrong and not outcomes & {_LET_THROUGH, _REFUSED}:
        return unknown(f"{fact}: neither a function nor IAM has answered, so ask again")
    return ruled(not wrong, fact, calls=len(found), wrong=len(wrong))


def _calls_of_principals(
    stage: ProvenStage, producer: HttpTransport, consumer: HttpTransport
) -> dict[str, tuple[str, str]]:
    """Each call, with its outcome and the outcome that it should have."""
    found = {
        "a producer produces": (_outcome(_asked(stage, producer, "POST", "/v1/produce")), _LET_THROUGH),
        "a producer fetches": (_outcome(_asked(stage, producer, "POST", "/v1/fetch")), _REFUSED),
        "a producer lists topics": (_outcome(_asked(stage, producer, "GET", "/v1/topics")), _REFUSED),
        "a producer takes a zone out": (_outcome(_asked(stage, producer, "POST", "/v1/zones/none")), _REFUSED),
        "a consumer fetches": (_outcome(_asked(stage, consumer, "POST", "/v1/fetch")), _LET_THROUGH),
        "a consumer produces": (_outcome(_asked(stage, consumer, "POST", "/v1/produce")), _REFUSED),
    }
    place = json.loads(_asked(stage, consumer, "GET", "/v1/wake-ups").body)
    if place.get("realtime"):
        found["a consumer publishes a wake-up"] = (_outcome(_published(consumer, place)), _REFUSED)
    return found


def _session_of(stage: ProvenStage, policy_arn: str) -> HttpTransport:
    """A transport that signs as a principal with that policy: yours, or the role's, cut down to it."""
    assert stage.configuration is not None
    sts, wanted = stage.client("sts"), {"PolicyArns": [{"arn": policy_arn}], "DurationSeconds": _SESSION_S}
    if stage.role_arn is None:
        keys = sts.get_federation_token(Name=_SESSION, **wanted)["Credentials"]
    else:
        keys = sts.assume_role(RoleArn=stage.role_arn, RoleSessionName=_SESSION, **wanted)["Credentials"]
    credentials = StaticCredentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    return HttpTransport(replace(stage.configuration, credentials=credentials), timeout_s=_TIMEOUT_S)


def _asked(stage: ProvenStage, transport: Transport, method: str, path: str) -> Response:
    """The answer to a request by another caller, which counts as the run's."""
    return stage.transport.exchange(method, path, {}, {}, b"", by=transport).response


def _outcome(answer: Response) -> str:
    """Any other status than a refusal's tells nothing about the right: a throttle, a route that is not there."""
    if _reached(answer):
        return _LET_THROUGH
    return _REFUSED if answer.status in _DENIED else f"status {answer.status}"


def _reached(answer: Response) -> bool:
    """True if a function has answered, with whatever status: IAM let the call through."""
    return _STORAGE_CALLS in {name.lower() for name in answer.headers}


def _published(transport: HttpTransport, place: Mapping[str, str]) -> Response:
    """The answer to a publication to a channel that nobody hears. One that was taken is marked as let through."""
    body = json.dumps({"channel": f"/{place['namespace']}/{_SESSION}/0", "events": ["{}"]}).encode()
    headers = dict(transport.event_headers(place["host"], body))
    realtime = urlsplit(place["realtime"])
    url = f"https://{place['host']}/event" if realtime.scheme == "wss" else f"http://{realtime.netloc}/event"
    status = urllib3.request("POST", url, body=body, headers=headers, timeout=_TIMEOUT_S, retries=False).status
    return Response(status, {_STORAGE_CALLS: ""} if status == _TAKEN else {}, b"")


def roles(stage: ProvenStage) -> Proof:
    """The reach of the roles of `share` and `groups` into the groups table, by the keys of the items."""
    lambda_, iam = stage.client("lambda"), stage.client("iam")
    table = stage.client("dynamodb").describe_table(TableName=stage.outputs["GroupsTable"])["Table"]["TableArn"]
    wrong, asked = [], 0
    for function, action, key, is_allowed in REACH_OF_ROLES:
        role = lambda_.get_function_configuration(FunctionName=f"{stage.name}-{function}")["Role"]
        context = {"ContextKeyName": "dynamodb:LeadingKeys", "ContextKeyType": "stringList", "ContextKeyValues": [key]}
        [result] = iam.simulate_principal_policy(
            PolicySourceArn=role, ActionNames=[action], ResourceArns=[table], ContextEntries=[context]
        )["EvaluationResults"]
        asked += 1
        if (result["EvalDecision"] == "allowed") is not is_allowed:
            wrong.append(f"{function} {action} {key}: {result['EvalDecision']}")
    fact = f"{asked - len(wrong)} of {asked} answers are as they should be"
    return ruled(not wrong, fact + (f"; {'; '.join(wrong)}" if wrong else ""), questions=asked, wrong=len(wrong))


def access_rows() -> list[ProofRow]:
    """The rows, in the order in which they are to run."""
    return [
        ProofRow(
            name="calls without a right signature",
            expects="an unsigned call and a forged one get 401 or 403, and reach no function",
            ask=unsigned,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="policies of clients",
            expects="each allows its own routes and no other; consumers may subscribe to wake-ups, not publish them",
            ask=policies,
            seconds_max=60,
            usd_max=0.005,
            action="iam:GetPolicy, GetPolicyVersion and SimulateCustomPolicy, cloudformation:DescribeStacks",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="principals of one policy",
            expects="a producer may only produce, a consumer may only consume and publishes no wake-up",
            ask=session,
            seconds_max=30,
            action="sts:GetFederationToken, or AssumeRole of the role that you name",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="reach of roles",
            expects="`share` reads items of share groups only, `groups` writes no quota and no subscription",
            ask=roles,
            action="iam:SimulatePrincipalPolicy, lambda:GetFunctionConfiguration, dynamodb:DescribeTable",
            emulator=Emulator.LACKS,
        ),
    ]
