"""Penstock: a serverless message queue in your own AWS account.

    from penstock import Producer, Consumer

    with Producer() as producer:
        producer.send("orders", b"...", key=b"customer 7")

    with Consumer("orders", group_id="billing") as consumer:
        for record in consumer:
            ...

    with ShareConsumer("orders", group_id="workers") as consumer:  # a work queue on the same topic
        for record in consumer:
            ...

AsyncProducer, AsyncConsumer, AsyncShareConsumer, AsyncTransformer and AsyncAdmin are the same for asyncio (`pip
install 'penstock[async]'`).

Without arguments the clients find the service by PENSTOCK_URL, or the local one that `penstock dev` or `penstock local
up` started.
Credentials and region come from the usual AWS chain.

Public are this package, `penstock.errors`, `penstock.model`, `penstock.encryption`, `penstock.schemas`,
`penstock.testing` (an in-memory service for tests), `penstock.pytest_plugin` (its fixture), `penstock.webhook` (for
endpoints that receive deliveries), `penstock.tracing` (spans of OpenTelemetry around them) and `penstock.cli`.
All other modules are private: they may change in any release.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.admin.admin import Admin
    from penstock.admin.async_admin import AsyncAdmin
    from penstock.consumer.async_consumer import AsyncConsumer
    from penstock.consumer.consumer import Consumer
    from penstock.consumer.listener import ConsumerRebalanceListener, RebalanceCallback
    from penstock.dead_letters.async_dead_letters import AsyncDeadLetters
    from penstock.dead_letters.dead_letters import DeadLetters
    from penstock.errors import (
        AccessDeniedError,
        BufferFullError,
        ClosedError,
        ConflictError,
        ConnectionFailedError,
        CorruptError,
        DeliveryTimeoutError,
        FencedError,
        ForkedError,
        GroupFullError,
        InstanceFencedError,
        InvalidError,
        LeaseHeldError,
        LeaseLostError,
        LockLostError,
        NoOffsetError,
        NotConfiguredError,
        NotFoundError,
        OffsetOutOfRangeError,
        RecordTooLargeError,
        ThrottledError,
        TopicExistsError,
        TopicReplacedError,
        TransactionAbortedError,
        UnavailableError,
        UnknownPartitionError,
        UnknownTopicError,
    )
    from penstock.http.async_transport import AsyncTransport, async_token_transport
    from penstock.http.http_message import Response
    from penstock.http.named_transport import TransportName
    from penstock.http.transport import HttpTransport, Transport, token_transport
    from penstock.model import (
        CommittedOffset,
        ConsumerRecord,
        OffsetAndTimestamp,
        PartitionOffsets,
        RecordMetadata,
        ScheduledRecords,
        Topic,
        TopicDescription,
        TopicPartition,
        UndecodableBatch,
        Zone,
    )
    from penstock.model.access import AccessChange, AccessDecision, AccessRule, Quota
    from penstock.model.groups import Group, GroupDescription, GroupMember, GroupPartition, ResetOffset
    from penstock.model.heat import HotPartition, TopicHeat
    from penstock.model.push import (
        Subscription,
        SubscriptionDescription,
        SubscriptionLanes,
        SubscriptionPartition,
    )
    from penstock.model.schedules import Schedule
    from penstock.model.share import (
        DeadLetterCounts,
        PartitionLetters,
        Redrive,
        Reject,
        Release,
        ShareGroup,
        ShareGroupDescription,
        ShareGroupPartition,
        ShareHolder,
        ShareRecord,
    )
    from penstock.producer.async_producer import AsyncProducer
    from penstock.producer.async_transaction import AsyncTransaction
    from penstock.producer.delivery import Delivery, DeliveryCallback
    from penstock.producer.producer import Producer
    from penstock.producer.transaction import Transaction
    from penstock.share.async_share_consumer import AsyncShareConsumer
    from penstock.share.share_consumer import ShareConsumer
    from penstock.transformer.async_transformer import AsyncTransformer
    from penstock.transformer.transformer import Transformer
    from penstock_core.errors import PenstockError

__all__ = [
    "AccessChange",
    "AccessDecision",
    "AccessDeniedError",
    "AccessRule",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncProducer",
    "AsyncShareConsumer",
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
    "DeadLetterCounts",
    "DeadLetters",
    "Delivery",
    "DeliveryCallback",
    "DeliveryTimeoutError",
    "FencedError",
    "ForkedError",
    "Group",
    "GroupDescription",
    "GroupFullError",
    "GroupMember",
    "GroupPartition",
    "HotPartition",
    "HttpTransport",
    "InstanceFencedError",
    "InvalidError",
    "LeaseHeldError",
    "LeaseLostError",
    "LockLostError",
    "NoOffsetError",
    "NotConfiguredError",
    "NotFoundError",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PartitionLetters",
    "PartitionOffsets",
    "PenstockError",
    "Producer",
    "Quota",
    "RebalanceCallback",
    "RecordMetadata",
    "RecordTooLargeError",
    "Redrive",
    "Reject",
    "Release",
    "ResetOffset",
    "Response",
    "Schedule",
    "ScheduledRecords",
    "ShareConsumer",
    "ShareGroup",
    "ShareGroupDescription",
    "ShareGroupPartition",
    "ShareHolder",
    "ShareRecord",
    "Subscription",
    "SubscriptionDescription",
    "SubscriptionLanes",
    "SubscriptionPartition",
    "ThrottledError",
    "Topic",
    "TopicDescription",
    "TopicExistsError",
    "TopicHeat",
    "TopicPartition",
    "TopicReplacedError",
    "Transaction",
    "TransactionAbortedError",
    "Transformer",
    "Transport",
    "TransportName",
    "UnavailableError",
    "UndecodableBatch",
    "UnknownPartitionError",
    "UnknownTopicError",
    "Zone",
    "async_token_transport",
    "token_transport",
]

# The module of each name. It is imported at the first use of the name: a producer does not pay for the consumers.
_NAMES_OF = {
    "penstock.model.access": "AccessChange AccessDecision AccessRule Quota",
    "penstock.admin.admin": "Admin",
    "penstock.admin.async_admin": "AsyncAdmin",
    "penstock.consumer.async_consumer": "AsyncConsumer",
    "penstock.consumer.consumer": "Consumer",
    "penstock.consumer.listener": "ConsumerRebalanceListener RebalanceCallback",
    "penstock.dead_letters.async_dead_letters": "AsyncDeadLetters",
    "penstock.dead_letters.dead_letters": "DeadLetters",
    "penstock.errors": (
        "AccessDeniedError BufferFullError ClosedError ConflictError ConnectionFailedError CorruptError "
        "DeliveryTimeoutError FencedError ForkedError GroupFullError InstanceFencedError InvalidError "
        "LeaseHeldError LeaseLostError LockLostError NoOffsetError NotConfiguredError NotFoundError "
        "OffsetOutOfRangeError RecordTooLargeError ThrottledError TopicExistsError TopicReplacedError "
        "TransactionAbortedError UnavailableError UnknownPartitionError UnknownTopicError "
    ),
    "penstock.model.groups": "Group GroupDescription GroupMember GroupPartition ResetOffset",
    "penstock.model.heat": "HotPartition TopicHeat",
    "penstock.http.async_transport": "AsyncTransport async_token_transport",
    "penstock.http.http_message": "Response",
    "penstock.http.named_transport": "TransportName",
    "penstock.http.transport": "HttpTransport Transport token_transport",
    "penstock.model": (
        "CommittedOffset ConsumerRecord OffsetAndTimestamp PartitionOffsets RecordMetadata ScheduledRecords "
        "Topic TopicDescription TopicPartition UndecodableBatch Zone "
    ),
    "penstock.producer.async_producer": "AsyncProducer",
    "penstock.producer.async_transaction": "AsyncTransaction",
    "penstock.producer.delivery": "Delivery DeliveryCallback",
    "penstock.producer.producer": "Producer",
    "penstock.producer.transaction": "Transaction",
    "penstock.share.async_share_consumer": "AsyncShareConsumer",
    "penstock.share.share_consumer": "ShareConsumer",
    "penstock.model.share": (
        "DeadLetterCounts PartitionLetters Redrive Reject Release ShareGroup ShareGroupDescription ShareGroupPartition "
        "ShareHolder ShareRecord "
    ),
    "penstock.model.schedules": "Schedule",
    "penstock.model.push": "Subscription SubscriptionDescription SubscriptionLanes SubscriptionPartition",
    "penstock.transformer.async_transformer": "AsyncTransformer",
    "penstock.transformer.transformer": "Transformer",
    "penstock_core.errors": "PenstockError",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        if name in ("errors", "model"):  # public modules
            return importlib.import_module(f"penstock.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
