"""Telling the application of rebalances: what consumers take as on_assigned, on_revoked and on_lost."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from penstock.http_message import Document, Request
from penstock.model import TopicPartition
from penstock.steps import Result, Wait

# What it returns is awaited by an AsyncConsumer, if it can be, and otherwise ignored.
RebalanceCallback = Callable[[list[TopicPartition]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """`assigned`: before a record of them is handed out. `revoked`: all that was handed out of them is committed, and
    more may be; others have them after it. `lost`: others may have had them for a while; nothing can be committed."""

    assigned: RebalanceCallback | None = None
    revoked: RebalanceCallback | None = None
    lost: RebalanceCallback | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An effect: the callback is called, without the lock, so that it may call the consumer."""

    callback: RebalanceCallback
    partitions: list[TopicPartition]


ConsumerSteps = Generator[Request | Wait | Notice, Document, Result]
