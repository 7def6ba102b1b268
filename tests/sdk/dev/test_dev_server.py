"""The server of `penstock dev`: clients work with it as with AWS, and it answers nobody else."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import Admin, AsyncProducer, Consumer, HttpTransport, Producer
from penstock.dev.service import DevAccess, StoppableClock
from penstock.errors import AccessDeniedError, RecordTooLargeError, ThrottledError, UnavailableError
from penstock.http.async_transport import AsyncHttpTransport
from penstock.http.client import Client
from penstock.http.http_message import HttpRequest, json_request
from penstock.http.signature import sign
from penstock.model.access import AccessRule
from penstock_core import limits
from tests.sdk.dev.conftest import RunningServer, Server
from tests.support.deadlines import DEADLINE_S

FETCH = b'{"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "wait_ms": 20000}'
Answer = tuple[int, dict[str, str], bytes]


def raw(server: Server, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """The answer to a request that is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def signed(
    server: Server, method: str = "GET", path: str = "/v1/topics", body: bytes = b"", **headers: str
) -> dict[str, str]:
    sent = sign(server.configuration(), method, path, {}, headers, body).headers
    return {"Host": f"127.0.0.1:{server.port}", "Content-Length": str(len(body)), **sent}


def test_records_go_through(running: Server) -> None:
    Admin(transport=running.transport()).create_topic("orders", partitions=3)
    with Producer(transport=running.transport()) as producer:
        for number in range(1_000):
            producer.send("orders", f"{number}", key=f"{number % 7}")
    with Consumer("orders", group_id="g", transport=running.transport(), consumer_timeout_ms=5_000) as consumer:
        read = {next(consumer).value for _ in range(1_000)}
        consumer.commit()
    assert read == {b"%d" % number for number in range(1_000)}
    committed = Admin(transport=running.transport()).describe_group("g")
    assert sum(each.lag or 0 for each in committed.partitions) == 0


def test_asyncio_clients_work(running: Server) -> None:
    async def send() -> int:
        async with AsyncProducer(transport=AsyncHttpTransport(running.configuration())) as producer:
            sent = await producer.send("orders", b"x")
            await producer.flush()
            return (await sent).offset

    Admin(transport=running.transport()).create_topic("orders")
    assert asyncio.run(send()) == 0


