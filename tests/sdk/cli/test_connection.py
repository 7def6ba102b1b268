import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.cli.connection import CommandTransport, ServiceDownError, without_logs_of_failed_calls
from penstock.errors import ConnectionFailedError, NotConfiguredError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run
from tests.sdk.http.faulty_transport import FaultyTransport, lost_request


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> str:
    """The URL of a local stack that is down, as its `local.env` names it in the working directory."""
    url = f"http://127.0.0.1:{closed_port}"
    (tmp_path / ".penstock").mkdir(mode=0o700)
    env = tmp_path / ".penstock" / "local.env"
    env.write_text(f"PENSTOCK_URL={url}\nAWS_REGION=us-east-1\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n")
    env.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    return url


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("produce", "orders"),
        ("consume", "orders"),
        ("consume", "orders", "--partition", "0"),
        ("consume", "orders", "--group", "g"),
        ("consume", "o*", "--group", "g"),
        ("groups", "list"),
    ],
)
def test_local_stack_that_is_down_is_told_at_the_first_call(down: str, arguments: tuple[str, ...]) -> None:
    result = run(None, *arguments, stdin=b"hi\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: CONNECTION_FAILED: the local stack is not running: start it with `penstock")
    assert down in result.stderr
    assert result.stderr.count("\n") == 1


def test_other_url_that_is_down_is_told_without_the_local_stack(down: str) -> None:
    result = run(None, "topics", "list", "--url", down.replace("127.0.0.1", "localhost"), "--region", "us-east-1")
    assert result.exit_code == 1
    assert "local up" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "create", "a/b"),
        ("consume", "orders", "--from", "nonsense"),
        ("consume", "a/b"),
        ("produce", "a/b"),
        ("groups", "offsets", "a/b"),
    ],
)
def test_wrong_argument_is_told_before_a_missing_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    result = run(None, *arguments)
    assert result.exit_code in (1, 2)
    assert "NOT_CONFIGURED" not in result.stderr
    assert arguments[-1] in result.stderr


def test_later_failures_are_told_while_the_sdk_tries_again(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", b"v")
    faulty.faults["/v1/fetch"] = [lost_request] * 2
    result = run(faulty, "consume", "orders", "--max-records", "1")
    assert (result.exit_code, result.stdout) == (0, "v\n")
    assert result.stderr.startswith("trying again (1): ")
    faulty.faults["/v1/fetch"] = [lost_request]
    assert run(faulty, "consume", "orders", "--max-records", "1", "--json").stderr == ""


def test_log_repeats_no_failed_call_and_keeps_other_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("of a program without a logging configuration")
    with without_logs_of_failed_calls():
        log.warning("fetch failed: %s", ConnectionFailedError("no answer", maybe_applied=False))
        log.warning("lost %d partitions", 2)
    log.warning("fetch failed: %s", ConnectionFailedError("later", maybe_applied=False))
    assert capsys.readouterr().err.splitlines() == ["lost 2 partitions", "fetch failed: CONNECTION_FAILED: later"]


class _Down:
    def __init__(self, *, maybe_applied: bool) -> None:
        self.maybe_applied = maybe_applied

    def call(self, *_: object) -> Response:
        raise ConnectionFailedError("no answer", maybe_applied=self.maybe_applied)

    def close(self) -> None:
        pass


class _Signer(_Down):
    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        return {"host": host, "length": str(len(body))}


def test_first_call_that_may_have_been_sent_may_be_tried_again() -> None:
    told: list[str] = []
    transport = CommandTransport(lambda: _Down(maybe_applied=True), told.append)
    with pytest.raises(ConnectionFailedError):
        transport.call("GET", "/", {}, {}, b"")
    assert told == ["trying again (1): no answer"]
    refused = CommandTransport(lambda: _Down(maybe_applied=False), told.append)
    with pytest.raises(ServiceDownError):
        refused.call("GET", "/", {}, {}, b"")


def test_wake_ups_are_signed_by_the_transport_behind_a_command() -> None:
    transport = CommandTransport(lambda: _Signer(maybe_applied=False), lambda _: None)
    assert transport.event_headers("wake.example", b"{}") == {"host": "wake.example", "length": "2"}


def test_wake_ups_are_refused_when_the_transport_behind_a_command_signs_none() -> None:
    transport = CommandTransport(lambda: _Down(maybe_applied=False), lambda _: None)
    with pytest.raises(NotConfiguredError, match="_Down signs nothing for wake-ups"):
        transport.event_headers("wake.example", b"{}")
