"""`penstock console` from its command line."""

import json
import signal
import socket
import subprocess
import sys

import pytest
import urllib3
from click.testing import CliRunner

from penstock.cli import main
from penstock.cli.console import Links, _job_places, _path_of_record, _Reached
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.visitor import Visitor
from tests.support.child_process import bare_environment, child_process
from tests.support.deadlines import DEADLINE_S


@pytest.mark.slow
def test_command_prints_a_link_that_opens_the_console_and_ends_by_a_signal() -> None:
    program = [sys.executable, "-c", "from penstock.cli import main; main()"]
    command = [*program, "console", "--no-open", "--json", "--url", "http://127.0.0.1:9", "--metrics", "127.0.0.1:0"]
    environment = {**bare_environment(), "AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    with child_process(command, deadline_s=DEADLINE_S, env=environment, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        said = json.loads(console.stdout.readline())
        link = said["url"]
        origin = link.partition("/enter")[0]
        assert Visitor(origin).open(link).status == 503  # there is no service at port 9
        assert urllib3.request("GET", said["metrics"] + "/other", retries=False).status == 404
        console.send_signal(signal.SIGTERM)
        assert console.stdout.read() == ""
        console.wait(DEADLINE_S)
    assert console.returncode == 0


def test_link_to_a_record_opens_its_page_once(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", "the one").result()
    running = RunningConsole(service.transport, first_path=_path_of_record("orders/0/0"))
    try:
        seen = Visitor(running.origin).open(running.links[-1])
        assert (seen.status, seen.path) == (200, "/topics/orders/records/0/0")
        assert "penstock console orders/0/0 opens this page" in seen.text
        assert Visitor(running.origin).open(running.links[-1]).path == "/"
    finally:
        running.stop()


@pytest.mark.parametrize("place", ["orders", "orders/x/1", "orders/0/-1", "orders/0"])
def test_place_that_is_no_record_is_told(place: str, service: MemoryPenstock) -> None:
    result = CliRunner().invoke(main, ["console", "--no-open", "--", place], obj=service.transport)
    assert result.exit_code == 2
    assert "give TOPIC/PARTITION/OFFSET" in result.output


def test_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["console", "--port", str(port), "--no-open"], obj=object())
    assert result.exit_code == 2
    assert f"{port} cannot be taken" in result.output


@pytest.mark.parametrize(
    ("place", "said"), [("9464", "give an address and a port"), ("192.0.2.1:1", "cannot be taken")]
)
def test_place_of_metrics_that_cannot_be_is_told(place: str, said: str, service: MemoryPenstock) -> None:
    command = ["console", "--no-open", "--metrics", place]
    result = CliRunner().invoke(main, command, obj=service.transport)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("command", [["console", "--no-open"], ["doctor"]])
def test_token_file_that_is_not_there_is_told_at_once(command: list[str]) -> None:
    arguments = [*command, "--url", "http://127.0.0.1:9", "--token-file", "nowhere"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "the token file 'nowhere' cannot be read" in result.output


def test_caller_with_a_token_is_asked_for_no_alarms_and_no_jobs(service: MemoryPenstock) -> None:
    reached = _Reached(transport=service.transport, is_local=False)
    assert _job_places("Penstock", None, reached) == {}
    running = RunningConsole(service.transport, is_local=False)
    try:
        assert "needs AWS keys" in running.visitor().get("/").text
    finally:
        running.stop()


def test_only_the_first_link_is_opened_and_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for as_json in (True, False):
        links = Links(as_json=as_json, is_opening=True)
        links.say("http://a")
        links.say("http://b")
    assert opened == ["http://a", "http://a"]
    assert capsys.readouterr().out.splitlines() == [
        '{"url": "http://a"}',
        "The console is at http://a",
        "To open it again: http://b",
    ]
