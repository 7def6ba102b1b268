import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import Admin, AsyncAdmin
from penstock.errors import NotConfiguredError
from penstock.http.abilities import request_bytes_max_of
from penstock.http.async_transport import AsyncHttpTransport, open_async_transport
from penstock.http.http_message import Response
from penstock.http.named_transport import TRANSPORT, StageChoice, chosen_name
from penstock.http.threaded_transport import ThreadedTransport
from penstock.http.transport import HttpTransport, open_transport
from penstock.transports.async_by_auto import AsyncAutoTransport
from penstock.transports.async_by_lambda import AsyncLambdaTransport
from penstock.transports.by_auto import AutoTransport
from penstock.transports.by_lambda import LambdaTransport
from penstock_core.limits import REQUEST_BYTES_MAX

ELSEWHERE = {TRANSPORT: "embedded"}


ARN = "arn:aws:lambda:eu-west-1:111122223333:function:penstock"


def test_name_is_auto_when_nothing_chooses() -> None:
    assert chosen_name(None, None, environ={}) == "auto"


def test_name_is_that_of_the_environment_when_no_argument_chooses() -> None:
    assert chosen_name(None, None, environ=ELSEWHERE) == "embedded"


def test_argument_goes_before_the_environment() -> None:
    assert chosen_name("http", None, environ=ELSEWHERE) == "http"


@pytest.mark.parametrize(("url", "has_token", "name"), [("https://api", False, "auto"), (None, True, "http")])
def test_url_and_token_as_arguments_choose_when_the_environment_says_else(
    url: str | None, has_token: bool, name: str
) -> None:
    assert chosen_name(None, url, has_token=has_token, environ=ELSEWHERE) == name


def test_url_as_an_argument_goes_by_http_alone_when_the_environment_says_so() -> None:
    assert chosen_name(None, "https://api", environ={TRANSPORT: "http"}) == "http"


def test_url_beside_another_transport_is_refused() -> None:
    with pytest.raises(NotConfiguredError, match="leave one of them out"):
        chosen_name("embedded", "https://api", environ={})


def test_unknown_name_is_refused_with_the_known_ones_and_its_source() -> None:
    with pytest.raises(NotConfiguredError, match=r"PENSTOCK_TRANSPORT='grpc': use one of auto, http, lambda, embedded"):
        chosen_name(None, None, environ={TRANSPORT: "grpc"})


