"""The records that a transformer must hand over again, and the errors that another try may heal."""

import logging
from collections.abc import Iterable

from penstock.errors import FencedError, LeaseLostError, LockLostError, TopicReplacedError
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError

_log = logging.getLogger("penstock.transformer")


class UncommittedRecords:
    """The first offset, by partition, of the records that were handed to `transform` and may not count yet."""

    def __init__(self) -> None:
        self._begun: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._begun)

    def add(self, records: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
        """Note these records. Returns the offsets to commit with their effects."""
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._begun.setdefault(partition, record.offset)
            ends[partition] = record.offset + 1
        return ends

    def partitions_in(self, assignment: Iterable[TopicPartition]) -> set[TopicPartition]:
        """The partitions to go back in, of those that the consumer still has."""
        return set(assignment) & self._begun.keys()

    def restart_offset(self, partition: TopicPartition, committed: int | None) -> int:
        """The offset to go on at in one of them."""
        return self._begun[partition] if committed is None else committed

    def clear(self) -> None:
        """All of them count, or will be handed over again."""
        self._begun.clear()


def check_passing(error: PenstockError, records: int) -> None:
    """Raise the error of a transaction unless another try may do better; log that its records come again."""
    # After the loss of a lease or a lock another consumer has the records, and a topic that was made anew starts anew:
    # the next poll drops the records. After PARTITION_CLOSED the producer asks which partitions take records now.
    may_pass = isinstance(error, LeaseLostError | LockLostError | TopicReplacedError)
    may_pass |= error.code in (ErrorCode.LEASE_FENCED, ErrorCode.PARTITION_CLOSED)
    if not may_pass and (isinstance(error, FencedError) or not error.code.is_retriable):
        raise error
    _log.warning("%d records will be transformed again: %s", records, error)
