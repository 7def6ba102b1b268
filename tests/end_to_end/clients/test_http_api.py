"""Bad input to the deployed HTTP API: it gives the answers that tests/handlers expects in memory."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from penstock import Admin, Producer
from penstock.http.signature import sign
from penstock.http.transport import HttpTransport
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.handlers.test_errors import REFUSED

pytestmark = pytest.mark.stack
BATCH = encode([NewRecord(NOW_MS, b"k", b"v")])


@pytest.fixture(scope="module")
def transport(stack: Stack) -> Iterator[HttpTransport]:
    transport = stack.transport()
    with Admin(transport=transport) as admin:
        admin.create_topic("orders", partitions=3)
    yield transport
    with Admin(transport=transport) as admin:
        admin.delete_topic("orders")


@pytest.mark.parametrize(
    ("request_", "status", "code", "told"),
    # The gateway itself refuses unknown routes, and the emulator decodes any text as UTF-8.
    [case for case in REFUSED if case[2] != "UNKNOWN_ROUTE" and case[3] != "not UTF-8"],
    ids=lambda value: str(value)[:60],
)
def test_request_is_refused_with_status_code_and_value(
    transport: HttpTransport, request_: tuple[str, str, dict[str, str], object], status: int, code: str, told: str
) -> None:
    method, path, query, content = request_
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = transport.call(method, path, query, {"Content-Type": "application/json"}, body)
    assert answer.status == status, answer.body
    error = json.loads(answer.body)["error"]
    assert error["code"] == code
    assert told in error["message"]


@pytest.mark.parametrize("route", ["GET /v2/topics", "PUT /v1/topics"])
def test_gateway_refuses_a_request_when_no_route_matches(transport: HttpTransport, route: str) -> None:
    method, path = route.split()
    # AWS answers 404. The emulator asks IAM first, and no policy allows an unknown route.
    assert transport.call(method, path, {}, {}, b"").status in (403, 404)


def produced(transport: HttpTransport, batch: bytes, *, length: int | None = None, cut: int = 0) -> tuple[int, Any]:
    header = {"batches": [{"topic": "orders", "partition": 0, "length": len(batch) if length is None else length}]}
    body = frame.encode(header, [batch])
    answer = transport.call(
        "POST", "/v1/produce", {}, {"Content-Type": frame.FRAME_CONTENT_TYPE}, body[: len(body) - cut]
    )
    return answer.status, json.loads(answer.body)


def flipped(batch: bytes, position: int, value: int) -> bytes:
    return batch[:position] + bytes([value]) + batch[position + 1 :]


@pytest.mark.parametrize(
    ("batch", "code", "told"),
    [
        (flipped(BATCH, len(BATCH) - 1, 0x7F), "CORRUPT_BATCH", "CRC"),
        (flipped(BATCH, 16, 1), "UNSUPPORTED_FORMAT", "magic 1"),
        (BATCH[:-1], "CORRUPT_BATCH", str(len(BATCH))),
        (b"", "CORRUPT_BATCH", "0 bytes"),
        (encode([NewRecord(NOW_MS, None, bytes(BATCH_BYTES_DEFAULT_MAX))]), "RECORD_TOO_LARGE", "max_batch_bytes"),
    ],
    ids=["corrupt", "magic", "torn", "empty", "oversize"],
)
def test_bad_batch_is_refused_for_its_partition(transport: HttpTransport, batch: bytes, code: str, told: str) -> None:
    status, answer = produced(transport, batch)
    assert status == 200
    [result] = answer["results"]
    assert result["error"]["code"] == code
    assert told in result["error"]["message"]


def test_body_that_is_cut_off_is_refused(transport: HttpTransport) -> None:
    status, answer = produced(transport, BATCH, cut=5)
    assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")
    assert str(len(BATCH) - 5) in answer["error"]["message"]


def test_bad_partition_does_not_fail_its_neighbour(transport: HttpTransport) -> None:
    entries = [{"topic": "orders", "partition": number, "length": len(BATCH)} for number in (1, 9)]
    answer = transport.call("POST", "/v1/produce", {}, {}, frame.encode({"batches": entries}, [BATCH, BATCH]))
    good, bad = json.loads(answer.body)["results"]
    assert good["next_offset"] - good["base_offset"] == 1
    assert bad["error"]["code"] == "UNKNOWN_PARTITION"


def test_request_is_refused_when_another_secret_signs_it(stack: Stack) -> None:
    wrong = stack.transport(stack.access_key_id, "x" * 40)
    assert wrong.call("GET", "/v1/topics", {}, {}, b"").status == 403


def test_request_is_refused_when_its_body_changed_after_the_signature(stack: Stack) -> None:
    signed = sign(stack.configuration(), "POST", "/v1/topics", {}, {}, b'{"name": "wanted"}')
    answer = urllib3.request("POST", signed.url, headers=signed.headers, body=b'{"name": "stolen"}', retries=False)
    assert answer.status == 403
    with Admin(transport=stack.transport()) as admin:
        assert {topic.name for topic in admin.list_topics()}.isdisjoint({"stolen", "wanted"})


def principal(stack: Stack, policy_name: str) -> HttpTransport:
    """Returns the transport of a principal with one of the deployed policies and no other."""
    iam = stack.root_client("iam")
    policies = iam.list_policies(Scope="Local")["Policies"]
    [arn] = [policy["Arn"] for policy in policies if policy["PolicyName"].startswith(f"{policy_name}-")]
    nothing = {"Effect": "Deny", "Action": "iam:*", "Resource": "*"}
    keys = stack.create_user(policy_name, {"Version": "2012-10-17", "Statement": [nothing]})
    iam.attach_user_policy(UserName=policy_name, PolicyArn=arn)
    return stack.transport(*keys)


READ = json.dumps({"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}).encode()


def test_principal_with_the_consume_policy_can_read_and_nothing_else(stack: Stack, transport: HttpTransport) -> None:
    reader = principal(stack, "PenstockConsume")
    assert reader.call("GET", "/v1/metadata", {"topic": "orders"}, {}, b"").status == 200
    assert reader.call("POST", "/v1/fetch", {}, {}, READ).status == 200
    assert reader.call("GET", "/v1/topics/orders/partitions/0/records", {}, {}, b"").status == 200
    assert produced(reader, BATCH)[0] == 403
    assert reader.call("DELETE", "/v1/topics/orders", {}, {}, b"").status == 403


def test_principal_with_the_produce_policy_can_write_and_not_read(stack: Stack, transport: HttpTransport) -> None:
    writer = principal(stack, "PenstockProduce")
    with Producer(transport=writer) as producer:
        assert producer.send("orders", b"v").result().topic == "orders"
    assert writer.call("POST", "/v1/fetch", {}, {}, READ).status == 403
    assert writer.call("GET", "/v1/topics/orders/partitions/0/records", {}, {}, b"").status == 403
    assert writer.call("POST", "/v1/topics", {}, {}, b'{"name": "t"}').status == 403
