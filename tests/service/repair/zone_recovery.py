"""Runs of the recovery of zones, and what they leave."""

from typing import Any

import pytest

from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import ZoneRecovery, recover_zones
from tests.support.service import (
    another_instance,
    new_topic,
    send,
    zone_of,
)

BUDGET_MS = 1e9
MINUTE_MS = 60_000


def run(instance: Instance, **changes: Any) -> ZoneRecovery:
    """One run in an instance of its own."""
    return recover_zones(another_instance(instance, **changes), BUDGET_MS)


def status(instance: Instance, zone: int) -> ZoneStatus:
    return instance.stores.zone_states.get().of(instance.stores.zone_names[zone]).status


def named_segments(instance: Instance) -> set[SegmentId]:
    """The segments that refs name, in pages and tails."""
    found: set[SegmentId] = set()
    for topic in instance.stores.topics.list():
        for partition in topic.all_partitions():
            key = PartitionKey(topic.topic_id, partition)
            head = instance.stores.log.heads([key])[key]
            pages = instance.stores.log.pages(key, head.log_start_offset, 1_000)
            found |= {ref.segment_id for page in pages for ref in page.refs} | {ref.segment_id for ref in head.tail}
    return found


def holds_everything(instance: Instance, zone: int) -> bool:
    return named_segments(instance) <= set(zone_of(instance, zone).segments)


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
