"""What a consumer of topics reads, as the service knows it: which partitions there are, and where to start in them."""

from collections.abc import Collection

from penstock.client import Client
from penstock.errors import UnavailableError
from penstock.fetch_buffer import FetchBuffer, OffsetReset
from penstock.fetcher import Fetcher
from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock.start_offsets import find_start_offsets


class Assignment:
    """Keeps a buffer's partitions those of the topics; without topics it only finds starts."""

    def __init__(
        self,
        client: Client,
        buffer: FetchBuffer,
        fetcher: Fetcher,
        *,
        topics: Collection[str],
        group_id: str | None,
        offset_reset: OffsetReset,
        refresh_ms: int,
    ) -> None:
        self._client = client
        self._buffer = buffer
        self._fetcher = fetcher
        self._topics = topics
        self._group_id = group_id
        self._offset_reset: OffsetReset = offset_reset
        self._refresh_ms = refresh_ms
        self._appeared: set[TopicPartition] = set()
        self.refresh_due_ms = 0 if topics else NEVER_MS

    def refresh(self, now_ms: int) -> None:
        """Look for new partitions, if it is time: one call per topic.

        What is known stays when the service is not available. Raises UnknownTopicError, and UnavailableError the
        first time.
        """
        if now_ms < self.refresh_due_ms:
            return
        known = set(self._buffer.assignment())
        try:
            counts = {topic: self._client.topic_metadata(topic).partitions for topic in self._topics}
        except UnavailableError:
            if not known:
                raise
            counts = {}
        self.refresh_due_ms = now_ms + self._refresh_ms
        found = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
        if found - known:
            self._appeared |= found - known if known else set()
            with self._fetcher.lock:
                self._buffer.assign(sorted(found | known))
                self._fetcher.wake()

    def find_starts(self) -> None:
        """Give every partition a position, if some have none. Raises NoOffsetError."""
        missing = self._buffer.without_position()
        if not missing:
            return
        starts = find_start_offsets(
            self._client,
            missing,
            group_id=self._group_id,
            offset_reset=self._offset_reset,
            appeared=self._appeared,
        )
        with self._fetcher.lock:
            for partition, offset in starts.items():
                self._buffer.seek(partition, offset)
            self._fetcher.wake()
