"""Topics of which a part is expired."""

from penstock_broker.broker import Broker
from penstock_broker.produce import produce
from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks
from tests.broker.setting import SteppedClock, batch, entry, new_topic

HOUR_MS = 3_600_000
OLD = 40  # refs of an hour ago, in 2 pages and the tail
NEW = 10


def put(broker: Broker, topic: str, count: int, timestamp_ms: int, partition: int = 0) -> None:
    for number in range(count):
        sent = entry(topic, partition, batch(f"{timestamp_ms}/{number}", timestamp_ms=timestamp_ms))
        [result] = produce(broker, [sent], Acks.QUORUM)
        assert not isinstance(result, PenstockError)


def old_and_new(broker: Broker, clock: SteppedClock, name: str = "orders") -> str:
    """A topic that keeps 10 minutes, with 40 refs that are an hour old and 10 that are not."""
    topic = new_topic(broker, name, retention_ms=600_000)
    put(broker, topic, OLD, clock.now_ms())
    clock.time_ms += HOUR_MS
    put(broker, topic, NEW, clock.now_ms())
    return topic
