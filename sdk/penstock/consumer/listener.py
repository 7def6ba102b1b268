"""The callbacks by which a consumer tells the application of rebalances: on_assigned, on_revoked and on_lost."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from penstock.arguments import check
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Wait
from penstock.model import TopicPartition

# An AsyncConsumer awaits the result if it can be awaited. Every other result is ignored.
RebalanceCallback = Callable[[list[TopicPartition]], object]


class ConsumerRebalanceListener:
    """For `subscribe`: the consumer calls these methods in place of on_assigned, on_revoked and on_lost.

    With AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> object:  # noqa: ARG002 - for subclasses
        """The consumer reads these partitions from now on."""
        return None

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> object:  # noqa: ARG002 - for subclasses
        """Other members have these partitions after this call.

        The consumer has committed all that it returned of them; you may commit more.
        """
        return None

    def on_partitions_lost(self, lost: list[TopicPartition]) -> object:
        """Other members may have had these partitions for a while.

        By default this does as `on_partitions_revoked` does.
        """
        return self.on_partitions_revoked(lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCallbacks:
    """The callbacks of one consumer.

    `assigned` is called before the consumer returns a record of the partitions. `revoked` is called after the last
    commit, and other members have the partitions after it; it may commit more. `lost` is called when other members may
    have had the partitions for a while; nothing can be committed.
    """

    assigned: RebalanceCallback | None = None
    revoked: RebalanceCallback | None = None
    lost: RebalanceCallback | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An effect: the driver calls the callback, without the lock, so that the callback may call the consumer."""

    callback: RebalanceCallback
    partitions: list[TopicPartition]


def listener_of(given: ConsumerRebalanceListener | None) -> RebalanceCallbacks | None:
    """The listener's methods as callbacks. Raises InvalidError for an object of another kind."""
    if given is None:
        return None
    check(
        isinstance(given, ConsumerRebalanceListener),
        f"listener={given!r:.100}: give an object of a class that extends penstock.ConsumerRebalanceListener, or None",
    )
    return RebalanceCallbacks(
        assigned=given.on_partitions_assigned, revoked=given.on_partitions_revoked, lost=given.on_partitions_lost
    )


ConsumerSteps = Generator[HttpRequest | Wait | Notice, Document, Result]
