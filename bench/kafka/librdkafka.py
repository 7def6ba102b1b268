"""librdkafka as a load: it produces and consumes records of 100 B, and counts what it did."""

import os
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

RECORD_BYTES = 100
_CHUNK = 5_000
_QUEUE_MAX = 200_000
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A number of records that went through, and the time and CPU of the client that they took."""

    records: int
    seconds: float
    client_cpu_s: float

    @property
    def records_per_s(self) -> int:
        return round(self.records / self.seconds)


def produce(address: str, topic: str, count: int, settings: dict[str, Any]) -> Load:
    """Produce `count` records of random bytes, and wait until all are acknowledged."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": "none",
            "linger.ms": 50,
            "queue.buffering.max.messages": _QUEUE_MAX,
            "delivery.report.only.error": True,
            "error_cb": failed.append,
            "on_delivery": lambda error, _: failed.append(error),
            **settings,
        }
    )
    chunk = [{"value": os.urandom(RECORD_BYTES)} for _ in range(_CHUNK)]
    cpu_s, began_s = time.process_time(), time.perf_counter()
    for start in range(0, count, _CHUNK):
        while len(producer) > _QUEUE_MAX - _CHUNK:
            producer.poll(0.01)
        producer.produce_batch(topic, chunk[: count - start])
    unsent = producer.flush(_PATIENCE_S)
    load = Load(records=count, seconds=time.perf_counter() - began_s, client_cpu_s=time.process_time() - cpu_s)
    if unsent or failed:
        raise RuntimeError(f"{unsent:,} records were not acknowledged: {failed[:3]}")
    return load


def consume(address: str, topic: str, count: int, partitions: int) -> Load:
    """Read `count` records of a topic from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 4 * 2**20,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    cpu_s, began_s, seen = time.process_time(), time.perf_counter(), 0
    try:
        while seen < count:
            taken = consumer.consume(_CHUNK, _PATIENCE_S)
            if not taken or any(each.error() for each in taken):
                raise RuntimeError(f"{seen:,} of {count:,} records came, then {[each.error() for each in taken[:3]]}")
            seen += len(taken)
        return Load(records=seen, seconds=time.perf_counter() - began_s, client_cpu_s=time.process_time() - cpu_s)
    finally:
        consumer.close()
