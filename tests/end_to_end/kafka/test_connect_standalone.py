"""Kafka Connect's standalone worker: a file becomes a topic, and the topic a file, through the gateway."""

from pathlib import Path

import pytest

from penstock import Admin
from tests.end_to_end.kafka.connect_worker import connect
from tests.end_to_end.kafka.gateway_process import gateway_process
from tests.end_to_end.local_stack import Stack, free_port
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

LINES = 1_500


def _append(path: Path, first: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(first, first + LINES))


def _numbers(path: Path) -> list[int]:
    return [*map(int, path.read_text().splitlines())] if path.exists() else []


def _connectors(folder: Path, topic: str) -> dict[str, dict[str, str]]:
    # With fewer lines in a batch than in the file the connector keeps the rest until the file grows.
    source = {"connector.class": "FileStreamSource", "file": str(folder / "in"), "topic": topic, "batch.size": "9999"}
    return {
        "file-source": source,
        "file-sink": {"connector.class": "FileStreamSink", "file": str(folder / "out"), "topics": topic},
    }


def test_each_line_comes_once_and_in_order_when_a_file_goes_through_a_topic(
    stack: Stack, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topic("connect.lines", partitions=1)
    _append(tmp_path / "in", 0)
    workers, port = connect(tmp_path, "connect-file"), free_port()
    with (
        gateway_process(stack, port),
        workers.standalone(f"127.0.0.1:{port}", _connectors(tmp_path, "connect.lines")),
    ):
        until(lambda: len(_numbers(tmp_path / "out")) >= LINES, deadline_s=120)
    assert _numbers(tmp_path / "out") == [*range(LINES)]
    assert [each.high_watermark for each in admin.describe_topic("connect.lines").offsets] == [LINES]


def test_no_line_is_lost_when_the_worker_is_killed(stack: Stack, admin: Admin, tmp_path: Path) -> None:
    admin.create_topic("connect.killed", partitions=1)
    _append(tmp_path / "in", 0)
    workers, port = connect(tmp_path, "connect-file"), free_port()
    connectors, out = _connectors(tmp_path, "connect.killed"), tmp_path / "out"
    with gateway_process(stack, port):
        with workers.standalone(f"127.0.0.1:{port}", connectors) as worker:
            until(lambda: _numbers(out), deadline_s=120)
            _append(tmp_path / "in", LINES)
            worker.kill()
        before = len(_numbers(out))
        _append(tmp_path / "in", 2 * LINES)
        with workers.standalone(f"127.0.0.1:{port}", connectors):
            until(lambda: 3 * LINES - 1 in _numbers(out), deadline_s=120)
    found = _numbers(out)
    print(f"killed after {before} lines; {len(found) - 3 * LINES} lines came again")
    assert [*dict.fromkeys(found)] == [*range(3 * LINES)]
