"""Groups of Kafka clients in motion, in front of `penstock dev`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.in_motion.attack import PARTITIONS, TOPIC, attack
from tests.kafka.in_motion.motion import Motion
from tests.support.child_process import child_process


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
    attack(motion)
