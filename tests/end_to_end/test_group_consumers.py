"""Consumers of a group as processes on the deployed stack: some are killed, some restarted in turn."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Admin, Producer
from tests.end_to_end import group_process
from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
PARTITIONS = 6
PATIENCE_S = 90  # a slow machine's; nothing takes so long
KILLS = 3
SEED = 20261121


class Process:
    """A running consumer, and what it has said."""

    def __init__(self, stack: Stack, topic: str, log: Path, *, instance: str = "", session_ms: int) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {
            "PENSTOCK_URL": stack.url,
            "AWS_REGION": stack.region,
            "AWS_ACCESS_KEY_ID": stack.access_key_id,
            "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        arguments = [topic, f"g.{topic}", instance, str(session_ms), str(log)]
        self._log = log
        self._process = subprocess.Popen([sys.executable, group_process.__file__, *arguments], env=environment)

    def said(self, what: str) -> list[list[str]]:
        return [words for words in self._lines() if words[0] == what]

    def changes(self) -> list[list[str]]:
        """What it was told of its partitions before it was closed."""
        lines = self._lines()
        before = lines[: lines.index(["closing"])] if ["closing"] in lines else lines
        return [words for words in before if words[0] != "record"]

    def _lines(self) -> list[list[str]]:
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split() for line in text.split("\n")[:-1]]  # what is half written does not count

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self.kill()


class Fleet:
    """The processes of one test, and a file for each."""

    def __init__(self, stack: Stack, topic: str, folder: Path, session_ms: int) -> None:
        self.all: list[Process] = []
        self._stack, self._topic, self._folder, self._session_ms = stack, topic, folder, session_ms

    def start(self, instance: str = "") -> Process:
        log = self._folder / f"{self._topic}.{len(self.all)}"
        process = Process(self._stack, self._topic, log, instance=instance, session_ms=self._session_ms)
        self.all.append(process)
        return process


class Watch(threading.Thread):
    """Looks at a group's offsets again and again; `went_back` has those that were lower than before."""

    def __init__(self, stack: Stack, group: str) -> None:
        super().__init__(name="watch")
        self.latest: dict[int, int] = {}
        self.went_back: list[tuple[int, int, int]] = []
        self.looks = 0
        self._admin, self._group = Admin(transport=stack.transport()), group
        self._is_done = threading.Event()

    def run(self) -> None:
        while not self._is_done.wait(0.05):
            for each in self._admin.group_offsets(self._group):
                before = self.latest.get(each.partition, 0)
                if each.offset < before:
                    self.went_back.append((each.partition, before, each.offset))
                self.latest[each.partition] = each.offset
            self.looks += 1

    def end(self) -> None:
        self._is_done.set()
        self.join()
        self._admin.close()


@pytest.fixture
def topic(stack: Stack, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:60]
    with Admin(transport=stack.transport()) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def fleet_of(stack: Stack, topic: str, tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    fleets: list[Fleet] = []

    def make(session_ms: int) -> Fleet:
        fleets.append(Fleet(stack, topic, tmp_path, session_ms))
        return fleets[-1]

    yield make
    for fleet in fleets:
        for process in fleet.all:
            process.clean_up()


def test_killed_consumers_lose_no_record_and_no_offset_goes_back(
    stack: Stack, topic: str, fleet_of: Callable[[int], Fleet]
) -> None:
    chance = random.Random(SEED)
    fleet = fleet_of(8_000)  # which a slow machine does not lose between two heartbeats
    watch = Watch(stack, f"g.{topic}")
    sent: list[str] = []
    is_sending = threading.Event()
    is_sending.set()

    def send() -> None:
        with Producer(transport=stack.transport()) as producer:
            while is_sending.is_set():
                for _ in range(20):
                    value = f"v{len(sent)}"
                    producer.send(topic, value.encode(), partition=len(sent) % PARTITIONS)
                    sent.append(value)
                time.sleep(0.1)

    sender = threading.Thread(target=send, name="sender")
    sender.start()
    watch.start()
    try:
        alive = [fleet.start() for _ in range(3)]
        _until(lambda: all(process.said("record") for process in alive), "every process reads")
        for _ in range(KILLS):
            read = len(_records(fleet))
            _until(lambda: len(_records(fleet)) >= read + 100, "records flow")  # noqa: B023 - called at once
            alive.pop(chance.randrange(3)).kill()
            alive.append(fleet.start())
        _until(lambda: all(process.said("record") for process in alive), "every process reads again")
        is_sending.clear()
        sender.join()
        _until(lambda: sum(watch.latest.values()) == len(sent), "everything is committed")
        assert [process.end() for process in alive] == [0, 0, 0]
    finally:
        is_sending.clear()
        sender.join()
        watch.end()
    assert {value for _, _, _, value in _records(fleet)} == set(sent)
    assert len(sent) > 500
    assert (watch.went_back, watch.looks > 50) == ([], True)


def test_rolling_restart_of_static_members_moves_nothing(
    stack: Stack, topic: str, fleet_of: Callable[[int], Fleet]
) -> None:
    fleet = fleet_of(30_000)
    names = ["a", "b", "c"]
    current = {name: fleet.start(name) for name in names}
    _until(lambda: _shares(current) == [2, 2, 2], "the partitions are shared")
    held = {name: _held(process) for name, process in current.items()}
    for name in names:
        others = {each: current[each].changes() for each in names if each != name}
        assert current[name].end() == 0
        current[name] = fleet.start(name)
        _until(lambda: len(_held(current[name])) == 2, "it is back")  # noqa: B023 - called at once
        assert _held(current[name]) == held[name]
        assert {each: current[each].changes() for each in others} == others
    assert [process.end() for process in current.values()] == [0, 0, 0]


def _records(fleet: Fleet) -> list[list[str]]:
    return [words for process in fleet.all for words in process.said("record")]


def _held(process: Process) -> set[str]:
    held: set[str] = set()
    for what, *partitions in process.changes():
        held = held | set(partitions) if what == "assigned" else held - set(partitions)
    return held


def _shares(processes: dict[str, Process]) -> list[int]:
    return sorted(len(_held(process)) for process in processes.values())


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.05)
