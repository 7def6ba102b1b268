"""`auto` on the deployed stack: a client learns the functions, takes those that IAM lets it, and goes by HTTP else."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.configuration import Configuration, StaticCredentials
from penstock.http.http_message import Response, json_request, raise_for_status
from penstock.http.transport import HttpTransport, Transport
from penstock.system import Instant
from penstock.transports.by_auto import AutoTransport
from penstock.transports.functions_place import access_by
from penstock.transports.ways import Ways
from penstock_core.limits import SDK_DETOUR_MS
from penstock_core.routes import functions_of
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT
from tests.end_to_end.local_stack import Stack, free_port
from tests.end_to_end.stack_storage import StackStorage

pytestmark = pytest.mark.stack
METADATA = json_request("GET", "/v1/metadata")


class Counting:
    """A transport that notes what it carries."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.calls: list[str] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.calls.append(f"{method} {path}")
        return self.inner.call(method, path, query, headers, body)

    def close(self) -> None:
        self.inner.close()


class Client:
    """A client with those keys: `http.calls` went by API Gateway, the others past it. `now_ms` is its clock."""

    def __init__(self, stack: Stack, key: str, secret: str, lambda_url: str | None = None) -> None:
        own = Configuration(
            url=stack.url, region=stack.region, credentials=StaticCredentials(key, secret), is_local=True
        )
        values = {"AWS_ENDPOINT_URL": stack.endpoint_url, "AWS_ENDPOINT_URL_LAMBDA": lambda_url or stack.endpoint_url}
        self.http = Counting(HttpTransport(own))
        self.now_ms = 1
        self.ways = Ways(
            None,
            lambda text: access_by(own, values, text),
            lasts=True,
            now=lambda: Instant(self.now_ms, self.now_ms),
        )
        self.transport = AutoTransport(self.http, self.ways)

    def metadata(self, topic: str) -> None:
        """One call of the function `admin`, that succeeds."""
        request = replace(METADATA, query={"topic": topic})
        raise_for_status(request, self.transport.call("GET", request.path, request.query, {}, b""))


Make = Callable[..., Client]


@pytest.fixture
def make(stack: Stack, storage: StackStorage, request: pytest.FixtureRequest) -> Make:
    """A client that may call every route by HTTP, and invoke these aliases on all functions that have them."""

    def make(*aliases: str, lambda_url: str | None = None) -> Client:
        arn = storage.outputs[FUNCTIONS_OUTPUT]
        invoked = [
            f"{arn}-{function.replace('_', '-')}:{alias}" for alias in aliases for function in functions_of(alias)
        ]
        statements = [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}]
        if invoked:
            statements.append({"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": invoked})  # type: ignore[dict-item] # JSON
        name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
        return Client(
            stack, *stack.create_user(name, {"Version": "2012-10-17", "Statement": statements}), lambda_url=lambda_url
        )

    return make


def test_deployed_stage_tells_its_functions(stack: Stack, storage: StackStorage, topic: str) -> None:
    told = {"addresses": [{"transport": "lambda", "address": storage.outputs[FUNCTIONS_OUTPUT]}]}
    transport = stack.transport()
    alone = json.loads(transport.call("GET", METADATA.path, {}, {}, b"").body)
    with_topic = json.loads(transport.call("GET", METADATA.path, {"topic": topic}, {}, b"").body)
    assert alone == told
    assert with_topic.items() >= {"name": topic, **told}.items()


def test_producer_and_consumer_pass_the_gateway_but_for_one_call_each(make: Make, topic: str) -> None:
    client = make("direct-produce", "direct-consume")
    with Producer(transport=client.transport) as producer:
        assert [producer.send(topic, b"v", partition=0).result().offset for _ in range(5)] == list(range(5))
    assert client.http.calls == ["GET /v1/metadata"]
    with Consumer(transport=client.transport, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).value for _ in range(5)] == [b"v"] * 5
    assert client.http.calls == ["GET /v1/metadata"]


def test_client_without_a_right_goes_by_http_and_by_lambda_once_it_has_it(
    make: Make, stack: Stack, storage: StackStorage, topic: str, request: pytest.FixtureRequest
) -> None:
    client = make()
    with Producer(transport=client.transport) as producer:
        assert [producer.send(topic, b"v", partition=0).result().offset for _ in range(3)] == [0, 1, 2]
        assert client.http.calls == ["GET /v1/metadata", *["POST /v1/produce"] * 3]
        name = stack.root_client("iam").list_users()["Users"][-1]["UserName"]
        arn = f"{storage.outputs[FUNCTIONS_OUTPUT]}-produce:direct-produce"
        allowed = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": arn}
        document = {"Version": "2012-10-17", "Statement": [allowed]}
        stack.root_client("iam").put_user_policy(UserName=name, PolicyName="more", PolicyDocument=json.dumps(document))
        client.http.calls.clear()
        assert producer.send(topic, b"v", partition=0).result().offset == 3
        assert client.http.calls == ["POST /v1/produce"]
        client.now_ms += SDK_DETOUR_MS
        assert producer.send(topic, b"v", partition=0).result().offset == 4
        assert client.http.calls == ["POST /v1/produce"]


def test_client_falls_back_function_by_function(make: Make, topic: str) -> None:
    client = make("direct-produce")
    with Producer(transport=client.transport) as producer:
        producer.send(topic, b"v", partition=0).result()
    with Consumer(transport=client.transport, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert next(consumer).value == b"v"
    assert "POST /v1/produce" not in client.http.calls
    assert "POST /v1/fetch" in client.http.calls


def test_alias_of_another_policy_does_not_serve_the_client(make: Make, topic: str) -> None:
    """It may invoke `direct-consume` only, so an append goes by HTTP, and a read past it."""
    client = make("direct-consume")
    client.metadata(topic)
    with Producer(transport=client.transport) as producer:
        producer.send(topic, b"v", partition=0).result()
    assert "POST /v1/produce" in client.http.calls


def test_lambda_that_cannot_be_reached_costs_one_try_in_ten_minutes(make: Make, topic: str) -> None:
    client = make("direct-admin", lambda_url=f"http://127.0.0.1:{free_port()}")
    with Producer(transport=client.transport) as producer:
        assert [producer.send(topic, b"v", partition=0).result().offset for _ in range(3)] == [0, 1, 2]
    assert client.http.calls == ["GET /v1/metadata", *["POST /v1/produce"] * 3]
    assert client.ways.trial("POST", "/v1/produce") is None


def test_stranger_is_refused_both_ways(stack: Stack, topic: str) -> None:
    """Keys that IAM does not know: neither STS nor API Gateway takes them, and no answer comes out of either."""
    client = Client(stack, "AKIASTRANGER00000000", "none of yours")
    client.ways.note_http("GET", METADATA.path, stack.transport().call("GET", METADATA.path, {}, {}, b""))
    for _ in range(3):
        assert client.transport.call("GET", METADATA.path, {"topic": topic}, {}, b"").status in (401, 403)


def test_refusal_of_the_service_does_not_go_by_http_again(make: Make, topic: str) -> None:
    client = make("direct-admin")
    client.metadata(topic)
    client.http.calls.clear()
    answer = client.transport.call("GET", "/v1/topics/no.such.topic/dead-letters", {}, {}, b"")
    assert answer.status == 404
    assert Admin(transport=client.transport).describe_topic(topic).topic.name == topic
    assert client.http.calls == []
