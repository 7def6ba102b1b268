"""IAM, aliases and STS of the deployed local stack: who may invoke what, and whom a function takes its caller for."""

import json
from dataclasses import replace

import pytest

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.configuration import StaticCredentials
from penstock.errors import AccessDeniedError
from penstock.http.connections import Connections
from penstock.http.http_message import Response
from penstock.http.no_answer import ANSWER_TIMEOUT_S
from penstock.http.signature import SignedRequest
from penstock.http.transport import Transport
from penstock.transports.by_lambda import LambdaTransport
from penstock.transports.functions_place import FunctionsAccess, find_functions
from penstock.transports.invocation import OwnProof, event_bytes, invocation
from penstock_core.routes import functions_of
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT, FUNCTIONS_VARIABLE
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage

pytestmark = pytest.mark.stack


@pytest.fixture
def access(stack: Stack, storage: StackStorage, monkeypatch: pytest.MonkeyPatch) -> FunctionsAccess:
    """The functions, for the stack's user, who has all policies of clients."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", stack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", stack.secret_access_key)
    arn = storage.outputs[FUNCTIONS_OUTPUT]
    return find_functions(environ={FUNCTIONS_VARIABLE: arn, **_endpoints(stack)})


def _endpoints(stack: Stack) -> dict[str, str]:
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL_STS")
    return dict.fromkeys(names, stack.endpoint_url)


def _by(access: FunctionsAccess, key: str, secret: str) -> FunctionsAccess:
    return replace(access, signer=replace(access.signer, credentials=StaticCredentials(key, secret)))


def _user(stack: Stack, access: FunctionsAccess, name: str, *aliases: str) -> FunctionsAccess:
    """A user whose one policy allows these aliases, on the functions that have them."""
    resources = [access.place.alias_arn(function, alias) for alias in aliases for function in functions_of(alias)]
    statement = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": resources}
    key, secret = stack.create_user(name, {"Version": "2012-10-17", "Statement": [statement]})
    return _by(access, key, secret)


def test_producer_by_its_alias_appends_and_may_do_nothing_else(
    stack: Stack, access: FunctionsAccess, topic: str
) -> None:
    transport: Transport = LambdaTransport(_user(stack, access, "direct-producer", "direct-produce"))
    with Producer(transport=transport) as producer:
        assert producer.send(topic, b"v", partition=0).result().offset == 0
    with pytest.raises(AccessDeniedError, match="lambda:InvokeFunction"):
        Admin(transport=transport).delete_topic(topic)
    with Consumer(transport=stack.transport()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert next(consumer).value == b"v"


@pytest.mark.parametrize("suffix", ["", ":$LATEST", ":direct-admin"])
def test_policy_of_producers_reaches_no_other_way_into_a_function(
    stack: Stack, access: FunctionsAccess, suffix: str
) -> None:
    user = _user(stack, access, f"direct-other-{len(suffix)}", "direct-produce")
    event = {
        "routeKey": "GET /v1/topics",
        "requestContext": {"authorizer": {"iam": {"userArn": "arn:aws:iam::1:root"}}},
    }
    target = access.place.alias_arn("admin", "x").removesuffix(":x") + suffix
    signed = invocation(user.signer, target, json.dumps(event).encode())
    assert _sent(signed, json.dumps(event).encode()).status == 403


def test_event_that_names_another_caller_is_refused_by_the_deployed_function(
    stack: Stack, access: FunctionsAccess
) -> None:
    user = _user(stack, access, "direct-forger", "direct-admin")
    proof = OwnProof(user.signer, user.sts_url, user.place.arn).current()
    forged = json.loads(event_bytes("GET", "/v1/topics", {}, b"", proof))
    forged["requestContext"] = {"authorizer": {"iam": {"userArn": "arn:aws:iam::000000000000:user/penstock-local"}}}
    assert _invoked(user, "direct-admin", forged)["error"]["code"] == "INVALID_REQUEST"


def test_proof_for_another_stage_is_refused_by_the_emulators_sts(stack: Stack, access: FunctionsAccess) -> None:
    user = _user(stack, access, "direct-replayer", "direct-admin")
    other = OwnProof(user.signer, user.sts_url, f"{user.place.arn}-other").current()
    event = json.loads(event_bytes("GET", "/v1/topics", {}, b"", other))
    refused = _invoked(user, "direct-admin", event)["error"]
    assert (refused["code"], refused["maybe_applied"]) == ("NOT_AUTHORIZED", False)
    assert "SignatureDoesNotMatch" in str(refused["message"])


def test_functions_are_found_by_the_outputs_of_the_stack(
    stack: Stack, access: FunctionsAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    environ = {"PENSTOCK_STACK": "Penstock", **_endpoints(stack)}
    found = find_functions(stack.region, environ=environ)
    assert (found.place, found.lambda_url) == (access.place, stack.endpoint_url)


def _invoked(access: FunctionsAccess, alias: str, event: object) -> dict[str, dict[str, object]]:
    """The body of the answer of `topics` to an event, invoked by the alias."""
    body = json.dumps(event).encode()
    signed = invocation(access.signer, access.place.alias_arn("admin", alias), body)
    answer = _sent(signed, body)
    assert answer.status == 200, answer.body
    found: dict[str, dict[str, object]] = json.loads(json.loads(answer.body)["body"])
    return found


def _sent(signed: SignedRequest, body: bytes) -> Response:
    return Connections(ANSWER_TIMEOUT_S).send("POST", signed.url, signed.headers, body)
