"""`penstock dev` delivers to functions, to endpoints of this machine and to topics, and keeps what AWS would get."""

import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock import Admin, InvalidError, Producer
from penstock.dev.functions import FunctionPlace
from penstock.dev.service import DevService
from penstock.testing import MemoryTransport
from penstock.webhook import verify
from penstock_core.push.batch import Failed
from penstock_core.push.targets.target import StageTarget
from tests.core.push.push_samples import SECRET
from tests.support.deadlines import until
from tests.support.mirrors import a_push
from tests.support.service import new_topic

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


class Hook(BaseHTTPRequestHandler):
    """Verifies each delivery, and keeps its values."""

    values: list[bytes | None]
    status = 204
    hold: threading.Event | None = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        delivery = verify(SECRET, self.headers, body)
        self.values += [each.value for each in delivery.records]
        if self.path == "/slow" and self.hold is not None:
            self.hold.wait()
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    Hook.values, Hook.status, Hook.hold = [], 204, None
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def endpoint(hook: HTTPServer, path: str = "hook") -> dict[str, object]:
    return {"https": {"url": f"http://127.0.0.1:{hook.server_port}/{path}", "secret": SECRET}}


def test_endpoint_of_this_machine_gets_records_and_a_folder_goes_on_after_a_restart(
    hook: HTTPServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    for value in (b"first", b"second"):
        service = DevService(tmp_path)
        transport = MemoryTransport(service.instance)
        if value == b"first":
            admin = Admin(transport=transport)
            admin.create_topic("orders")
            admin.put_subscription("packing", "orders", endpoint(hook))
        with Producer(transport=transport) as producer:
            producer.send("orders", value)
        until(lambda sent=value: Hook.values[-1:] == [sent])  # type: ignore[misc]
        service.close()
    assert set(Hook.values) == {b"first", b"second"}


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_records_that_rested_until_their_next_try_go_on_after_a_restart(
    hook: HTTPServer, tmp_path: Path, mode: str
) -> None:
    """The message that slept for them is lost with the process."""
    tmp_path.chmod(0o700)
    Hook.status = 500
    service = DevService(tmp_path)
    transport = MemoryTransport(service.instance)
    admin = Admin(transport=transport)
    admin.create_topic("orders")
    admin.put_subscription("packing", "orders", endpoint(hook), {"mode": mode, "start": "earliest"})
    with Producer(transport=transport) as producer:
        producer.send("orders", b"only")
    until(lambda: b"only" in Hook.values)
    service.close()
    Hook.status, Hook.values = 204, []
    service = DevService(tmp_path)
    until(lambda: Hook.values == [b"only"])
    admin = Admin(transport=MemoryTransport(service.instance))
    until(lambda: admin.describe_subscription("packing").lag == 0)
    service.close()


def test_slow_endpoint_holds_up_no_other_subscription(hook: HTTPServer) -> None:
    Hook.hold = threading.Event()
    service = DevService()
    transport = MemoryTransport(service.instance)
    admin = Admin(transport=transport)
    for topic in ("orders", "invoices"):
        admin.create_topic(topic)
    admin.put_subscription("packing", "orders", endpoint(hook, "slow"))
    admin.put_subscription("billing", "invoices", endpoint(hook))
    with Producer(transport=transport) as producer:
        producer.send("orders", b"slow")
    until(lambda: Hook.values == [b"slow"])
    with Producer(transport=transport) as producer:
        producer.send("invoices", b"quick")
    until(lambda: b"quick" in Hook.values)
    Hook.hold.set()
    service.close()


def test_copy_to_a_topic_is_made() -> None:
    service = DevService()
    transport = MemoryTransport(service.instance)
    admin = Admin(transport=transport)
    for topic in ("orders", "mirror"):
        admin.create_topic(topic)
    admin.put_subscription("mirroring", "orders", {"topic": "mirror"})
    with Producer(transport=transport) as producer:
        producer.send("orders", b"a")
    until(lambda: admin.list_offsets("mirror") == {0: 1})
    service.close()


def test_function_of_a_folder_is_called_again_after_a_restart_and_waits_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription finds it by its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "data").mkdir(mode=0o700)
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(f"def pack(event, context): open({name!r}, 'w').close()")
    first = DevService(tmp_path / "data", functions=[FunctionPlace(name="pack", place="first.py", handler="pack")])
    transport = MemoryTransport(first.instance)
    Admin(transport=transport).create_topic("orders")
    Admin(transport=transport).put_subscription("packing", "orders", {"lambda": FUNCTION})
    with Producer(transport=transport) as producer:
        producer.send("orders", b"1")
    until((tmp_path / "first").exists)
    first.close()

    without = DevService(tmp_path / "data")
    transport = MemoryTransport(without.instance)
    with Producer(transport=transport) as producer:
        producer.send("orders", b"2")
    admin = Admin(transport=transport)
    until(lambda: admin.describe_subscription("packing").partitions[0].last_result == "away")
    assert "--function pack=" in str(admin.describe_subscription("packing").partitions[0].last_error)
    without.close()

    again = DevService(tmp_path / "data", functions=[FunctionPlace(name="pack", place="second.py", handler="pack")])
    until((tmp_path / "second").exists)
    again.close()


