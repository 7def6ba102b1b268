"""Copies that a zone lacks, the messages that tell of them, and what the test queue holds."""

from typing import Any

from penstock_core.ids import PartitionKey
from penstock_core.log.repair import Repair
from penstock_core.zones.zone_state import Mover, ZoneStatus, move
from penstock_service.adapters.memory.messages import MemoryRepairQueue
from penstock_service.instance.instance import Instance
from tests.support.service import (
    another_instance,
    refs_of,
    send,
    zone_of,
)


def miss(instance: Instance, *values: str, zone: int = 2) -> None:
    """Appends that the zone misses, each by an instance whose first failed put it is."""
    for value in values:
        zone_of(instance, zone).is_down = True
        send(another_instance(instance), "orders", value)
        zone_of(instance, zone).is_down = False


def zones(instance: Instance, key: PartitionKey) -> list[int]:
    """The bitmap of each ref, in offset order."""
    return [located.ref.zones for located in refs_of(instance, key)]


def queued(*messages: str) -> dict[str, Any]:
    """The event by which SQS brings these messages."""
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": str(number), "body": body} for number, body in enumerate(messages)
        ]
    }


def sent(instance: Instance) -> list[Repair]:
    """The repairs that the queue holds."""
    assert isinstance(instance.stores.repair_queue, MemoryRepairQueue)
    return instance.stores.repair_queue.repairs


def is_whole(instance: Instance) -> bool:
    """Tells if all three zones hold the same."""
    return zone_of(instance, 0).segments == zone_of(instance, 1).segments == zone_of(instance, 2).segments


def move_out(
    instance: Instance, zone: int, mover: Mover = Mover.OPERATOR, to: ZoneStatus = ZoneStatus.TAKEN_OUT
) -> None:
    """Moves the zone out, as its mover does."""
    before = instance.stores.zone_states.get()
    name = instance.stores.zone_names[zone]
    instance.stores.zone_states.change(
        before, move(before, instance.stores.zone_names, name, to, mover, now_ms=instance.clock.now_ms(), reason="test")
    )
