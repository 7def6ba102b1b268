"""Groups of Kafka clients in motion, in front of the deployed stack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin
from tests.end_to_end.local_stack import Stack
from tests.kafka.in_motion.attack import PARTITIONS, TOPIC, attack
from tests.kafka.in_motion.motion import Motion

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


@pytest.fixture
def motion(stack: Stack, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Motion]:
    """Processes around the stack, which they find by the environment."""
    for name, value in (
        ("PENSTOCK_URL", stack.url),
        ("AWS_REGION", stack.region),
        ("AWS_ACCESS_KEY_ID", stack.access_key_id),
        ("AWS_SECRET_ACCESS_KEY", stack.secret_access_key),
    ):
        monkeypatch.setenv(name, value)
    admin.create_topic(TOPIC, partitions=PARTITIONS)
    motion = Motion(folder=tmp_path, group=TOPIC, topic=TOPIC)
    try:
        yield motion
    finally:
        motion.close()


def test_no_record_is_lost_when_members_and_a_gateway_are_killed_on_the_deployed_stack(motion: Motion) -> None:
    attack(motion)
