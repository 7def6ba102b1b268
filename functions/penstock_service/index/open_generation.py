"""Open a generation: close all partitions of a topic, then let new ones take its records (docs/protocol/partitions).

```
 1  the topic, under its next layout: a generation is opening          alter_topic.py
 2  close each head of the newest generation, those of draining partitions too; create the coming heads  here
 3  the topic: the coming partitions take the records                  here
```
Each step may come twice, late, or from several callers. So an append that a closed head refuses ends what an operator
who died has begun. No append gets a place in the new generation before step 3, and none in the old one after step 2.
"""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.limits import OPEN_ATTEMPTS_MAX
from penstock_core.log.topic import Topic
from penstock_service.index.create_heads import create_heads
from penstock_service.index.settle_head import settle_heads
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


def open_generation(instance: Instance, name: str) -> Topic:
    """The topic as it is now, once its coming generation takes the records. It is read here, past the cache.

    One read. If a generation is coming: one update for each head that closes, one put for each that comes, one update
    and one read of the topic. Raises UNKNOWN_TOPIC, and STORAGE_UNAVAILABLE if the caller was held up for so long that
    the topic may be gone: its heads must not come back. Raises CONCURRENT_UPDATE if other calls kept altering the topic
    meanwhile.
    """
    for _ in range(OPEN_ATTEMPTS_MAX):
        window = UpdateWindow.open(instance.clock)
        topic = instance.topic_cache.read_through(name)
        if topic.opening is None:
            return topic
        # Draining heads too: an earlier decrease may have died before it closed them.
        settle_heads(instance, topic, map(Partition, range(topic.first_writable, topic.partitions)))
        # No delivery has been at the new partitions yet. So their heads begin with the push waiter of subscriptions.
        create_heads(instance, window, topic, topic.coming_partitions(), has_push_waiter=True)
        try:
            instance.stores.topics.open_generation(topic)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            continue  # its end has come, or retention took a partition
        return instance.topic_cache.read_through(name)
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by other requests all the time: try again"
    )
