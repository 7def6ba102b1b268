"""What `penstock.testing` delivers to functions of a test, and copies to topics. A program that a test runs on a
service in memory sees the same records where small appends are items.

The plugin that a project may name in its tests: its fixture, and that nothing else loads it.
"""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, TopicPartition
from penstock.testing import MemoryPenstock
from tests.support.child_process import bare_environment

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


@pytest.fixture
def events(service: MemoryPenstock) -> list[dict[str, Any]]:
    """The events that the function got. It refuses records with the value `bad`, each in the answer."""
    seen: list[dict[str, Any]] = []
    service.create_topic("orders", partitions=2)
    service.add_function(ARN, lambda event, _context: seen.append(event))
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest"})
    return seen


def send(service: MemoryPenstock, *values: bytes, topic: str = "orders", partition: int = 0) -> None:
    with service.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def test_function_gets_the_event_of_lambda(service: MemoryPenstock, events: list[dict[str, Any]]) -> None:
    service.deliver_pushes()
    assert events == []
    send(service, b"a", b"b", partition=1)
    service.deliver_pushes()
    [event] = events
    assert [each["value"] for each in event["records"]["orders-1"]] == ["YQ==", "Yg=="]
    found = service.admin().describe_subscription("packing")
    assert [(each.offset, each.lag, each.last_result) for each in found.partitions] == [(0, 0, "none"), (2, 0, "ok")]
    service.deliver_pushes()
    assert len(events) == 1, "nothing is delivered twice"


def test_records_that_come_later_are_delivered_too(service: MemoryPenstock, events: list[dict[str, Any]]) -> None:
    for value in (b"a", b"b", b"c"):
        send(service, value)
        service.deliver_pushes()
    offsets = [record["offset"] for event in events for record in event["records"]["orders-0"]]
    assert offsets == [0, 1, 2]


def test_function_that_raises_gets_its_records_again_later(service: MemoryPenstock) -> None:
    service.create_topic("orders")

    def fail(_event: dict[str, Any], _context: None) -> None:
        raise KeyError("customer")

    service.add_function(ARN, fail)
    service.admin().put_subscription("packing", "orders", {"lambda": ARN})
    send(service, b"a")
    service.deliver_pushes()
    [partition] = service.admin().describe_subscription("packing").partitions
    assert (partition.last_result, partition.last_error) == ("failing", "KeyError: 'customer'")
    assert (partition.attempts, partition.lag) == (1, 1)
    assert partition.next_try_ms is not None


def test_target_without_a_function_is_away(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.admin().put_subscription("packing", "orders", {"sqs": "https://sqs.eu-west-1.amazonaws.com/123456789012/q"})
    send(service, b"a")
    service.deliver_pushes()
    [partition] = service.admin().describe_subscription("packing").partitions
    assert partition.last_result == "away"


def test_paused_subscription_delivers_nothing_until_it_is_resumed(
    service: MemoryPenstock, events: list[dict[str, Any]]
) -> None:
    service.admin().pause_subscription("packing")
    send(service, b"a")
    service.deliver_pushes()
    assert events == []
    service.admin().resume_subscription("packing")
    service.deliver_pushes()
    assert len(events) == 1


def test_copies_to_topics_follow_each_other(service: MemoryPenstock) -> None:
    for topic in ("orders", "mirror", "archive"):
        service.create_topic(topic)
    service.admin().put_subscription("first", "orders", {"topic": "mirror"})
    service.admin().put_subscription("second", "mirror", {"topic": "archive"})
    send(service, b"a", b"b")
    service.deliver_pushes()
    assert [each.value for each in service.records("archive")] == [b"a", b"b"]


@pytest.mark.parametrize("inline_bytes_max", [0, 300])
def test_records_are_the_same_when_small_appends_are_items(inline_bytes_max: int) -> None:
    values = [b"small", b"large" * 100, b"transaction"]
    with MemoryPenstock(inline_bytes_max=inline_bytes_max) as service:
        with Admin(transport=service.transport) as admin:
            admin.create_topic("orders")
        producer = service.producer(linger_ms=0)
        for value in values[:2]:
            producer.send("orders", value).result()
        transactional = service.producer(transactional_id="ledger")
        with transactional.transaction():
            transactional.send("orders", values[2])
        consumer = service.consumer(auto_offset_reset="earliest")
        consumer.assign([TopicPartition("orders", 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(timeout_ms=1_000)]
    assert found == values


TESTS = """
import pytest
from penstock.errors import ClosedError

pytest_plugins = ["penstock.pytest_plugin"]
kept = []


def test_service_is_empty_and_its_clock_moves(penstock_service):
    penstock_service.create_topic("orders")
    kept.append(penstock_service.consumer("orders"))
    producer = penstock_service.producer()
    producer.send("orders", b"later", delay_ms=3_600_000).result()
    kept.append(producer)
    penstock_service.advance(3_600_000)
    assert [each.value for each in kept[0].poll(timeout_ms=60_000)] == [b"later"]


def test_next_one_is_new_and_the_clients_of_the_last_one_are_closed(penstock_service):
    assert list(penstock_service.admin().list_topics()) == []
    for call in (kept[0].poll, lambda: kept[1].send("orders", b"1")):
        with pytest.raises(ClosedError):
            call()
"""


def test_fixture_gives_each_test_a_service_and_closes_its_clients(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_shop.py"],
        cwd=tmp_path,
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_pytest_loads_the_plugin_only_where_a_project_names_it() -> None:
    assert [each.value for each in entry_points(group="pytest11") if "penstock" in each.value] == []
    script = "import sys, penstock.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=bare_environment(), capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
