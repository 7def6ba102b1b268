"""CloudFormation by boto3: an answer goes to a URL that is a secret."""

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import urllib3

from penstock_core.errors import ErrorCode
from penstock_service.adapters import cloud_formation
from penstock_service.adapters.cloud_formation import AwsCloudFormation
from tests.support.refusals import refused

SECRET = "/stack?Signature=s3cr3t"
BODY = b'{"Status": "SUCCESS"}'


class _Bucket(HTTPServer):
    """Answers with the first of `statuses`, and with the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Put)
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{SECRET}"


class _Put(BaseHTTPRequestHandler):
    server: _Bucket

    def do_PUT(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = urllib3.Retry(2, allowed_methods=None, status_forcelist=(503,), backoff_factor=0)
    monkeypatch.setattr(cloud_formation, "_TRIES", tries)


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Iterator[_Bucket]:
    server = _Bucket(*request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("bucket", [(200,), (503, 200)], indirect=True)
def test_answer_is_put_and_put_again_after_an_outage(bucket: _Bucket) -> None:
    AwsCloudFormation().answer(bucket.url, BODY)
    assert set(bucket.bodies) == {BODY}


@pytest.mark.parametrize("bucket", [(403,), (503,)], indirect=True)
def test_answer_that_is_not_taken_shows_no_url(bucket: _Bucket, caplog: pytest.LogCaptureFixture) -> None:
    _assert_secret(bucket.url, caplog)


def test_answer_without_a_connection_shows_no_url(caplog: pytest.LogCaptureFixture) -> None:
    closed = _Bucket(200)
    closed.server_close()
    _assert_secret(closed.url, caplog)


def _assert_secret(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The answer fails, and neither its error, nor the errors that Python prints with it, nor a log has the URL."""
    with caplog.at_level(logging.DEBUG):
        error = refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: AwsCloudFormation().answer(url, BODY))
    assert "takes no answer" in error.message
    assert "s3cr3t" not in error.message + caplog.text
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
