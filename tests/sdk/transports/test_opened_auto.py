"""`auto` as clients open it, in threads and in a loop: which stage it invokes, by what the environment says."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.http.async_transport import open_async_transport
from penstock.http.http_message import Response
from penstock.http.threaded_transport import ThreadedTransport
from penstock.http.transport import Transport, open_transport
from penstock.testing import MemoryTransport
from penstock.transports.async_by_auto import AsyncAutoTransport
from penstock.transports.by_auto import AutoTransport
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.limits import SDK_DETOUR_MS
from penstock_service.adapters.memory.service import memory_instance
from tests.sdk.http.faulty_transport import FaultyTransport
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
