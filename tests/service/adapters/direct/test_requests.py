"""What direct clients send is what botocore's send: hosts, headers and signatures, for both kinds of buckets."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.handlers import add_expect_header

from penstock_service.adapters.direct.connections import Connections, HttpAnswer
from penstock_service.adapters.direct.drivers import DirectDynamoDb
from penstock_service.adapters.direct.places import Keys, Places, places_of
from penstock_service.adapters.direct.s3 import DirectS3
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SequentialExecutor, SystemEntropy
from penstock_service.ports.runtime import Runtime
from tests.support.service import SteppedClock
from tests.support.wire import Wire

KEYS = Keys("key", "secret", "tok+en/1")
REGION = "eu-west-1"
DIRECTORY_BUCKET = "zone-a--euw1-az1--x-s3"
# botocore signs none of these, and the service needs none of them.
_NOT_SENT = {"user-agent", "amz-sdk-invocation-id", "amz-sdk-request", "content-length", "host"}
UPDATE = {
    "TableName": "log",
    "Key": {"pk": {"S": "t#0"}, "sk": {"S": "head"}},
    "UpdateExpression": "SET tail = list_append(tail, :refs)",
    "ExpressionAttributeValues": {":refs": {"L": [{"B": b"\x00\xff ref"}]}, ":text": {"S": "\u00fc \U0001f600"}},
    "ReturnValues": "ALL_OLD",
}
PUT = {"Key": "ab/cd-1.seg", "Body": b"body", "ChecksumCRC32C": "AAAAAA==", "IfNoneMatch": "*"}
GET = {"Key": "ab/cd-1.seg", "Range": "bytes=0-3"}


def _of_botocore(service: str, method: str, **arguments: Any) -> Wire:
    wire = Wire()
    session = wire.sessions()()
    session.set_credentials(*KEYS)
    config = Config(
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"payload_signing_enabled": False},
    )
    client = session.create_client(service, region_name=REGION, config=config)
    client.meta.events.unregister("before-call.s3", add_expect_header)
    getattr(client, method)(**arguments)
    return wire


def _direct(monkeypatch: pytest.MonkeyPatch, time: str, service: str, method: str, **arguments: Any) -> Wire:
    wire = Wire()
    wire.replace_connections(monkeypatch)
    clock = SteppedClock()
    clock.time_ms = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1_000
    runtime = Runtime(clock=clock, entropy=SystemEntropy(), executor=SequentialExecutor())
    places = Places(region=REGION, endpoints={})
    client: Any = (
        DirectS3(places, lambda: KEYS, runtime, StorageCalls(), lambda: None)
        if service == "s3"
        else DirectDynamoDb(places, lambda: KEYS, clock.now_ms, StorageCalls())
    )
    getattr(client, method)(**arguments)
    return wire


def _compared(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in _NOT_SENT}


@pytest.mark.parametrize(
    ("service", "method", "arguments"),
    [
        ("s3", "put_object", {"Bucket": "zone-a", **PUT}),
        ("s3", "get_object", {"Bucket": "zone-a", **GET}),
        ("s3", "put_object", {"Bucket": "zone.a.b", **PUT}),
        ("s3", "put_object", {"Bucket": DIRECTORY_BUCKET, **PUT}),
        ("s3", "get_object", {"Bucket": DIRECTORY_BUCKET, **GET}),
    ],
)
def test_request_to_s3_is_the_one_of_botocore(
    monkeypatch: pytest.MonkeyPatch, service: str, method: str, arguments: dict[str, Any]
) -> None:
    expected = _of_botocore(service, method, **arguments)
    sent = _direct(monkeypatch, expected.requests[-1].headers["x-amz-date"], service, method, **arguments)
    for before, after in zip(expected.requests, sent.requests, strict=True):
        assert (after.operation, after.method, after.host) == (before.operation, before.method, before.host)
        if after.headers["x-amz-date"] == before.headers["x-amz-date"]:
            assert _compared(after.headers) == _compared(before.headers)
        assert after.body == before.body


@pytest.mark.parametrize(("reads_only", "mode"), [(True, "ReadOnly"), (False, None)])
def test_role_that_only_reads_asks_for_a_session_that_reads(
    monkeypatch: pytest.MonkeyPatch, reads_only: bool, mode: str | None
) -> None:
    wire = Wire()
    wire.replace_connections(monkeypatch)
    runtime = Runtime(clock=SteppedClock(), entropy=SystemEntropy(), executor=SequentialExecutor())
    places = Places(region=REGION, endpoints={}, reads_only=reads_only)
    DirectS3(places, lambda: KEYS, runtime, StorageCalls(), lambda: None).open_session(DIRECTORY_BUCKET)
    [request] = wire.requests
    assert request.headers.get("x-amz-create-session-mode") == mode
    assert ("x-amz-create-session-mode" in request.headers["authorization"]) is reads_only  # it is signed


def test_request_to_dynamodb_is_the_one_of_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _of_botocore("dynamodb", "update_item", **UPDATE).requests[0]
    bodies: list[bytes] = []
    found: list[Mapping[str, str]] = []

    def send(_self: Connections, _method: str, _target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        bodies.append(body)
        found.append(headers)
        return HttpAnswer(200, {}, b"{}")

    monkeypatch.setattr(Connections, "send", send)
    clock = SteppedClock()
    client = DirectDynamoDb(Places(region=REGION, endpoints={}), lambda: KEYS, clock.now_ms, StorageCalls())
    client.update_item(**UPDATE)
    assert json.loads(bodies[0]) == json.loads(expected.body)
    unsigned = {"authorization", "x-amz-date"}
    assert {name: value for name, value in found[0].items() if name not in unsigned} == {
        name: value for name, value in _compared(expected.headers).items() if name not in unsigned
    }


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov", "aws-eusc"])
def test_services_answer_where_botocore_finds_them(partition: str) -> None:
    session = botocore.session.Session()
    session.set_credentials(*KEYS)
    for region in session.get_available_regions("dynamodb", partition):
        places = places_of({"AWS_REGION": region})
        assert places is not None
        assert places.origin("dynamodb") == session.create_client("dynamodb", region_name=region).meta.endpoint_url
        if region != "us-east-1":  # whose name botocore leaves out; both answer
            assert places.origin("s3") == session.create_client("s3", region_name=region).meta.endpoint_url


@pytest.mark.parametrize("region", ["us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", ""])
def test_region_of_an_isolated_partition_is_left_to_botocore(region: str) -> None:
    assert places_of({"AWS_REGION": region}) is None


@pytest.mark.parametrize(
    "setting",
    [
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "True"},
        {"HTTPS_PROXY": "http://proxy:3128"},
        {"http_proxy": "http://proxy:3128"},
    ],
)
def test_settings_that_change_the_way_to_aws_are_left_to_botocore(setting: Mapping[str, str]) -> None:
    assert places_of({"AWS_REGION": REGION, **setting}) is None


def test_places_are_those_of_the_environment_where_it_sets_some() -> None:
    places = places_of({"AWS_REGION": REGION, "AWS_ENDPOINT_URL": "http://a:1/", "AWS_ENDPOINT_URL_S3": "http://b:2"})
    assert places is not None
    assert (places.origin("dynamodb"), places.origin("s3")) == ("http://a:1", "http://b:2")