def test_function_that_cannot_be_imported_is_seen_in_the_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "handlers.py").write_text("import nosuchmodule")
    service = DevService(functions=[FunctionPlace(name="pack", place="handlers.py", handler="pack")])
    transport = MemoryTransport(service.instance)
    admin = Admin(transport=transport)
    admin.create_topic("orders")
    admin.put_subscription("packing", "orders", {"lambda": FUNCTION})
    with Producer(transport=transport) as producer:
        producer.send("orders", b"1")
    until(lambda: admin.describe_subscription("packing").partitions[0].last_result == "failing")
    assert "No module named 'nosuchmodule'" in str(admin.describe_subscription("packing").partitions[0].last_error)
    service.close()


@pytest.mark.parametrize(
    "target",
    [
        {"sqs": "https://sqs.eu-west-1.amazonaws.com/123456789012/pack"},
        {"event_bus": "arn:aws:events:eu-west-1:123456789012:event-bus/orders"},
    ],
)
def test_queue_and_bus_get_records_that_the_server_keeps(target: dict[str, str], tmp_path: Path) -> None:
    service = DevService(deliveries=tmp_path / "deliveries.jsonl")
    transport = MemoryTransport(service.instance)
    admin = Admin(transport=transport)
    admin.create_topic("orders")
    admin.put_subscription("packing", "orders", target)
    with Producer(transport=transport) as producer:
        producer.send("orders", b"1")
    until(lambda: admin.describe_subscription("packing").partitions[0].last_result == "ok")
    assert [line["target"] for line in service.delivered.lines()] == [*target.values()]
    assert (tmp_path / "deliveries.jsonl").exists()
    service.close()


def test_function_that_the_server_has_not_is_refused_with_the_option() -> None:
    service = DevService()
    admin = Admin(transport=MemoryTransport(service.instance))
    admin.create_topic("orders")
    with pytest.raises(InvalidError, match="penstock dev --function pack="):
        admin.put_subscription("packing", "orders", {"lambda": FUNCTION})
    service.close()


def test_boto3_finds_the_region_in_the_variables_for_clients() -> None:
    service = DevService()
    found = service.environment(4567)
    assert found["AWS_DEFAULT_REGION"] == found["AWS_REGION"] == "us-east-1"
    service.close()


def test_mirror_gets_nothing_that_a_crash_takes_from_its_source(hook: HTTPServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    service = DevService(tmp_path)
    instance = service.instance
    new_topic(instance, "late")
    target = StageTarget(url=f"http://127.0.0.1:{hook.server_port}")
    assert isinstance(instance.stores.targets.mirror(target, a_push(), 1_000), Failed), "the hook is no stage"
    found = shutil.copytree(tmp_path, tmp_path.parent / "crashed")
    assert DevService(found).instance.topic_cache.find("late") is not None, "it was on the disk before the push"
    service.close()
