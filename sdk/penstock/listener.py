"""Telling the application of rebalances: what consumers take as on_assigned, on_revoked and on_lost."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from penstock.arguments import check
from penstock.http_message import Document, Request
from penstock.model import TopicPartition
from penstock.steps import Result, Wait

# What it returns is awaited by an AsyncConsumer, if it can be, and otherwise ignored.
RebalanceCallback = Callable[[list[TopicPartition]], object]


class ConsumerRebalanceListener:
    """What `subscribe` takes: an object whose methods are called as on_assigned, on_revoked and on_lost are. With
    AsyncConsumer they may be coroutine functions."""

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> object:  # noqa: ARG002 - for others to use
        """They are read from now on."""
        return None

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> object:  # noqa: ARG002 - for others to use
        """Others have them after this; what was handed out of them is committed, and more may be."""
        return None

    def on_partitions_lost(self, lost: list[TopicPartition]) -> object:
        """Others may have had them for a while. By itself it does what is done with those that are revoked."""
        return self.on_partitions_revoked(lost)


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


def listener_of(given: ConsumerRebalanceListener | None) -> Listener | None:
    """Its methods as callbacks. Raises InvalidError for an object of another kind."""
    if given is None:
        return None
    check(
        isinstance(given, ConsumerRebalanceListener),
        f"listener={given!r:.100}: give an object of a class that extends penstock.ConsumerRebalanceListener, or None",
    )
    return Listener(
        assigned=given.on_partitions_assigned, revoked=given.on_partitions_revoked, lost=given.on_partitions_lost
    )


ConsumerSteps = Generator[Request | Wait | Notice, Document, Result]
