"""Delayed records of the tests of use cases."""

from penstock_core.errors import PenstockError
from penstock_core.ids import TimerId
from penstock_core.log.timer import TimerPlace
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.records.schedule import ScheduledRecords
from tests.support.service import batch

FOREVER_MS = 10**12


def place(due_ms: int, number: int = 0) -> TimerPlace:
    return TimerPlace(due_ms, TimerId(number.to_bytes(16, "big")))


def delayed(topic: str, due_ms: int, *values: str, number: int = 0, partition: int = 0) -> ProduceEntry:
    return ProduceEntry(topic=topic, partition=partition, data=batch(*values), timer=place(due_ms, number))


def delay(
    instance: Instance, topic: str, due_ms: int, *values: str, number: int = 0, partition: int = 0
) -> ScheduledRecords:
    """Schedules one batch; raises what it was refused with."""
    entries = [delayed(topic, due_ms, *values, number=number, partition=partition)]
    [result] = produce_or_schedule(instance, entries, Acks.QUORUM)
    if isinstance(result, PenstockError):
        raise result
    assert isinstance(result, ScheduledRecords)
    return result


def sent(instance: Instance) -> list[tuple[int, int]]:
    """The messages sent so far: seconds and delays in ms."""
    triggers = instance.stores.timer_triggers
    assert isinstance(triggers, MemoryTimerTriggers)
    return [(second.second, delay_ms) for second, delay_ms in triggers.seconds]
