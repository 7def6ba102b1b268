"""The bytes that classic consumers put into JoinGroup and read from SyncGroup: kio's schemas behind a version.

Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json.
"""

import importlib
import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.serial import entity_reader, entity_writer

from penstock.model import TopicPartition
from penstock_kafka.dispatch.messages import entity_of

_VERSION = struct.Struct(">h")
_SUBSCRIPTION_VERSION_MAX = 3
_SUBSCRIPTIONS = [
    entity_reader(
        importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}").ConsumerProtocolSubscription
    )
    for version in range(_SUBSCRIPTION_VERSION_MAX + 1)
]
_read_assignment: Any = entity_reader(ConsumerProtocolAssignment)
_write_assignment: Any = entity_writer(ConsumerProtocolAssignment)
_write_subscription: Any = entity_writer(ConsumerProtocolSubscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSubscription:
    """The topics that a client wants, and the partitions that it keeps while it joins again."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition]


def read_subscription(data: bytes) -> ClassicSubscription:
    """A client's subscription, of any version. Raises ValueError for other bytes.

    A version that Kafka adds begins with the fields of the last one that is known here.
    """
    if len(data) < _VERSION.size:
        raise ValueError(f"a subscription of {len(data)} bytes has no version")
    [version] = _VERSION.unpack_from(data)
    if version < 0:
        raise ValueError(f"a subscription of version {version}")
    read: Any = _SUBSCRIPTIONS[min(version, _SUBSCRIPTION_VERSION_MAX)]
    try:
        found, _ = read(data, _VERSION.size)
    except Exception as error:  # kio's edge: it raises whatever a wrong byte makes of it
        raise ValueError(f"a subscription of version {version} cannot be read: {error!r:.200}") from error
    owned = (
        TopicPartition(str(each.topic), int(number))
        for each in getattr(found, "owned_partitions", ())
        for number in each.partitions
    )
    return ClassicSubscription(topics=tuple(map(str, found.topics)), owned=frozenset(owned))


def write_subscription(topics: Iterable[str]) -> bytes:
    """A subscription of version 0, as DescribeGroups shows it."""
    return _written(_write_subscription, entity_of(ConsumerProtocolSubscription, {"topics": [*topics]}))


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """An assignment of version 0, which every client reads."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    assigned = [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
    return _written(_write_assignment, entity_of(ConsumerProtocolAssignment, {"assigned_partitions": assigned}))


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The inverse of `write_assignment`."""
    found, _ = _read_assignment(data, _VERSION.size)
    return frozenset(
        TopicPartition(str(each.topic), int(number)) for each in found.assigned_partitions for number in each.partitions
    )


def _written(write: Any, entity: object) -> bytes:
    buffer = io.BytesIO(_VERSION.pack(0))
    buffer.seek(_VERSION.size)
    write(buffer, entity)
    return buffer.getvalue()