def test_signed_request_passes(running: Server) -> None:
    status, headers, body = raw(running, "GET", "/v1/topics", signed(running))
    assert (status, json.loads(body)["topics"]) == (200, [])
    assert not [name for name in headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize(
    "changed",
    [
        {"Authorization": "foo"},
        {"Authorization": ""},
        {"Host": "evil.example"},
        {"Host": "evil.example:4567"},
        {"Host": "127.0.0.1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Amz-Date": "20200101T000000Z"},
        {"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_request_is_refused_when_a_header_is_not_a_clients(
    running: Server, changed: dict[str, str], method: str
) -> None:
    status, headers, body = raw(running, method, "/v1/topics", {**signed(running, method), **changed})
    assert status == 403
    assert json.loads(body)["message"].startswith("Forbidden")
    assert not [name for name in headers if name.lower().startswith("access-control-")]


def test_unsigned_request_changes_nothing(running: Server) -> None:
    body = b'{"name": "mine"}'
    headers = signed(running, "POST", body=body)
    assert raw(running, "POST", "/v1/topics", {**headers, "Content-Length": "16"}, body.replace(b"m", b"n"))[0] == 403
    del headers["Authorization"]
    assert raw(running, "POST", "/v1/topics", headers, body)[0] == 403
    assert Admin(transport=running.transport()).list_topics() == []


def test_wrong_secret_is_denied(running: Server) -> None:
    with pytest.raises(AccessDeniedError, match="does not match"):
        Admin(transport=HttpTransport(running.configuration(secret="guessed"))).list_topics()


def test_signature_of_another_target_is_refused(running: Server) -> None:
    headers = signed(running, "GET", "/v1/topics")
    for target in ("/v1/groups", "/v1/topics?limit=1", "//v1/groups", "http://evil.example/v1/topics"):
        assert raw(running, "GET", target, headers)[0] == 403


def test_body_beyond_the_handlers_limit_gets_their_answer(running: Server) -> None:
    body = bytes(limits.REQUEST_BYTES_MAX + 1)
    status, _, answer = raw(running, "POST", "/v1/produce", signed(running, "POST", "/v1/produce", body), body)
    assert (status, json.loads(answer)["error"]["code"]) == (413, "REQUEST_TOO_LARGE")


def test_body_beyond_what_is_read_is_refused(running: Server) -> None:
    body = bytes(limits.DEV_BODY_BYTES_MAX + 1)
    with pytest.raises(RecordTooLargeError, match="Request Too Long"):
        Client(running.transport()).document(HttpRequest(method="POST", path="/v1/produce", body=body))


def test_compressed_body_is_not_unpacked(running: Server) -> None:
    """It is hashed and handled as it came, as API Gateway does: here it is no JSON."""
    body = b"\x1f\x8b not json"
    headers = signed(running, "POST", body=body, **{"Content-Encoding": "gzip"})
    status, _, answer = raw(running, "POST", "/v1/topics", headers, body)
    assert (status, json.loads(answer)["error"]["code"]) == (400, "INVALID_REQUEST")


def test_name_in_the_path_is_decoded(running: Server) -> None:
    answer = running.transport().call("GET", "/v1/topics/a b", {}, {}, b"")  # sent as a%20b
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "INVALID_NAME")
    assert "'a b'" in json.loads(answer.body)["error"]["message"]


def test_unknown_route_is_not_found(running: Server) -> None:
    assert running.transport().call("GET", "/v1/nothing", {}, {}, b"").status == 404


def test_sixty_clients_wait_at_once(running: Server) -> None:
    """Each holds a long poll, and one record wakes all of them: no poll waits for another one's end."""
    Admin(transport=running.transport()).create_topic("orders")

    def poll() -> int:
        return len(running.transport().call("POST", "/v1/fetch", {}, {}, FETCH).body)

    with ThreadPoolExecutor(60) as pool:
        polls = [pool.submit(poll) for _ in range(60)]
        Admin(transport=running.transport()).list_topics()  # answered meanwhile
        with Producer(transport=running.transport()) as producer:
            producer.send("orders", b"wake")
        sizes = {each.result(DEADLINE_S) for each in polls}
    assert min(sizes) > 61


def test_request_beyond_the_bound_is_told_to_come_again(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dev.http_server.DEV_REQUESTS_MAX", 0)
    status, headers, _ = raw(running, "GET", "/v1/topics", signed(running))
    assert (status, headers["Retry-After"]) == (429, "1")
    client = Client(running.transport(), timeout_ms=0)
    with pytest.raises(ThrottledError):
        client.document(json_request("GET", "/v1/topics"))


def test_calls_that_wait_end_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()
    sleep_ms = StoppableClock.sleep_ms

    def noted_sleep_ms(clock: StoppableClock, duration_ms: float) -> None:
        waiting.set()
        sleep_ms(clock, duration_ms)

    monkeypatch.setattr(StoppableClock, "sleep_ms", noted_sleep_ms)
    running = RunningServer()
    transport = running.server.transport()
    Admin(transport=transport).create_topic("orders")
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(transport.call, "POST", "/v1/fetch", {}, {}, FETCH)
        is_waiting = waiting.wait(DEADLINE_S)
        running.stop()
        answer = poll.result(DEADLINE_S)
    assert is_waiting
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "STORAGE_UNAVAILABLE")


def test_data_is_there_again_after_a_stop(tmp_path: Path) -> None:
    running = RunningServer(tmp_path)
    keys = running.server.service.keys
    Admin(transport=running.server.transport()).create_topic("orders")
    with Producer(transport=running.server.transport()) as producer:
        producer.send("orders", b"kept")
    running.stop()
    running = RunningServer(tmp_path)
    assert running.server.service.keys == keys
    with Consumer("orders", transport=running.server.transport()) as consumer:
        record = next(consumer)
    assert record.value == b"kept"
    running.stop()


def test_answer_of_a_write_that_cannot_be_kept_may_have_been_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = RunningServer(tmp_path)
    Admin(transport=running.server.transport()).create_topic("orders")
    running.server.service._stored.database.write("PRAGMA max_page_count = 1")  # type: ignore[union-attr]  # it has a folder
    with pytest.raises(UnavailableError, match="full") as caught:
        Admin(transport=running.server.transport()).create_topic("x" * 200, partitions=500)
    assert caught.value.maybe_applied
    running.stop()


@pytest.fixture
def walled() -> Iterator[Server]:
    running = RunningServer(access=DevAccess(denies_by_default=True, principals=["shop"]))
    yield running.server
    running.stop()


def test_principal_has_the_rights_that_rules_give_it(walled: Server) -> None:
    admin, shop = Admin(transport=walled.transport()), Admin(transport=walled.transport("shop"))
    admin.create_topic("orders")
    with pytest.raises(AccessDeniedError, match="user/shop may not describe 'topic:orders'"):
        shop.describe_topic("orders")
    shop_name = "arn:aws:iam::000000000000:user/shop"
    admin.change_acls(add=[AccessRule(principal=shop_name, operation="read", resource="topic:orders")])
    assert shop.describe_topic("orders").topic.name == "orders"
    with pytest.raises(AccessDeniedError):
        shop.create_topic("mine")


def test_principal_cannot_sign_with_the_keys_of_another(walled: Server) -> None:
    stolen = walled.configuration(secret=walled.service.callers["shop"].keys.secret_key)
    with pytest.raises(AccessDeniedError, match="signature"):
        Admin(transport=HttpTransport(stolen)).list_topics()


def test_quota_holds_as_in_a_stage(running: Server) -> None:
    admin = Admin(transport=running.transport())
    admin.create_topic("orders")
    admin.set_quota("topic", "orders", {"produce_bytes_per_s": 1_000})
    body = json.dumps({"records": [{"value": "x" * 10_000}]}).encode()
    transport = running.transport()
    answers = [transport.call("POST", "/v1/topics/orders/records", {}, {}, body) for _ in range(20)]
    assert answers[0].status == 200
    assert (answers[-1].status, json.loads(answers[-1].body)["error"]["code"]) == (429, "THROTTLED")
