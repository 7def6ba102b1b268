"""Topics of which a part is expired."""

from penstock_core.errors import PenstockError
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.support.service import SteppedClock, batch, entry, new_topic

HOUR_MS = 3_600_000
OLD = 40  # refs of an hour ago, in 2 pages and the tail
NEW = 10


def put(instance: Instance, topic: str, count: int, timestamp_ms: int, partition: int = 0) -> None:
    for number in range(count):
        sent = entry(topic, partition, batch(f"{timestamp_ms}/{number}", timestamp_ms=timestamp_ms))
        [result] = produce(instance, [sent], Acks.QUORUM)
        assert not isinstance(result, PenstockError)


def old_and_new(instance: Instance, clock: SteppedClock, name: str = "orders") -> str:
    """A topic that keeps 10 minutes, with 40 refs that are an hour old and 10 that are not."""
    topic = new_topic(instance, name, retention_ms=600_000)
    put(instance, topic, OLD, clock.now_ms())
    clock.time_ms += HOUR_MS
    put(instance, topic, NEW, clock.now_ms())
    return topic