def test_object_is_taken_as_it_is_when_the_environment_names_a_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRANSPORT, "embedded")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_REGION", "r")
    given = open_transport("https://api")
    assert isinstance(given, AutoTransport)
    assert open_transport(transport=given) is given


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A caller with AWS keys, away from any local stack."""
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_FUNCTIONS", "PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE", TRANSPORT):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "eu-west-1")
    return monkeypatch


def test_service_that_is_not_on_aws_and_a_caller_with_a_token_stay_on_http(caller: pytest.MonkeyPatch) -> None:
    caller.setenv("PENSTOCK_FUNCTIONS", ARN)  # of another service
    assert isinstance(open_transport("http://127.0.0.1:9"), HttpTransport)
    assert isinstance(open_async_transport("http://127.0.0.1:9"), AsyncHttpTransport)
    caller.setenv("PENSTOCK_URL", "https://api")
    caller.setenv("PENSTOCK_TOKEN", "t")
    assert isinstance(open_transport(), HttpTransport)
    assert isinstance(open_async_transport(), AsyncHttpTransport)


@pytest.mark.parametrize(("functions", "kind"), [("", HttpTransport), (f"PENSTOCK_FUNCTIONS={ARN}\n", AutoTransport)])
def test_local_service_without_functions_is_asked_for_none(
    caller: pytest.MonkeyPatch, tmp_path: Path, functions: str, kind: type[object]
) -> None:
    caller.setenv("PENSTOCK_FUNCTIONS", f"{ARN}-of-aws")
    (tmp_path / ".penstock").mkdir(mode=0o700)
    path = tmp_path / ".penstock" / "local.env"
    path.write_text(f"PENSTOCK_URL=http://127.0.0.1:9\nAWS_REGION=eu-west-1\nAWS_ACCESS_KEY_ID=k\n{functions}")
    path.chmod(0o600)
    caller.setenv("PENSTOCK_URL", "http://127.0.0.1:9")  # that of the file
    assert type(open_transport()) is kind


def test_service_on_aws_may_have_functions(caller: pytest.MonkeyPatch) -> None:
    caller.setenv("PENSTOCK_URL", "https://api")
    assert isinstance(open_transport(), AutoTransport)
    assert isinstance(open_async_transport(), AsyncAutoTransport)
    assert isinstance(open_transport(transport="http"), HttpTransport)


def test_functions_alone_are_invoked_where_there_is_no_url(caller: pytest.MonkeyPatch) -> None:
    caller.setenv("PENSTOCK_FUNCTIONS", ARN)
    assert isinstance(open_transport(), LambdaTransport)
    assert isinstance(open_async_transport(), AsyncLambdaTransport)
    caller.setenv(TRANSPORT, "http")
    with pytest.raises(NotConfiguredError, match="no service to talk to"):
        open_transport()


@pytest.mark.parametrize("client", [Admin, AsyncAdmin])
def test_client_asks_for_the_named_transport(client: type[Admin] | type[AsyncAdmin]) -> None:
    with pytest.raises(NotConfiguredError, match="transport='embedded' beside a URL"):
        client("https://api", transport="embedded")


class _Recorder:
    def __init__(self) -> None:
        self.threads: list[str] = []
        self.is_closed = False

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.threads.append(threading.current_thread().name)
        return Response(200, {}, body)

    def close(self) -> None:
        self.is_closed = True


def test_threaded_transport_calls_in_the_given_threads() -> None:
    inner = _Recorder()
    with ThreadPoolExecutor(1, thread_name_prefix="own") as threads:
        transport = ThreadedTransport(inner, lambda: threads)
        answer = asyncio.run(transport.call("POST", "/v1/x", {}, {}, b"body"))
    assert answer.body == b"body"
    assert inner.threads == ["own_0"]


def test_threaded_transport_closes_the_inner_one_and_has_its_bound() -> None:
    inner = _Recorder()
    transport = ThreadedTransport(inner)
    assert request_bytes_max_of(transport) == REQUEST_BYTES_MAX
    asyncio.run(transport.close())
    assert inner.is_closed


FIRST, SECOND = "https://a.example", "https://b.example"


def answer(status: int, document: object) -> Response:
    return Response(status, {"Content-Type": "application/json"}, json.dumps(document).encode())


def error(code: str, **facts: object) -> dict[str, object]:
    return {"error": {"code": code, "message": "moved", "maybe_applied": False, **facts}}


@pytest.mark.parametrize("url", [SECOND, f"{SECOND}/", "https://unknown.example", None])
def test_client_goes_on_at_the_stage_that_takes_appends(url: str | None) -> None:
    choice = StageChoice([FIRST, SECOND])
    told = choice.judged(0, answer(409, error("MOVED", url=url)))
    assert (told.status, json.loads(told.body)["error"]["code"], choice.at) == (503, "STORAGE_UNAVAILABLE", 1)
    choice.judged(0, answer(409, error("MOVED", url=url)))
    assert choice.at == 1, "an answer that is late changes nothing"
    choice.judged(1, answer(409, error("MIRRORED", source=None)))
    assert choice.at == 0, "its promotion has not come yet"


def test_error_of_one_partition_is_tried_again_at_the_other_stage() -> None:
    choice = StageChoice([FIRST, SECOND])
    parts = [{"base_offset": 4}, error("MOVED", url=SECOND), error("RECORD_TOO_LARGE")]
    told = json.loads(choice.judged(0, answer(200, {"results": parts})).body)["results"]
    assert [each.get("error", {}).get("code") for each in told] == [None, "STORAGE_UNAVAILABLE", "RECORD_TOO_LARGE"]
    assert choice.at == 1


@pytest.mark.parametrize(
    "response",
    [
        answer(200, {"results": [{"value": '"MOVED"'}]}),
        answer(409, error("PARTITION_CLOSED", was='"MOVED"')),
        Response(200, {}, b'\x00"MOVED"\xff'),
        answer(404, error("UNKNOWN_TOPIC")),
    ],
)
def test_other_answers_stay_as_they_are(response: Response) -> None:
    choice = StageChoice([FIRST, SECOND])
    assert choice.judged(0, response) is response
    assert choice.at == 0


def test_stage_that_does_not_answer_is_left_after_three_calls() -> None:
    choice = StageChoice([FIRST, SECOND])
    choice.failed(0)
    choice.failed(0)
    choice.judged(0, answer(200, {}))
    for _ in range(3):
        assert choice.at == 0
        choice.failed(0)
    assert choice.at == 1
    choice.failed(0)
    assert choice.at == 1


def test_stage_that_was_lost_gets_no_appends_when_the_other_one_does_not_answer() -> None:
    choice = StageChoice([FIRST, SECOND])

    def silent(at: int) -> int:
        for _ in range(3):
            choice.failed(at)
        return choice.at

    assert [silent(0), silent(1), silent(0)] == [1, 0, 1], "neither has taken an append since"
    choice.judged(1, answer(200, {"results": [{"base_offset": 4}]}))
    assert silent(1) == 1, "the first one may take appends of another log"
    choice.judged(1, answer(409, error("MOVED", url=FIRST)))
    assert choice.at == 0, "the topics go back there"
    assert silent(0) == 1


def test_mirror_that_answers_a_repeat_has_taken_over_from_none() -> None:
    choice = StageChoice([FIRST, SECOND])
    for _ in range(3):
        choice.failed(0)
    choice.judged(1, answer(200, {"results": [{"base_offset": 4}]}))
    choice.judged(1, answer(409, error("MIRRORED", source=None)))
    assert choice.at == 0


def test_client_of_one_stage_stays() -> None:
    choice = StageChoice([FIRST])
    choice.judged(0, answer(409, error("MOVED", url=SECOND)))
    assert choice.at == 0, "no answer sends a client to a stage that it was not given"
