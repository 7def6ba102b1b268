"""Clients of libraries: connections that were idle for long are closed before the next call."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock_core.limits import STORAGE_IDLE_CONNECTION_MS_MAX
from penstock_service.adapters import aws_clock
from penstock_service.adapters.aws import Storage
from penstock_service.adapters.aws_clock import IdleGuard
from penstock_service.adapters.botocore_drivers import BotocoreDrivers
from penstock_service.adapters.storage_calls import StorageCalls
from tests.support.deadlines import PAUSE_S
from tests.support.service import SteppedClock


class _Aws(ThreadingHTTPServer):
    """Answers `{}` to each call, and counts connections."""

    daemon_threads = True
    accepted = 0

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def get_request(self) -> tuple[object, object]:  # type: ignore[override]
        self.accepted += 1
        return super().get_request()


@pytest.fixture
def aws() -> Iterator[_Aws]:
    with _Aws() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


_CALLS: dict[str, Callable[[BotocoreDrivers], object]] = {
    "dynamodb": lambda drivers: drivers.dynamodb.list_tables(),
    "sqs": lambda drivers: drivers.control("sqs").list_queues(),
}


@pytest.mark.slow
@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
def test_client_of_botocore_opens_a_new_connection_after_long_idle(
    aws: _Aws, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    monkeypatch.setattr(aws_clock, "SystemClock", lambda: clock)
    place = Storage(
        topics_table="t",
        log_table="l",
        groups_table="g",
        repair_queue_url=None,
        zones=(),
        archive="a",
        region="eu-west-1",
        endpoint_url=f"http://127.0.0.1:{aws.server_address[1]}",
        access_key="key",
        secret_key="secret",
    )
    drivers = BotocoreDrivers(place, StorageCalls())
    for idle_ms, accepted in ((0, 1), (STORAGE_IDLE_CONNECTION_MS_MAX, 1), (STORAGE_IDLE_CONNECTION_MS_MAX + 1, 2)):
        clock.time_ms += idle_ms
        _CALLS[service](drivers)
        assert aws.accepted == accepted


def test_guard_forgets_once_for_one_pause() -> None:
    clock, forgotten = SteppedClock(), []
    guard = IdleGuard(lambda: forgotten.append(clock.time_ms), clock)
    for pause_ms in (1, STORAGE_IDLE_CONNECTION_MS_MAX + 1, 0, 5):
        clock.time_ms += pause_ms
        guard.before_call()
    assert len(forgotten) == 1


def test_call_beside_waits_until_the_idle_connections_are_closed() -> None:
    clock = SteppedClock()
    closing, beside = threading.Event(), threading.Event()
    order: list[str] = []

    def forget() -> None:
        closing.set()
        beside.wait(PAUSE_S)  # a call that does not wait ends in this time
        order.append("closed")

    def call() -> None:
        closing.wait()
        guard.before_call()
        order.append("called")
        beside.set()

    guard = IdleGuard(forget, clock)
    clock.time_ms += STORAGE_IDLE_CONNECTION_MS_MAX + 1
    other = threading.Thread(target=call)
    other.start()
    guard.before_call()
    other.join()
    assert order == ["closed", "called"]
