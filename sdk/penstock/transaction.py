"""Transactions as users of the threaded producer see them; transaction_core.py decides."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from penstock.arguments import check, checked_name, checked_offsets
from penstock.delivery import Delivery, follow_up, tell
from penstock.model import TopicPartition
from penstock.producer_core import ProducerCore
from penstock.sender import Sender
from penstock.system import choose, wall_clock_ms
from penstock.transaction_core import GroupOffset, TransactionalState, TransactionCore
from penstock_core.ids import parse_group_name
from penstock_core.records import Headers


class HoldsLeases(Protocol):
    """A consumer that is a member of a group."""

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> Sequence[GroupOffset]:
        """The offsets, with what proves that this member owns their partitions."""


class Transaction:
    """What is sent and committed in it is visible at once at the end of its `with` block, or, if that raises, never.

        with producer.transaction() as transaction:
            transaction.send("ledger", b"...", key=b"account 7")
            transaction.send_offsets({TopicPartition("payments", 0): 42}, consumer)

    The futures of its records have their offsets when the block has ended. Leaving it raises what the commit was
    refused with: FencedError if another instance with the transactional id has begun or an offset's partition has
    another owner, InvalidError (TRANSACTION_TOO_LARGE). Not safe for several threads at once.
    """

    def __init__(self, core: ProducerCore, sender: Sender, state: TransactionalState) -> None:
        self._core = core
        self._sender = sender
        self._state = state
        self._transaction = TransactionCore(state, choose)

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As Producer.send, in the transaction. What fills a request is staged, which waits for the service."""
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ms()
        append = self._core.append_to(self._transaction, topic, value, key, headers, partition, timestamp_ms)
        with self._sender.lock:
            batch = self._sender.drive(append)
            return Delivery(batch, batch.record_count - 1, timestamp_ms)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str | HoldsLeases) -> None:
        """Commit a group's offsets (the next to read) with the transaction.

        `group` is the consumer that has read them, so that the commit counts only while it owns their partitions; or
        the name of a group without members.
        """
        entries = group_offsets(offsets, group)
        with self._sender.lock:
            self._transaction.add_offsets(entries)

    def __enter__(self) -> Self:
        with self._sender.lock:
            self._sender.drive(self._state.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._abort(error)
            return
        try:
            with self._sender.lock:
                finished = self._sender.drive(self._transaction.commit())
        except BaseException as failure:  # a KeyboardInterrupt too
            self._abort(failure)
            raise
        follow_up(finished)

    def _abort(self, cause: BaseException) -> None:
        with self._sender.lock:
            finished = self._transaction.abort(cause)
        tell(finished)


def group_offsets(offsets: Mapping[TopicPartition, int], group: str | HoldsLeases) -> Sequence[GroupOffset]:
    """What a transaction is to commit for a group, by its name or as the consumer that is its member."""
    if isinstance(group, str):
        name, checked = checked_name(parse_group_name, group), checked_offsets("offsets", offsets)
        return [GroupOffset(group=name, partition=each, offset=offset) for each, offset in checked.items()]
    check(hasattr(group, "group_offsets"), f"group={group!r:.100}: give the consumer, or the name of a group")
    return group.group_offsets(offsets)
