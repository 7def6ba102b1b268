"""The local stack itself: the effects of its commands, and the requests that it refuses."""

import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from click.testing import CliRunner

from localstack.clients import ACCOUNT
from penstock.cli import main
from penstock.cli.local import local
from tests.end_to_end.local_stack import Stack, free_port, run, up

pytestmark = pytest.mark.stack


def status(state_dir: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("status", state_dir, "--json").stdout)
    return found


@pytest.mark.minutes
def test_state_keys_and_records_are_kept_when_the_stack_goes_down_and_up(tmp_path: Path) -> None:
    first = up(tmp_path, "--port", str(free_port()))
    try:
        created = first.transport().call("POST", "/v1/topics", {}, {}, b'{"name": "kept"}')
        assert created.status == 201, created.body
        record = b'{"records": [{"value": "still here"}]}'
        assert first.transport().call("POST", "/v1/topics/kept/records", {}, {}, record).status == 200
        running = status(tmp_path)
        assert (running["is_running"], running["is_current"], running["url"]) == (True, True, first.url)
        again = run("up", tmp_path)
        assert "already runs, unchanged" in again.stdout
        assert stat.S_IMODE((tmp_path / "local.env").stat().st_mode) == 0o600
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
        for name in ("local.env", "jobs.env"):  # boto3 reads no AWS_REGION
            assert "AWS_DEFAULT_REGION=us-east-1" in (tmp_path / name).read_text().splitlines()

        assert run("down", tmp_path).returncode == 0
        assert status(tmp_path)["is_running"] is False
        with pytest.raises(ProcessLookupError):
            os.killpg(int(str(running["pid"])), 0)
        assert not (tmp_path / "tmp").exists()
        secrets = [*(tmp_path / "emulator-state").rglob("*")]
        assert secrets
        assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in secrets)

        second = up(tmp_path)
        assert second == first
        read = second.transport().call("GET", "/v1/topics/kept/partitions/0/records", {}, {}, b"")
        assert [found["value"] for found in json.loads(read.body)["records"]] == ["still here"]
    finally:
        run("down", tmp_path)


def test_up_names_the_way_out_when_the_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("up", tmp_path, "--port", str(port))
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert f"--port {port + 1}" in done.stderr


def test_down_and_status_say_so_when_nothing_runs(tmp_path: Path) -> None:
    assert "does not run" in run("down", tmp_path).stdout
    done = run("status", tmp_path)
    assert (done.returncode, "does not run" in done.stdout) == (1, True)


def test_request_is_refused_when_it_is_not_signed(stack: Stack) -> None:
    answer = urllib3.request("GET", f"{stack.url}/v1/topics", retries=False)
    assert answer.status == 403
    assert "message" in answer.json()


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "{api}/v1/topics", {"Authorization": "foo"}),
        ("GET", "{api}/v1/topics", {"Authorization": "Bearer x"}),
        ("POST", "{api}/v1/topics", {"Authorization": "Basic eDp5"}),
        ("POST", "/2015-03-31/functions", {"Authorization": "Basic eDp5", "Content-Type": "text/plain"}),
        ("POST", "/_ministack/reset", {}),
        ("POST", "/_ministack/reset", {"Host": "rebound.example"}),
        ("POST", "//_ministack/reset", {}),
        ("POST", "/_ministack%2freset", {}),
        ("GET", "/_ministack/health", {"Origin": "http://page.example"}),
        ("GET", "/_ministack/health", {"Host": "rebound.example"}),
        ("OPTIONS", "{api}/v1/topics", {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}),
    ],
)
def test_request_is_refused_when_a_web_page_could_have_sent_it(
    stack: Stack, method: str, path: str, headers: dict[str, str]
) -> None:
    url = path.replace("{api}", stack.url) if path.startswith("{api}") else f"{stack.endpoint_url}{path}"
    answer = urllib3.request(method, url, headers=headers, retries=False)
    assert answer.status == 403
    assert "the local stack refuses this" in answer.json()["message"]
    assert stack.transport().call("GET", "/v1/topics", {}, {}, b"").status == 200


def test_request_is_refused_when_it_is_signed_for_another_service(stack: Stack) -> None:
    request = AWSRequest("GET", f"{stack.url}/v1/topics")
    SigV4Auth(stack.configuration().credentials, "s3", stack.region).add_auth(request)
    answer = urllib3.request("GET", f"{stack.url}/v1/topics", headers=dict(request.headers), retries=False)
    assert (answer.status, "calls 'execute-api'" in answer.json()["message"]) == (403, True)


def test_request_is_refused_when_it_is_signed_with_another_secret(stack: Stack) -> None:
    answer = stack.transport(secret_access_key="not-the-secret").call("GET", "/v1/topics", {}, {}, b"")
    assert answer.status == 403


def test_request_is_refused_when_the_key_is_nobody_s(stack: Stack) -> None:
    answer = stack.transport("AKIAIOSFODNN7EXAMPLE", "secret").call("GET", "/v1/topics", {}, {}, b"")
    assert answer.status == 403


def test_user_is_refused_where_the_policy_names_another_route(stack: Stack) -> None:
    api_id = stack.url.rpartition("/")[2]
    resource = f"arn:aws:execute-api:{stack.region}:{ACCOUNT}:{api_id}/$default/GET/v1/topics"
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}],
    }
    transport = stack.transport(*stack.create_user("lists-topics", policy))
    assert transport.call("GET", "/v1/topics", {}, {}, b"").status == 200
    refused = transport.call("POST", "/v1/topics", {}, {}, b'{"name": "mine"}')
    assert refused.status == 403
    assert stack.transport().call("GET", "/v1/topics/mine", {}, {}, b"").status == 404


def test_command_of_the_sdk_runs_the_checkout_s_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(main, ["local", "status", "--json", "--state-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert json.loads(capfd.readouterr().out)["state_dir"] == str(tmp_path)


def test_command_of_the_sdk_says_how_to_get_a_checkout_when_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[local.callback.__module__], "__file__", str(tmp_path / "local.py"))
    done = CliRunner().invoke(main, ["local", "up"])
    assert done.exit_code == 1
    assert "clone the repository" in done.output
