"""`auto` as clients open it, in threads and in a loop: which stage it invokes, by what the environment says.

The promises of every transport: the same answers, errors and guarantees, whatever carries a request.

Both kinds of clients run each test. tests/end_to_end/test_transports.py does the same on the deployed stack.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, TopicPartition
from penstock.errors import AccessDeniedError, InvalidError, UnknownTopicError
from penstock.http.async_transport import open_async_transport
from penstock.http.http_message import Response
from penstock.http.threaded_transport import ThreadedTransport
from penstock.http.transport import Transport, open_transport
from penstock.testing import MemoryTransport
from penstock.transports.async_by_auto import AsyncAutoTransport
from penstock.transports.by_auto import AutoTransport
from penstock_core.acls.tokens import AclSettings
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.limits import REQUEST_BYTES_MAX, SDK_DETOUR_MS
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.sdk.client_kinds import ClientKind, EventLoop, Threads, running_loop
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer
from tests.support.carriers import CARRIERS
from tests.support.fake_aws import ACCOUNT, REGION, FakeAws, FakeKey
from tests.support.service import new_topic

ADA = f"arn:aws:iam::{ACCOUNT}:user/ada"
API = f"https://abc.execute-api.{REGION}.amazonaws.com"
LIST = ("GET", "/v1/topics", dict[str, str](), dict[str, str](), b"")


class Looped:
    """An asynchronous transport that is called from outside its loop."""

    def __init__(self, inner: AsyncAutoTransport) -> None:
        self.inner = inner
        self._runner = asyncio.Runner()

    def call(self, *arguments: Any) -> Response:
        return self._runner.run(self.inner.call(*arguments))

    def close(self) -> None:
        self._runner.run(self.inner.close())
        self._runner.close()


class World:
    """The stages `left` and `right`, and a caller of both. `http` carries what goes to the URL, which is left's API."""

    def __init__(self, aws: FakeAws, key: FakeKey) -> None:
        self.aws, self.key = aws, key
        self.places: dict[str, FunctionsPlace] = {}
        for name in ("left", "right"):
            instance = memory_instance()
            new_topic(instance, name)
            self.places[name] = aws.stage(instance, name)
        self.http = FaultyTransport(MemoryTransport(aws.instance_of(self.places["left"]), ADA))

    @property
    def by_http(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.http.calls]

    def invoked(self) -> list[str]:
        return [each.rpartition("function:")[2] for each in self.aws.invoked]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    aws = FakeAws()
    world = World(aws, aws.key(ADA))
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_FUNCTIONS", "PENSTOCK_TRANSPORT", "PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_URL", API)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", world.key.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", world.key.keys.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # of a store, where nothing is to go
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", aws.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
    monkeypatch.setattr("penstock.http.transport.HttpTransport", lambda _: world.http)
    monkeypatch.setattr("penstock.http.async_transport.AsyncHttpTransport", lambda _: ThreadedTransport(world.http))
    yield world
    aws.close()


