"""Offsets that a member has passed without a record: filtered out, or removed by compaction.

A group reads the next generation of partitions once its commits reach the ends of the ones before
(docs/protocol/partitions). The last offsets of a partition may have no record for the group. Then no commit of a record
reaches the end, so the consumer commits its position by itself. That is safe once all that it has returned is
committed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.record_run import RecordRun
from penstock.model import TopicPartition
from penstock_core.limits import SDK_PASSED_COMMIT_MS


class PassedOffsets:
    """The positions to commit although no record was returned before them. It looks each `SDK_PASSED_COMMIT_MS`."""

    def __init__(self, buffer: FetchBuffer, run: RecordRun, now_ms: Callable[[], int]) -> None:
        self._buffer = buffer
        self._run = run
        self._now_ms = now_ms
        self._settled: dict[TopicPartition, int] = {}
        self.due_ms = now_ms() + SDK_PASSED_COMMIT_MS

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these offsets: a transaction has committed them, or the service has told them."""
        for partition, offset in offsets.items():
            self._settled[partition] = max(offset, self._settled.get(partition, 0))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Other consumers may commit for these from now on."""
        for partition in partitions:
            self._settled.pop(partition, None)

    def take(
        self, owned: Collection[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offsets to commit now. The next look comes later."""
        self.due_ms = self._now_ms() + SDK_PASSED_COMMIT_MS
        found: dict[TopicPartition, int] = {}
        for partition, position in self._buffer.positions().items():
            cursor = self._buffer.cursor(partition)
            if partition not in owned or partition == self._run.partition or position <= cursor.returned_end:
                continue
            known = max(committed.get(partition, -1), self._settled.get(partition, -1))
            if position > known and (known >= cursor.returned_end or not cursor.has_returned):
                found[partition] = position
        return found
