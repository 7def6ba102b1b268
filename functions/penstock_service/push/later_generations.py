"""Find the partitions that an ordered subscription must not begin before older ones (docs/protocol/partitions).

A partition that was begun goes on: its subscription had delivered all older ones then, and its offsets never go back.
"""

from collections.abc import Mapping

from penstock_core.backoff import look_again_ms
from penstock_core.groups.topic_reach import TopicReach, topic_reach
from penstock_core.ids import Partition, PartitionKey, SubscriptionId
from penstock_core.limits import GROUP_CHECK_MS_MAX, GROUP_CHECK_MS_MIN, GROUP_PATIENCE
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.delivery_key import DeliveryKey
from penstock_service.instance.instance import Instance
from penstock_service.push.lane_work import LaneWork


def later_generations(
    work: LaneWork, heads: Mapping[PartitionKey, Head], states: Mapping[DeliveryKey, DeliveryState | None]
) -> Mapping[DeliveryKey, int]:
    """The partitions of the lane that wait for older ones, each with the time of the next look.

    Costs nothing unless the lane has a partition with records, of a later generation, that it has not begun. Then it
    costs a read of the topic if it is not remembered, and reads of heads and states of all older partitions: one each
    for 100 of them.
    """
    reaches: dict[str, TopicReach] = {}
    found: dict[DeliveryKey, int] = {}
    for name, key in work.partitions:
        head, state = heads.get(key.partition_key), states[key]
        if head is None or not head.next_offset or (state is not None and state.offset):
            continue
        topic = work.instance.topic_cache.find(name)
        if topic is None or topic.topic_id != key.topic_id or len(topic.generations) == 1:
            continue
        if name not in reaches:
            reaches[name] = _reach(work.instance, key.subscription_id, topic)
        if key.partition >= reaches[name].end:
            now_ms = work.instance.clock.now_ms()
            waited_ms = now_ms - reaches[name].closed_ms
            found[key] = now_ms + look_again_ms(waited_ms, GROUP_CHECK_MS_MIN, GROUP_CHECK_MS_MAX, GROUP_PATIENCE)
    return found


def _reach(instance: Instance, subscription_id: SubscriptionId, topic: Topic) -> TopicReach:
    keys = [
        DeliveryKey(subscription_id=subscription_id, topic_id=topic.topic_id, partition=Partition(number))
        for number in range(topic.first_writable)
    ]
    heads = instance.stores.log.heads([key.partition_key for key in keys])
    states = instance.stores.push.find_deliveries(keys)
    unread = {
        key.partition: head
        for key in keys
        if (head := heads.get(key.partition_key)) is not None and not _is_delivered(head, states.get(key))
    }
    reach = topic_reach(topic, unread, ())
    closed_ms = 0 if reach.holder is None else unread[Partition(reach.holder)].closed_ms
    return TopicReach(start=reach.start, end=reach.end, holder=reach.holder, closed_ms=closed_ms or 0)


def _is_delivered(head: Head, state: DeliveryState | None) -> bool:
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return head.next_record(0 if state is None else state.offset) >= end
