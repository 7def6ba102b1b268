"""Open a generation: close all partitions of a topic, then let new ones take its records (docs/adr/0051).

```
 1  the topic, under its next layout: a generation is opening          alter_topic.py
 2  close each head of the newest generation, those of draining partitions too; create the coming heads  here
 3  the topic: the coming partitions take the records                  here
```
Each step may come twice, late, or from several callers. So an append that a closed head refuses ends what an operator
who died has begun. No append gets a place in the new generation before step 3, and none in the old one after step 2.
"""

from functools import partial

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import APPEND_MS_MAX, OPEN_ATTEMPTS_MAX
from penstock_core.log.topic import Topic
from penstock_service.index.settle_head import settle_heads
from penstock_service.instance.instance import Instance
from penstock_service.instance.moment import Moment


def open_generation(instance: Instance, topic: Topic) -> Topic:
    """The topic once its coming generation takes the records; `topic` itself if none is coming.

    One update for each head that closes, one put for each that comes, one update and one read of the topic. Raises
    UNKNOWN_TOPIC, and STORAGE_UNAVAILABLE if the caller was held up for so long that the topic may be gone: its heads
    must not come back. Raises CONCURRENT_UPDATE if other calls kept altering the topic meanwhile.
    """
    for _ in range(OPEN_ATTEMPTS_MAX):
        if topic.opening is None:
            return topic
        began = Moment.now(instance.clock)
        # Draining heads too: an earlier decrease may have died before it closed them.
        settle_heads(instance, topic, map(Partition, range(topic.first_writable, topic.partitions)))
        keys = [PartitionKey(topic.topic_id, each) for each in topic.coming_partitions()]
        # No delivery has been at the new partitions yet. So their heads begin with the push waiter of subscriptions.
        instance.executor.map(partial(_create_head, instance, began), keys).all_ok()
        try:
            instance.stores.topics.open_generation(topic)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            topic = instance.topic_cache.read_through(topic.name)  # its end has come, or retention took a partition
        else:
            return instance.topic_cache.read_through(topic.name)
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} is altered by other requests all the time: try again"
    )


def _create_head(instance: Instance, began: Moment, key: PartitionKey) -> None:
    if began.age_ms(instance.clock) > APPEND_MS_MAX:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE, f"opening {key} took more than {APPEND_MS_MAX // 1_000} s: try again"
        )
    instance.stores.log.create_head(key, True)
