"""Topics by name, remembered between requests, so that a warm append or fetch reads no topic.

What is remembered may be up to `TTL_MS` old. That is safe: an append to a deleted topic is refused by its missing
head, and a partition that is not in the remembered count is looked up again before it is called unknown.
"""

from penstock_broker.ports import Clock, TopicStore
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicName, parse_topic_name
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic

TTL_MS = 10_000
_REMEMBERED_MAX = 10_000


class TopicDirectory:
    """A cache over a TopicStore. One instance per function instance."""

    def __init__(self, topics: TopicStore, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._remembered: dict[TopicName, tuple[float, Topic]] = {}

    def find(self, name: str) -> Topic:
        """Raises INVALID_NAME or UNKNOWN_TOPIC."""
        remembered = self._remembered.get(TopicName(name))
        if remembered is not None and self._clock.monotonic_ms() - remembered[0] < TTL_MS:
            return remembered[1]
        return self.look_up(name)

    def look_up(self, name: str) -> Topic:
        """`find`, past what is remembered."""
        topic_name = parse_topic_name(name)
        topic = self._topics.get(topic_name)
        if topic is None:
            self._remembered.pop(topic_name, None)
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {name!r} does not exist: create it first")
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[topic_name] = (self._clock.monotonic_ms(), topic)
        return topic

    def find_partition(self, name: str, partition: int) -> tuple[Topic, PartitionKey]:
        """Raises INVALID_NAME, UNKNOWN_TOPIC or UNKNOWN_PARTITION."""
        topic = self.find(name)
        if partition >= topic.partitions:
            topic = self.look_up(name)
        if not 0 <= partition < topic.partitions:
            raise PenstockError(
                ErrorCode.UNKNOWN_PARTITION,
                f"partition {partition} of topic {name!r} does not exist: it has 0 to {topic.partitions - 1}",
            )
        return topic, PartitionKey(topic.topic_id, Partition(partition))

    def forget(self, name: str) -> None:
        self._remembered.pop(TopicName(name), None)
