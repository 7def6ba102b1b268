"""Java's KafkaShareConsumer in processes that are killed by SIGKILL, with two gateways of which one is killed, too."""

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin, Producer
from tests.kafka.in_motion.motion import Motion
from tests.support.child_process import child_process
from tests.support.deadlines import until
from tests.support.kafka_jars import compile_java, kafka_jars

RECORDS = 3_000
WORKERS = 3
KILLS = 5
LOCK_MS = 5_000
TOPIC = GROUP = "in-motion"


@pytest.fixture
def java(tmp_path: Path) -> list[str]:
    """The command of a worker."""
    jars = kafka_jars("kafka-clients-", "slf4j-api-2", "lz4-java", "zstd")
    class_path = compile_java([Path(__file__).parent / "java/ShareWorker.java"], jars, tmp_path)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path, "ShareWorker"]


class _Workers:
    """Workers at all gateways."""

    def __init__(self, motion: Motion, command: list[str]) -> None:
        self._motion = motion
        self._command = command
        self._started = 0
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one. Every second one asks the last gateway first."""
        self._started += 1
        asked = self._motion.addresses[:: -1 if self._started % 2 else 1]
        notes = self._motion.folder / f"{self._started}.notes"
        arguments = [",".join(asked), GROUP, TOPIC, str(notes)]
        self.processes.append(
            subprocess.Popen([*self._command, *arguments], stderr=notes.with_suffix(".log").open("w"))
        )

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """SIGKILL."""
        self.processes.remove(process)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Kill all."""
        for process in [*self.processes]:
            self.kill(process)


@pytest.fixture
def motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Motion]:
    """Two gateways in front of `penstock dev`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "dev", "--port", "0", "--no-console"]
    with (
        (tmp_path / "service.log").open("w") as log,
        child_process(
            [*command, "--topic", f"{TOPIC}:4", "--json"], deadline_s=600, stdout=-1, stderr=log, text=True
        ) as service,
    ):
        assert service.stdout is not None
        assert service.stdout.readline()
        motion = Motion(folder=tmp_path, group=GROUP, topic=TOPIC)
        try:
            motion.start_gateway()
            motion.start_gateway()
            yield motion
        finally:
            motion.close()


@pytest.mark.minutes
def test_each_record_is_accepted_while_workers_and_a_gateway_are_killed(motion: Motion, java: list[str]) -> None:
    chance = random.Random(3)
    admin = Admin()
    admin.create_share_group(GROUP, TOPIC, {"lock_ms": LOCK_MS, "retry_backoff_ms_min": 50})
    with Producer() as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, key=str(number).encode(), value=str(number).encode())
    workers = _Workers(motion, java)
    try:
        for _ in range(WORKERS):
            workers.start()
        until(motion.noted, deadline_s=60)
        for kill in range(KILLS):
            _until_more(motion, admin)
            if kill == KILLS // 2:
                motion.gateways[0].kill()
                motion.addresses.pop(0)
            else:
                workers.kill(chance.choice(workers.processes))
                workers.start()
        until(lambda: _lag(admin) == 0, shown=lambda: _lag(admin), deadline_s=240)
    finally:
        workers.close()
    noted = Counter(map(int, motion.noted()))
    assert sorted(noted) == [*range(RECORDS)]
    print(f"{RECORDS} records, {noted.total() - RECORDS} noted again")


def _lag(admin: Admin) -> int:
    return sum(each.lag for each in admin.describe_share_group(GROUP).partitions)


def _until_more(motion: Motion, admin: Admin) -> None:
    """Until the workers have noted fifty records more, or all."""
    before = len(motion.noted())
    until(lambda: len(motion.noted()) > before + 50 or _lag(admin) == 0, deadline_s=120)
