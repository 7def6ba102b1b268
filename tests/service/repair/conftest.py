"""Fixtures of the tests in this folder."""

import pytest

from penstock_core.ids import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.instance.instance import Instance
from tests.service.repair.zone_recovery import holds_everything, status
from tests.support.service import (
    new_topic,
    send,
    zone_of,
)


@pytest.fixture
def topic(instance: Instance) -> str:
    """A topic with pages and a tail, most of it written while zone c was down; c is out of sync."""
    name = new_topic(instance)
    send(instance, name, "before")
    zone_of(instance, 2).is_down = True
    for number in range(3 * TAIL_ROLL_REFS):
        send(instance, name, str(number))
    assert status(instance, 2) is ZoneStatus.OUT_OF_SYNC
    assert not holds_everything(instance, 2)
    return name


@pytest.fixture
def key(instance: Instance) -> PartitionKey:
    """A partition of a new topic."""
    return instance.topic_cache.get_partition(new_topic(instance), 0)[1]
