"""Read what older generations of a topic hold back from an acquire by key (docs/protocol/partitions)."""

from collections.abc import Iterable
from itertools import takewhile

from penstock_core.backoff import look_again_ms
from penstock_core.ids import Partition
from penstock_core.limits import GROUP_CHECK_MS_MAX, GROUP_CHECK_MS_MIN, GROUP_PATIENCE
from penstock_core.log.topic import Topic
from penstock_core.share.held_back import NOTHING_HELD, HeldBack, held_back
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.share.share_partitions import SharePartition, states_of


class OlderGenerations:
    """Tells one look of an acquire what is held back. It reads each generation once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known: dict[tuple[str, int], HeldBack] = {}

    def held_from(self, partition: SharePartition) -> HeldBack:
        """The records that stay behind in the partition. Costs nothing for a partition of a topic's first generation.

        For others it costs one read of heads and one of states for each 100 older partitions, and one of the topic if
        the partition came after it was last read.
        """
        key = partition.key
        topic = self._topic(partition)
        if topic is None:
            return NOTHING_HELD
        begin = max(takewhile(key.partition.__ge__, topic.generations))
        if not begin:
            return NOTHING_HELD
        place = (key.topic_id, begin)
        if place not in self._known:
            self._known[place] = self._read(key._replace(partition=Partition(number)) for number in range(begin))
        return self._known[place]

    def again_ms(self, held: HeldBack) -> int:
        """The time after which the partition is worth a look. No wake-up tells of what older partitions finish."""
        waited_ms = self._instance.clock.now_ms() - held.closed_ms
        return look_again_ms(waited_ms, GROUP_CHECK_MS_MIN, GROUP_CHECK_MS_MAX, GROUP_PATIENCE)

    def _topic(self, partition: SharePartition) -> Topic | None:
        """The topic, as it is since it has that partition. None if it was deleted, or made anew since."""
        topics, key = self._instance.topic_cache, partition.key
        topic = topics.find(partition.topic)
        if topic is not None and key.partition >= topic.partitions:
            topics.forget(partition.topic)
            topic = topics.find(partition.topic)
        return topic if topic is not None and topic.topic_id == key.topic_id else None

    def _read(self, older: Iterable[ShareKey]) -> HeldBack:
        keys = [*older]
        heads = self._instance.stores.log.heads([key.partition_key for key in keys])
        states = states_of(self._instance, keys)
        return held_back((heads[key.partition_key], states.get(key)) for key in keys if key.partition_key in heads)