@pytest.fixture(params=["threads", "loop"])
def opens(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Opens the default transport, in either kind of client."""
    made: list[Transport] = []

    def opens() -> Transport:
        if request.param == "threads":
            threaded = open_transport()
            assert isinstance(threaded, AutoTransport)
            made.append(threaded)
        else:
            looped = open_async_transport()
            assert isinstance(looped, AsyncAutoTransport)
            made.append(Looped(looped))
        return made[-1]

    yield opens
    for each in made:
        each.close()


def test_stage_of_the_url_tells_its_functions_and_they_are_invoked(world: World, opens: Callable[[], Any]) -> None:
    client = opens()
    while not world.aws.invoked:
        assert client.call(*LIST).status == 200
    assert set(world.invoked()) == {"left-admin:direct-admin"}
    assert world.by_http.count("GET /v1/metadata") == 1


@pytest.mark.parametrize("named", ["left", "right"])
def test_variable_never_leads_to_another_stage_than_the_url(
    world: World, opens: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """It may be left over from work with another stage. The client asks the URL before its first call."""
    monkeypatch.setenv("PENSTOCK_FUNCTIONS", world.places[named].arn)
    client = opens()
    for _ in range(3):
        assert b'"left"' in client.call(*LIST).body
    assert world.by_http == ["GET /v1/metadata"]
    assert world.invoked() == ["left-admin:direct-admin"] * 3


def test_functions_of_another_region_than_the_url_are_not_invoked(
    world: World, opens: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that checks no signature may tell any functions that the caller has a right to."""
    monkeypatch.setenv("PENSTOCK_URL", API.replace(REGION, "ap-south-1"))
    monkeypatch.setenv("PENSTOCK_FUNCTIONS", world.places["left"].arn)
    client = opens()
    for _ in range(4):
        assert client.call(*LIST).status == 200
    assert world.aws.invoked == []
    assert world.by_http == ["GET /v1/metadata", *["GET /v1/topics"] * 4]


def test_functions_of_the_local_file_are_invoked_without_a_question(
    world: World, opens: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PENSTOCK_URL")
    monkeypatch.setenv("PENSTOCK_FUNCTIONS", world.places["left"].arn)
    (tmp_path / ".penstock").mkdir(mode=0o700)
    path = tmp_path / ".penstock" / "local.env"
    path.write_text(
        f"PENSTOCK_URL=http://127.0.0.1:9\nPENSTOCK_FUNCTIONS={world.places['right'].arn}\n"
        f"AWS_ENDPOINT_URL={world.aws.url}\nAWS_REGION={REGION}\nAWS_ACCESS_KEY_ID={world.key.keys.access_key}\n"
        f"AWS_SECRET_ACCESS_KEY={world.key.keys.secret_key}\n"
    )
    path.chmod(0o600)
    assert b'"right"' in opens().call(*LIST).body
    assert world.by_http == []


@pytest.mark.parametrize(("url", "lasts"), [(API, True), ("https://queue.example", False)])
def test_domain_is_asked_anew_and_an_api_of_aws_is_not(
    world: World, opens: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, url: str, lasts: bool
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", url)
    monkeypatch.setenv("AWS_REGION", REGION)
    client = opens()
    while not world.aws.invoked:
        assert client.call(*LIST).status == 200
    ways = (client.inner if isinstance(client, Looped) else client)._ways
    real = ways._now
    ways._now = lambda: real()._replace(monotonic_ms=real().monotonic_ms + SDK_DETOUR_MS)
    assert ways.asks_beside("/v1/topics") is not lasts


def test_connection_to_lambda_has_two_seconds(opens: Callable[[], Any], world: World) -> None:
    assert world.aws.invoked == []
    client = opens()
    assert (client.inner if isinstance(client, Looped) else client)._connections._connect_timeout_s == 2


@pytest.mark.parametrize("opens_one", [open_transport, open_async_transport], ids=["threads", "loop"])
def test_default_transport_tells_the_url_for_spans_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens_one: Callable[[], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"PENSTOCK_URL": API, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    opened = opens_one()
    assert isinstance(opened, AutoTransport | AsyncAutoTransport)
    assert opened.url == API


TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture
def instance() -> Instance:
    return memory_instance()


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest, instance: Instance) -> Transport:
    return CARRIERS[request.param](instance)


@pytest.fixture(params=["threads", "asyncio"])
def clients(request: pytest.FixtureRequest, carrier: Transport) -> Iterator[ClientKind]:
    Admin(transport=carrier).create_topic(TOPIC, partitions=2)
    if request.param == "threads":
        yield Threads(carrier)
    else:
        with running_loop() as loop:
            yield EventLoop(carrier, loop)


def test_records_come_back_in_order_by_every_transport(clients: ClientKind) -> None:
    with clients.producer() as producer:
        sent = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(20)]
    assert [each.result().offset for each in sent] == list(range(20))
    with clients.consumer() as consumer:
        consumer.assign([FIRST])
        values = [record.value for _, record in zip(range(20), consumer, strict=False)]
    assert values == [b"%d" % number for number in range(20)]


def test_repeat_after_a_lost_answer_appends_once_by_every_transport(carrier: Transport, clients: ClientKind) -> None:
    faulty = FaultyTransport(carrier)
    faulty.faults["/v1/produce"] = [lost_answer]
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        sent = producer.send(TOPIC, b"once", partition=0)
    assert sent.result().offset == 0
    assert Admin(transport=carrier).list_offsets(TOPIC)[0] == 1


def test_group_goes_on_at_its_commit_by_every_transport(clients: ClientKind) -> None:
    with clients.producer() as producer:
        for number in range(4):
            producer.send(TOPIC, b"%d" % number, partition=0)
    with clients.consumer(TOPIC, group_id="g") as consumer:
        first = [next(consumer).value for _ in range(2)]
        consumer.commit()
    with clients.consumer(TOPIC, group_id="g") as consumer:
        rest = [next(consumer).value for _ in range(2)]
    assert first + rest == [b"0", b"1", b"2", b"3"]


def test_transaction_is_visible_at_once_by_every_transport(carrier: Transport) -> None:
    Admin(transport=carrier).create_topic(TOPIC)
    clients = Threads(carrier)
    with clients.producer(transactional_id="t") as producer, producer.transaction() as transaction:
        transaction.send(TOPIC, b"a", partition=0)
        transaction.send(TOPIC, b"b", partition=0)
    with clients.consumer() as consumer:
        consumer.assign([FIRST])
        assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]


def test_error_keeps_its_class_and_its_doubt_by_every_transport(carrier: Transport) -> None:
    with pytest.raises(UnknownTopicError) as refused:
        Admin(transport=carrier).describe_topic("away")
    assert not refused.value.maybe_applied


def test_record_of_four_mebibytes_is_refused_with_its_bound_by_every_transport(clients: ClientKind) -> None:
    with clients.producer(compression_type="none") as producer, pytest.raises(InvalidError):
        producer.send(TOPIC, bytes(REQUEST_BYTES_MAX + 1), partition=0).result()


@pytest.mark.parametrize("name", CARRIERS)
def test_default_deny_refuses_by_every_transport(name: str) -> None:
    strict = memory_instance(acl_settings=AclSettings(allows_by_default=False))
    with pytest.raises(AccessDeniedError):
        Admin(transport=CARRIERS[name](strict)).create_topic(TOPIC)
