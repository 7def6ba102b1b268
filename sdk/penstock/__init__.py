"""Penstock: a serverless message queue in your own AWS account.

    from penstock import Producer, Consumer

    with Producer() as producer:
        producer.send("orders", b"...", key=b"customer 7")

    with Consumer("orders", group_id="billing") as consumer:
        for record in consumer:
            ...

AsyncProducer, AsyncConsumer, AsyncTransformer and AsyncAdmin are the same for asyncio
(`pip install 'penstock[async]'`).

With no arguments the clients find the service by PENSTOCK_URL, or a local one started by `penstock local up`.
Credentials and region come from the usual AWS chain. penstock.testing is an in-memory service for tests.
"""

from penstock.admin import Admin
from penstock.async_admin import AsyncAdmin
from penstock.async_consumer import AsyncConsumer
from penstock.async_producer import AsyncProducer
from penstock.async_transaction import AsyncTransaction
from penstock.async_transformer import AsyncTransformer
from penstock.async_transport import AsyncTransport
from penstock.consumer import Consumer
from penstock.delivery import DeliveryCallback
from penstock.errors import (
    AccessDeniedError,
    BufferFullError,
    ClosedError,
    ConflictError,
    ConnectionFailedError,
    CorruptError,
    DeliveryTimeoutError,
    FencedError,
    GroupFullError,
    InstanceFencedError,
    InvalidError,
    LeaseHeldError,
    LeaseLostError,
    NoOffsetError,
    NotConfiguredError,
    NotFoundError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    ThrottledError,
    TopicExistsError,
    TransactionAbortedError,
    UnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from penstock.group_model import Group, GroupDescription, GroupMember, GroupPartition, ResetOffset
from penstock.listener import ConsumerRebalanceListener, RebalanceCallback
from penstock.model import (
    CommittedOffset,
    ConsumerRecord,
    OffsetAndTimestamp,
    PartitionOffsets,
    RecordMetadata,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.producer import Producer
from penstock.transaction import Transaction
from penstock.transformer import Transformer
from penstock.transport import HttpTransport, Response, Transport
from penstock_core.errors import PenstockError

__all__ = [
    "AccessDeniedError",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTransaction",
    "AsyncTransformer",
    "AsyncTransport",
    "BufferFullError",
    "ClosedError",
    "CommittedOffset",
    "ConflictError",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CorruptError",
    "DeliveryCallback",
    "DeliveryTimeoutError",
    "FencedError",
    "Group",
    "GroupDescription",
    "GroupFullError",
    "GroupMember",
    "GroupPartition",
    "HttpTransport",
    "InstanceFencedError",
    "InvalidError",
    "LeaseHeldError",
    "LeaseLostError",
    "NoOffsetError",
    "NotConfiguredError",
    "NotFoundError",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PartitionOffsets",
    "PenstockError",
    "Producer",
    "RebalanceCallback",
    "RecordMetadata",
    "RecordTooLargeError",
    "ResetOffset",
    "Response",
    "ThrottledError",
    "Topic",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "Transformer",
    "Transport",
    "UnavailableError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "Zone",
]
