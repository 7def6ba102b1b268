"""Functions as AWS runs them: frozen after their answers, with events, answers, times and numbers that are bounded."""

import base64
import io
import json
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.localstack.like_aws.conftest import Emulated
from tests.localstack.like_aws.raw_calls import raw_call

pytestmark = pytest.mark.slow
SOURCE = """
import json, os, threading, time

ticks = 0

def tick():
    global ticks
    while True:
        time.sleep(0.005)
        ticks += 1

threading.Thread(target=tick, daemon=True).start()

def handler(event, context):
    if "requestContext" in event:
        asked = event.get("queryStringParameters") or {}
        event = {name: value for name, value in asked.items()}
    while event.get("until") and not os.path.exists(event["until"]):
        time.sleep(0.005)
    if event.get("told"):
        open(event["told"], "w").close()
    body = json.dumps({"pid": os.getpid(), "ticks": ticks, "fill": "x" * int(event.get("fill", 0))})
    print("served")
    return {"statusCode": 200, "body": body}
"""
INVOKE = "/2015-03-31/functions/like-aws/invocations"


@pytest.fixture(scope="module")
def api(emulated: Emulated) -> str:
    """The path of an HTTP API in front of the function `like-aws`."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("main.py", SOURCE)
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = emulated.client("iam").create_role(RoleName="like-aws", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    lambdas, apis = emulated.client("lambda"), emulated.client("apigatewayv2")
    function = lambdas.create_function(
        FunctionName="like-aws",
        Runtime="python3.11",
        Role=role,
        Handler="main.handler",
        Code={"ZipFile": package.getvalue()},
        Timeout=60,
    )["FunctionArn"]
    lambdas.add_permission(
        FunctionName="like-aws", StatementId="api", Action="lambda:InvokeFunction", Principal="apigateway.amazonaws.com"
    )
    made = apis.create_api(Name="like-aws", ProtocolType="HTTP")["ApiId"]
    integration = apis.create_integration(
        ApiId=made, IntegrationType="AWS_PROXY", IntegrationUri=function, PayloadFormatVersion="2.0"
    )["IntegrationId"]
    apis.create_route(ApiId=made, RouteKey="POST /call", Target=f"integrations/{integration}")
    apis.create_stage(ApiId=made, StageName="$default", AutoDeploy=True)
    return f"/_aws/execute-api/{made}/call"


def call(emulated: Emulated, api: str, body: bytes = b"x", **query: object) -> tuple[int, dict[str, str], bytes]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    headers = {"Content-Type": "application/octet-stream"}
    return raw_call(emulated.port, "execute-api", "POST", f"{api}?{asked}" if asked else api, body, headers)


def invoke(emulated: Emulated, **event: object) -> dict[str, Any]:
    payload = json.dumps(event).encode()
    answer = emulated.client("lambda").invoke(FunctionName="like-aws", Payload=payload)
    return dict(json.loads(json.loads(answer["Payload"].read())["body"]))


def invoke_when_free(emulated: Emulated, gate: Path) -> None:
    """Invokes the function until it is not refused for concurrency. It ends when the file `gate` is there."""
    payload = json.dumps({"until": str(gate)}).encode()
    while raw_call(emulated.port, "lambda", "POST", INVOKE, payload)[0] == 429:
        pass


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Freezes


def test_worker_stops_after_its_answer_and_goes_on_with_its_next_event(
    under: Callable[[str], Emulated], api: str
) -> None:
    emulated = under("freeze")
    first = invoke(emulated)
    while state_of(first["pid"]) != "T":  # the answer may arrive first
        pass
    second = json.loads(call(emulated, api)[2])
    assert second["pid"] == first["pid"]
    while state_of(first["pid"]) != "T":
        pass
    assert emulated.counts()["freeze: workers stopped"] == 2


def test_thread_of_a_frozen_worker_makes_no_progress(
    under: Callable[[str], Emulated], api: str, tmp_path: Path
) -> None:
    emulated = under("freeze")
    pid = invoke(emulated)["pid"]
    while state_of(pid) != "T":
        pass
    used = Path(f"/proc/{pid}/stat").read_text()
    for _ in range(20):
        emulated.counts()
    assert Path(f"/proc/{pid}/stat").read_text() == used
    emulated.hold("none")
    while state_of(pid) == "T":
        pass
    assert invoke(emulated)["pid"] == pid


def test_frozen_worker_ends_when_its_function_changes(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("freeze")
    pid = invoke(emulated)["pid"]
    while state_of(pid) != "T":
        pass
    emulated.client("lambda").update_function_configuration(
        FunctionName="like-aws", Environment={"Variables": {"CHANGED": "1"}}
    )
    assert invoke(emulated)["pid"] != pid
    while Path(f"/proc/{pid}").exists() and state_of(pid) != "Z":
        pass


# Payloads and time


def test_event_is_counted_as_json_with_its_body_in_base64(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("payload_limits.event_bytes=20000")
    body = bytes(range(256)) * 48  # 12,288 bytes, 16,384 in base64
    assert call(emulated, api, body)[0] == 200
    assert len(base64.b64encode(body + body[:3_000])) > 20_000 > len(body) + 3_000
    status, headers, answer = call(emulated, api, body + body[:3_000])
    assert (status, headers["content-type"], answer) == (
        413,
        "application/json",
        b'{"message":"Request Entity Too Large"}',
    )
    assert emulated.counts()["payload_limits: events refused"] == 1


def test_request_above_the_limit_of_the_api_is_refused_unread(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("payload_limits.request_bytes=1000")
    assert call(emulated, api, b"x" * 1_000)[0] == 200
    status, _, answer = call(emulated, api, b"x" * 1_001)
    assert (status, answer) == (413, b'{"message":"Request Entity Too Large"}')


def test_limits_are_those_of_aws_unless_set(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("payload_limits")
    binary = b"\xff" * (4 * 1024 * 1024)
    assert call(emulated, api, binary)[0] == 200
    assert call(emulated, api, binary + b"\xff" * 768 * 1024)[0] == 413
    assert call(emulated, api, b"\xff" * (10 * 1024 * 1024 + 1))[0] == 413
    counts = emulated.counts()
    assert (counts["payload_limits: events refused"], counts["payload_limits: requests refused"]) == (1, 1)


def test_invoke_refuses_an_event_as_lambda_does(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("payload_limits.event_bytes=1000")
    payload = json.dumps({"fill": 0, "more": "x" * 1_000}).encode()
    status, headers, answer = raw_call(emulated.port, "lambda", "POST", INVOKE, payload)
    assert (status, headers["x-amzn-errortype"]) == (413, "RequestEntityTooLargeException")
    message = "Request must be smaller than 1000 bytes for the InvokeFunction operation"
    assert answer == f'{{"Type":"User","message":"{message}"}}'.encode()


def test_answer_that_is_too_large_is_an_error_of_the_function(under: Callable[[str], Emulated], api: str) -> None:
    emulated = under("payload_limits.answer_bytes=1000")
    status, headers, answer = raw_call(emulated.port, "lambda", "POST", INVOKE, b'{"fill": 1000}')
    assert (status, headers["x-amz-function-error"]) == (200, "Unhandled")
    assert json.loads(answer) == {
        "errorMessage": "Response payload size exceeded maximum allowed payload size (1000 bytes).",
        "errorType": "Function.ResponseSizeTooLarge",
    }
    assert call(emulated, api, fill=1_000)[::2] == (500, b'{"message":"Internal Server Error"}')
    assert call(emulated, api, fill=10)[0] == 200


def test_api_gives_up_in_time_and_the_function_goes_on(
    under: Callable[[str], Emulated], api: str, tmp_path: Path
) -> None:
    emulated = under("payload_limits.integration_ms=300")
    invoke(emulated)
    gate, told = tmp_path / "gate", tmp_path / "told"
    status, _, answer = call(emulated, api, until=gate, told=told)
    assert (status, answer) == (503, b'{"message":"Service Unavailable"}')
    assert not told.exists()
    gate.touch()
    while not told.exists():
        pass


# Concurrency


def test_account_has_so_many_invocations_at_once(under: Callable[[str], Emulated], api: str, tmp_path: Path) -> None:
    emulated = under("concurrency.account=1")
    invoke(emulated)
    gate = tmp_path / "gate"
    first = threading.Thread(target=invoke_when_free, args=(emulated, gate))
    first.start()
    try:
        status, headers, answer = raw_call(emulated.port, "lambda", "POST", INVOKE, b"{}")
        while status == 200:  # the first has not arrived yet
            status, headers, answer = raw_call(emulated.port, "lambda", "POST", INVOKE, b"{}")
        assert (status, headers["x-amzn-errortype"]) == (429, "TooManyRequestsException")
        assert answer == b'{"Reason":"ConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded."}'
        lambdas = emulated.client("lambda")
        with pytest.raises(lambdas.exceptions.TooManyRequestsException) as caught:
            lambdas.invoke(FunctionName="like-aws")
        assert caught.value.response["Reason"] == "ConcurrentInvocationLimitExceeded"
        assert call(emulated, api)[::2] == (500, b'{"message":"Internal Server Error"}')
    finally:
        gate.touch()
        first.join()
    assert call(emulated, api)[0] == 200
    assert emulated.counts()["concurrency: invocations refused"] >= 3


def test_usual_concurrency_comes_back_with_the_end_of_the_rule(
    under: Callable[[str], Emulated], api: str, tmp_path: Path
) -> None:
    emulated = under("concurrency.account=1")
    emulated.hold("none")
    gate = tmp_path / "gate"
    threads = [threading.Thread(target=invoke, args=(emulated,), kwargs={"until": str(gate)}) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert call(emulated, api)[0] == 200
    gate.touch()
    for thread in threads:
        thread.join()
