"""A consumer process of one kind of Kafka client: it notes each record, then commits. SIGTERM lets it leave.

    python -m tests.kafka.in_motion.group_member KIND SERVERS GROUP TOPIC FILE

It writes the value of each record as a line to FILE before it commits the record's offset. So a record that is in no
file was lost.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException
from kafka import KafkaConsumer
from kafka.errors import KafkaError

_CLASSIC = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
_LIBRDKAFKA: dict[str, dict[str, Any]] = {
    "librdkafka": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    "librdkafka-cooperative": {
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "librdkafka-848": {"group.protocol": "consumer"},
}
KINDS = ("kafka-python", "aiokafka", *_LIBRDKAFKA)


class _Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.is_asked = True


def main(kind: str, servers: str, group: str, topic: str, path: str) -> None:
    """Consume until SIGTERM."""
    stop = _Stop()
    with open(path, "a", buffering=1) as notes:
        if kind == "kafka-python":
            _kafka_python(stop, servers.split(","), group, topic, notes)
        elif kind == "aiokafka":
            asyncio.run(_aiokafka(stop, servers, group, topic, notes))
        else:
            _librdkafka(stop, {"bootstrap.servers": servers, "group.id": group, **_LIBRDKAFKA[kind]}, topic, notes)


def _note(notes: TextIO, values: Iterable[bytes], commit: Callable[[], object]) -> None:
    """Note the values, then commit. A commit that is refused is no loss: the next owner reads the records again."""
    lines = [f"{value.decode()}\n" for value in values]
    if lines:
        notes.writelines(lines)
        try:
            commit()
        except (KafkaError, KafkaException) as error:
            sys.stderr.write(f"commit: {error!r}\n")


def _kafka_python(stop: _Stop, servers: list[str], group: str, topic: str, notes: TextIO) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **_CLASSIC,
    )
    while not stop.is_asked:
        found = consumer.poll(timeout_ms=200)
        _note(notes, (record.value for records in found.values() for record in records), consumer.commit)
    consumer.close()


async def _aiokafka(stop: _Stop, servers: str, group: str, topic: str, notes: TextIO) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **_CLASSIC,
    )
    await consumer.start()
    while not stop.is_asked:
        found = await consumer.getmany(timeout_ms=200)
        lines = [f"{record.value.decode()}\n" for records in found.values() for record in records]
        if lines:
            notes.writelines(lines)
            try:
                await consumer.commit()
            except AioKafkaError as error:
                sys.stderr.write(f"commit: {error!r}\n")
    await consumer.stop()


def _librdkafka(stop: _Stop, settings: dict[str, Any], topic: str, notes: TextIO) -> None:
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not stop.is_asked:
        messages = consumer.consume(100, 0.2)
        for each in messages:
            if each.error():
                sys.stderr.write(f"consume: {each.error()!r}\n")
        good = (each.value() for each in messages if not each.error())
        _note(notes, good, lambda: consumer.commit(asynchronous=False))
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
