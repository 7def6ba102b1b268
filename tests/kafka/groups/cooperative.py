"""The bytes of a cooperative consumer, which names the partitions that it keeps."""

import io
from collections.abc import Iterable
from typing import Any

from kio.schema.consumer_protocol_subscription.v1 import ConsumerProtocolSubscription
from kio.serial import entity_writer

from penstock.model import TopicPartition
from penstock_kafka.dispatch.messages import entity_of


def cooperative(owned: Iterable[TopicPartition]) -> dict[str, Any]:
    """The protocols of a JoinGroup for `orders`."""
    numbers = sorted(each.partition for each in owned)
    kept = [{"topic": "orders", "partitions": numbers}] if numbers else []
    buffer = io.BytesIO()
    buffer.write(b"\x00\x01")
    entity_writer(ConsumerProtocolSubscription)(
        buffer, entity_of(ConsumerProtocolSubscription, {"topics": ["orders"], "owned_partitions": kept})
    )
    return {"protocols": [{"name": "cooperative-sticky", "metadata": buffer.getvalue()}]}
