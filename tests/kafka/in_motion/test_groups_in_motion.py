"""Consumers of every kind in one group, killed and added, with two gateways of which one is killed."""

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin, Producer
from tests.kafka.in_motion.group_member import KINDS
from tests.kafka.in_motion.motion import Motion
from tests.support.child_process import child_process
from tests.support.deadlines import until

SECONDS = 60.0
PARTITIONS = 18
TOPIC = "in-motion"


class _Writer:
    """Writes numbers until it is told to stop."""

    def __init__(self) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with Producer() as producer:
            while not self._stop.wait(0.2):
                for _ in range(20):
                    producer.send(TOPIC, key=str(self.sent).encode(), value=str(self.sent).encode())
                    self.sent += 1
                producer.flush()

    def stop(self) -> None:
        """Returns once all is written."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Motion]:
    """Processes around `penstock dev`, which runs the service's code in a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "dev", "--port", "0", "--no-console"]
    with (
        (tmp_path / "service.log").open("w") as log,
        child_process(
            [*command, "--topic", f"{TOPIC}:{PARTITIONS}", "--json"], deadline_s=600, stdout=-1, stderr=log, text=True
        ) as service,
    ):
        assert service.stdout is not None
        assert service.stdout.readline()
        motion = Motion(folder=tmp_path, group=TOPIC, topic=TOPIC)
        try:
            yield motion
        finally:
            motion.close()


@pytest.mark.minutes
def test_no_record_is_lost_when_members_and_a_gateway_are_killed(motion: Motion) -> None:
    chance = random.Random(7)
    motion.start_gateway()
    motion.start_gateway()
    for kind in KINDS * 3:
        motion.start_member(kind)
    writer = _Writer()
    ends_s = time.monotonic() + SECONDS
    gateway_dies_s = time.monotonic() + SECONDS / 2
    while time.monotonic() < ends_s:
        threading.Event().wait(chance.uniform(2, 5))
        motion.stop_member(chance.choice(motion.members), chance.choice([signal.SIGKILL, signal.SIGTERM]))
        if time.monotonic() > gateway_dies_s and motion.gateways[0].poll() is None:
            motion.gateways[0].kill()
            motion.addresses.pop(0)
    writer.stop()
    admin = Admin()

    def lags() -> list[int | None]:
        return [each.lag for each in admin.describe_group(motion.group).partitions]

    until(lambda: len(lags()) == PARTITIONS and not any(lag != 0 for lag in lags()), shown=lags, deadline_s=120)
    noted = Counter(map(int, motion.noted()))
    assert sorted(noted) == [*range(writer.sent)]
    print(f"{writer.sent} records, {noted.total() - writer.sent} handed out again, {motion.started} consumers")
