"""Kafka Connect's distributed workers in one group, at two gateways: one worker and one gateway are killed."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin
from tests.end_to_end.kafka.connect_worker import Connect, ConnectWorker, connect
from tests.end_to_end.kafka.gateway_process import gateway_process
from tests.end_to_end.local_stack import Stack, free_port
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

LINES = 400
TOPICS = ("connect.first", "connect.second")


def _states(worker: ConnectWorker, name: str) -> dict[str, str]:
    """The worker of each running task of a connector."""
    status, found = worker.ask("GET", f"/connectors/{name}/status")
    if status != 200:
        return {}
    return {str(each["id"]): each["worker_id"] for each in found["tasks"] if each["state"] == "RUNNING"}


def _create(worker: ConnectWorker, name: str, config: dict[str, str]) -> None:
    body = {"name": name, "config": {"tasks.max": "1", **config}}
    answers: list[Any] = []

    def is_created() -> bool:
        status, answer = worker.ask("POST", "/connectors", body)
        answers.append((status, answer))
        return status in (201, 409) and "rebalance" not in str(answer)  # 409: while a rebalance goes on, or it exists

    until(is_created, shown=lambda: answers[-1:], deadline_s=180)


def _append(path: Path, first: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(first, first + LINES))


def _numbers(path: Path) -> set[int]:
    return {*map(int, path.read_text().split())} if path.exists() else set()


@pytest.fixture
def workers(tmp_path: Path) -> Connect:
    return connect(tmp_path, "connect-file")


def _runs_on(workers: list[ConnectWorker], names: list[str]) -> Callable[[], bool]:
    """True once one task of each connector runs, on one of these workers."""
    addresses = {f"127.0.0.1:{each.port}" for each in workers}

    def holds() -> bool:
        found = [_states(workers[0], name) for name in names]
        return all(len(states) == 1 and {*states.values()} <= addresses for states in found)

    return holds


def test_tasks_move_and_no_line_is_lost_when_a_worker_and_a_gateway_are_killed(
    stack: Stack, admin: Admin, workers: Connect, tmp_path: Path
) -> None:
    for topic in TOPICS:
        admin.create_topic(topic, partitions=1)
    ports = [free_port(), free_port()]
    both = ",".join(f"127.0.0.1:{port}" for port in ports)
    quick = {"scheduled.rebalance.max.delay.ms": "2000", "session.timeout.ms": "10000"}
    with ExitStack() as running:
        gateways = [running.enter_context(gateway_process(stack, port)) for port in ports]
        first = running.enter_context(workers.distributed("first", both, **quick))
        swapped = ",".join(reversed(both.split(",")))
        second = running.enter_context(workers.distributed("second", swapped, **quick))
        names = []
        for number, topic in enumerate(TOPICS):
            into, out = tmp_path / f"in-{number}", tmp_path / f"out-{number}"
            _append(into, 0)
            source = {"connector.class": "FileStreamSource", "file": str(into), "topic": topic, "batch.size": "9999"}
            sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
            _create(first, f"source-{number}", source)
            _create(first, f"sink-{number}", sink)
            names += [f"source-{number}", f"sink-{number}"]
        outs = [tmp_path / f"out-{number}" for number in range(len(TOPICS))]
        until(_runs_on([first, second], names), shown=lambda: [_states(first, each) for each in names], deadline_s=240)
        until(lambda: all(_numbers(each) == {*range(LINES)} for each in outs), deadline_s=120)
        spread = {worker for each in names for worker in _states(first, each).values()}
        assert spread == {f"127.0.0.1:{each.port}" for each in (first, second)}
        [group] = [each for each in admin.list_groups() if each.group == "workers"]
        assert (group.protocol_type, group.member_count) == ("connect", 2)

        second.kill()
        for number in range(len(TOPICS)):
            _append(tmp_path / f"in-{number}", LINES)
        until(_runs_on([first], names), shown=lambda: [_states(first, each) for each in names], deadline_s=240)
        until(lambda: all(_numbers(each) == {*range(2 * LINES)} for each in outs), deadline_s=120)

        gateways[0].kill()
        for number in range(len(TOPICS)):
            _append(tmp_path / f"in-{number}", 2 * LINES)
        third = running.enter_context(workers.distributed("third", both, **quick))
        until(
            lambda: _runs_on([first, third], names)() and len({*map(str, _spread(first, names))}) == 2,
            shown=lambda: [_states(first, each) for each in names],
            deadline_s=240,
        )
        until(lambda: all(_numbers(each) == {*range(3 * LINES)} for each in outs), deadline_s=180)
    for topic in ("connect-configs", "connect-offsets", "connect-status"):
        assert admin.describe_topic(topic).topic.config["cleanup_policy"] == "compact"


def _spread(worker: ConnectWorker, names: list[str]) -> set[str]:
    """The workers that run tasks."""
    return {address for name in names for address in _states(worker, name).values()}
