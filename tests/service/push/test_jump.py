"""Subscriptions step over the jump of a restore at once, and count none of it (finding U15)."""

from typing import Any

import pytest

from penstock_core.limits import LOST_HEAD_JUMP_OFFSETS
from penstock_core.push.subscription import ORDERED, PARALLEL
from penstock_service.push.admin.describe_subscription import describe_subscription
from penstock_service.push.look import look
from penstock_service.push.parallel.parallel_group import put_parallel_group
from tests.support.push_deliveries import NAME, Deliveries
from tests.support.restoring import jump

BEHIND = 10 + LOST_HEAD_JUMP_OFFSETS


def _restored(mode: str, **settings: Any) -> Deliveries:
    """A subscription that has delivered 0 to 9 when the stage is restored."""
    deliveries = Deliveries(settings={"mode": mode, **settings})
    if mode == PARALLEL:
        put_parallel_group(deliveries.instance, deliveries.subscription, [])
    deliveries.append_many(10)
    deliveries.run()
    deliveries.batches.clear()
    jump(deliveries.instance)
    deliveries.start()
    return deliveries


def _lag(deliveries: Deliveries) -> tuple[int, int | None]:
    [partition] = describe_subscription(deliveries.instance, NAME, "", 10).partitions
    return partition.place.lag, partition.place.oldest_age_ms


@pytest.mark.parametrize("mode", [ORDERED, PARALLEL])
def test_records_behind_the_jump_are_delivered_once(mode: str) -> None:
    deliveries = _restored(mode)
    assert _lag(deliveries) == (0, None)
    deliveries.run()
    assert deliveries.batches == []
    assert deliveries.is_armed(0)
    deliveries.append("new")
    deliveries.run()
    assert deliveries.batches == [[BEHIND]]
    assert _lag(deliveries) == (0, None)
    assert "push_expired" not in deliveries.counts(), "the jump holds no record that could have expired"


@pytest.mark.parametrize("mode", [ORDERED, PARALLEL])
def test_look_finds_no_work_in_a_jump_alone(mode: str) -> None:
    deliveries = _restored(mode)
    deliveries.run()
    look(deliveries.instance, budget_ms=1e9)
    assert not deliveries.queue.messages
