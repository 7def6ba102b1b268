"""A lane of many partitions to a mirror gathers records for a second, while they come all the time."""

import pytest

from penstock_core.limits import MIRROR_LIVELY_MS, MIRROR_REST_MS, MIRROR_REST_PARTITIONS
from penstock_service.push.look import look
from tests.service.mirror.stages import Stages

PARTITIONS = 3


def pushed(partitions: int = PARTITIONS, gap_ms: int = 1_500) -> Stages:
    """A record was pushed, and another one that came so much later."""
    stages = Stages(partitions=partitions)
    stages.source.append("a")
    stages.run()
    stages.clock.time_ms += gap_ms
    stages.source.append("b", partition=min(1, partitions - 1))
    assert stages.source.run_once() is not None
    assert len(stages.pushes) == 2
    return stages


def test_lane_rests_and_one_delivery_brings_what_came_to_all_partitions() -> None:
    stages = pushed()
    assert not stages.source.is_armed(1)
    for _ in range(2):
        stages.source.append("c", partition=1)
    assert stages.source.run_once() is None  # no wake-up
    stages.source.append("d", partition=2)
    stages.clock.time_ms += MIRROR_REST_MS
    stages.source.run_once()
    assert [len(each.parts) for each in stages.pushes] in ([1, 1, 2, 1], [1, 1, 1, 2])
    for partition in range(PARTITIONS):
        ours, theirs = stages.logs(partition)
        assert ours == theirs


def test_lane_arms_its_heads_when_a_rest_has_brought_nothing() -> None:
    stages = pushed()
    stages.clock.time_ms += MIRROR_REST_MS
    assert stages.source.run_once() is not None
    assert all(stages.source.is_armed(partition) for partition in range(PARTITIONS))
    assert not stages.source.queue.messages


@pytest.mark.parametrize(
    ("partitions", "gap_ms"), [(MIRROR_REST_PARTITIONS - 1, 1_500), (PARTITIONS, MIRROR_LIVELY_MS)]
)
def test_lane_does_not_rest_when_it_has_few_partitions_or_few_records(partitions: int, gap_ms: int) -> None:
    stages = pushed(partitions, gap_ms)
    assert all(stages.source.is_armed(partition) for partition in range(partitions))
    assert not stages.source.queue.messages


def test_lane_that_rests_goes_on_when_its_message_is_lost() -> None:
    stages = pushed()
    stages.source.queue._messages.clear()
    stages.source.append("c", partition=1)
    assert not stages.source.queue.messages  # no wake-up: the head was not armed
    stages.clock.time_ms += 600_000
    look(stages.source.instance, budget_ms=10_000)
    stages.run()
    ours, theirs = stages.logs(1)
    assert ours == theirs
