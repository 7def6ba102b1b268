"""What a consumer of topics reads, as the service knows it: which partitions there are, and where to start in them."""

from collections.abc import Callable, Collection

from penstock import calls
from penstock.errors import UnavailableError
from penstock.fetch_buffer import FetchBuffer, OffsetReset
from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock.start_offsets import find_start_offsets
from penstock.steps import Calls


class Assignment:
    """Keeps a buffer's partitions those of the topics; without topics it only finds starts: with `is_group_start` what
    the group has committed, if there is a group, else what `offset_reset` says."""

    def __init__(
        self,
        buffer: FetchBuffer,
        *,
        group_id: str | None,
        offset_reset: OffsetReset,
        refresh_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._buffer = buffer
        self.is_group_start = True
        self._topics: Collection[str] = ()
        self._group_id = group_id
        self._offset_reset: OffsetReset = offset_reset
        self._refresh_ms = refresh_ms
        self._now_ms = now_ms
        self._appeared: set[TopicPartition] = set()
        self.refresh_due_ms = NEVER_MS

    def keep_to(self, topics: Collection[str]) -> None:
        """Look for the partitions of these topics from now on. Those of others are in the buffer no more."""
        self._topics = topics
        self._appeared.clear()
        self.refresh_due_ms = 0 if topics else NEVER_MS

    def refresh(self) -> Calls[None]:
        """Look for new partitions, if it is time: one call per topic.

        What is known stays when the service is not available. Raises UnknownTopicError, and UnavailableError while
        there is a topic of which no partition is known.
        """
        now_ms = self._now_ms()
        if now_ms < self.refresh_due_ms:
            return
        counts: dict[str, int] = {}
        try:
            for topic in self._topics:
                counts[topic] = (yield from calls.topic_metadata(topic)).partitions
        except UnavailableError:
            if set(self._topics) - {each.topic for each in self._buffer.assignment()}:
                raise
        self.refresh_due_ms = now_ms + self._refresh_ms
        known = set(self._buffer.assignment())
        found = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
        if found - known:
            topics = {each.topic for each in known}
            self._appeared |= {each for each in found - known if each.topic in topics}
            self._buffer.assign(sorted(found | known))

    def find_starts(self) -> Calls[bool]:
        """Give every partition a position; whether some had none. Raises NoOffsetError."""
        missing = self._buffer.without_position()
        if not missing:
            return False
        starts = yield from find_start_offsets(
            missing,
            group_id=self._group_id if self.is_group_start else None,
            offset_reset=self._offset_reset,
            appeared=self._appeared,
        )
        unknown = set(self._buffer.without_position())  # meanwhile another may have sought, or assigned others
        for partition, offset in starts.items():
            if partition in unknown:
                self._buffer.seek(partition, offset)
        return True
