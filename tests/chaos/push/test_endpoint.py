"""The endpoint verifies deliveries, answers as its target does, and ends when it is asked."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import webhook
from penstock.webhook import WebhookRecord
from tests.chaos.clients.clients import Target
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.push.endpoint import HOST, SECRET, run_endpoint, url_of
from tests.chaos.push.recording_target import CONTROL, DOWN, control
from tests.chaos.push.test_recording_target import FATAL, GOOD, NAMED_POISON
from tests.end_to_end.local_stack import free_port
from tests.support.deadlines import until


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    control(tmp_path / CONTROL, {})
    port, stop = free_port(), StopFile(tmp_path / "stop")
    target = Target(url="", region="", access_key_id="", secret_access_key="", topics=(), partitions=1, folder=tmp_path)
    thread = threading.Thread(target=run_endpoint, args=(target, port, "0", stop))
    thread.start()
    until(lambda: _is_up(port))
    yield port
    stop.set()
    thread.join()


def _is_up(port: int) -> bool:
    try:
        http.client.HTTPConnection(HOST, port).connect()
    except OSError:
        return False
    return True


def posted(port: int, *names: str) -> tuple[int, bytes]:
    records = [
        WebhookRecord(
            topic="pushed", partition=0, offset=offset, timestamp_ms=1, key=None, value=name.encode(), headers=(),
            attempt=1,
        )
        for offset, name in enumerate(names)
    ]  # fmt: skip
    request = webhook.sign(SECRET, records)
    connection = http.client.HTTPConnection(HOST, port)
    connection.request("POST", f"/{url_of(port, 'endpoint').rpartition('/')[2]}", request.body, request.headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_endpoint_answers_as_its_target_does(port: int, tmp_path: Path) -> None:
    assert posted(port, *GOOD) == (200, b'{"batchItemFailures": []}')
    status, answer = posted(port, GOOD[0], NAMED_POISON)
    assert (status, b'"offset": 1' in answer) == (200, True)
    assert posted(port, FATAL)[0] == 422
    control(tmp_path / CONTROL, {"endpoint": DOWN})
    assert posted(port, GOOD[0])[0] == 503
