"""The hidden share group of a parallel subscription: which records are handed out, and which are done.

The group follows from the subscription alone, and has its id. So a delivery needs no read of it, and a deletion finds
it by the subscription's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock_core.groups.group import concurrent_update
from penstock_core.ids import GroupName, Offset, Partition, PartitionKey, ShareGroupId, SubscriptionId, TopicId
from penstock_core.limits import SHARE_BACKOFF_MS_MAX, SHARE_BACKOFF_MS_MIN, SHARE_BEGINS_MAX
from penstock_core.log.index import Head
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.subscription import Subscription, SubscriptionConfig, message_of
from penstock_core.share.acquire import next_available_ms
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig, hidden_name
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.push.lane_work import LaneWork
from penstock_service.share.share_partitions import succeeding

_PURPOSE = "push"


def parallel_group_name(subscription_id: SubscriptionId) -> GroupName:
    """The name of the subscription's share group, which no user can give."""
    return hidden_name(f"{_PURPOSE}.{subscription_id}")


def parallel_group(subscription: Subscription) -> ShareGroup:
    """The share group as the subscription's settings make it. The stored one may have another `version`."""
    return ShareGroup(
        name=parallel_group_name(subscription.subscription_id),
        share_group_id=ShareGroupId(subscription.subscription_id),
        created_at_ms=subscription.created_at_ms,
        topics=subscription.topics,
        config=_config(subscription.config),
        subscription=subscription.name,
    )


def lane_delivery_key(subscription_id: SubscriptionId, lane: int) -> DeliveryKey:
    """The key under which a lane of a parallel subscription keeps its failures and its next try."""
    return DeliveryKey(subscription_id=subscription_id, topic_id=TopicId(""), partition=Partition(lane))


def put_parallel_group(
    instance: Instance, subscription: Subscription, begins: Sequence[tuple[PartitionKey, Offset]]
) -> None:
    """Store the share group, before the subscription that it belongs to. A group that is the same already stays.

    `begins` are the places of partitions that do not begin with the log. A state that is there stays. One read, one
    conditional write, and one put for each place of a new group; later, one transaction for 99 of them. Raises
    CONCURRENT_UPDATE if somebody else changes the subscription meanwhile.
    """
    share = instance.stores.share
    wanted = parallel_group(subscription)
    states = {ShareKey(wanted.share_group_id, key.topic_id, key.partition): offset for key, offset in begins}
    stored = share.get_group(wanted.name)
    if stored is None:
        instance.executor.map(lambda state: share.create_state(*state), [*states.items()]).all_ok()
        share.change_group(None, wanted)
        return
    wanted = replace(succeeding(wanted, stored), version=stored.version)
    chosen = [*states.items()]
    for at in range(0, len(chosen), SHARE_BEGINS_MAX):  # one after the other: each transaction holds the group's item
        if not share.begin_states(wanted.name, dict(chosen[at : at + SHARE_BEGINS_MAX])):
            raise concurrent_update(f"subscription {subscription.name}")
    if wanted != stored:
        share.change_group(stored, replace(wanted, version=stored.version + 1))


def _config(config: SubscriptionConfig) -> ShareGroupConfig:
    return ShareGroupConfig(
        deliveries_max=config.attempts_max,
        retry_backoff_ms_min=_backoff_ms(config.backoff_ms_min),
        retry_backoff_ms_max=_backoff_ms(config.backoff_ms_max),
        dead_letter_topic=config.dead_letter_topic,
        filter=config.filter,
        start=config.start,
    )


def _backoff_ms(wanted_ms: int) -> int:
    """The pause within the bounds of share groups."""
    return min(max(wanted_ms, SHARE_BACKOFF_MS_MIN), SHARE_BACKOFF_MS_MAX)


def next_lane(work: LaneWork) -> int | None:
    """The lane after this one, None if there is no other."""
    lanes = work.subscription.config.concurrency
    return (work.number + 1) % lanes if lanes > 1 else None


def free_lane(work: LaneWork) -> int | None:
    """A lane that neither works nor rests after a failure, None if there is none. One query of all states."""
    now_ms, subscription = work.instance.clock.now_ms(), work.subscription
    states = work.instance.stores.push.states_of(subscription.subscription_id)
    lanes = subscription.config.concurrency
    for number in ((work.number + 1 + step) % lanes for step in range(lanes - 1)):
        lane = states.lanes.get(number)
        state = states.deliveries.get(lane_delivery_key(subscription.subscription_id, number))
        works = lane is not None and lane.locked_until_ms > now_ms
        if not works and (state is None or state.next_try_ms <= now_ms):
            return number
    return None


def start_lane(work: LaneWork, number: int, hint: PartitionKey | None) -> None:
    """Send a message for the lane. `hint` is a partition that its receiver may not know yet. One call of the queue."""
    work.instance.stores.deliveries.send([message_of(work.subscription, number, hint)])


def partition_with_records(
    work: LaneWork, group: ShareGroup, heads: Mapping[PartitionKey, Head]
) -> PartitionKey | None:
    """A partition that has records to deliver now, None if there is none. One read for each 100 partitions."""
    now_ms = work.instance.clock.now_ms()
    found = work.instance.stores.share.find_states([_share_key(group, key) for key in heads])
    for key, head in heads.items():
        state = found.get(_share_key(group, key))
        comes_back_now = state is not None and next_available_ms(state, group.config, now_ms) == 0
        if head.count_from(0 if state is None else state.position) or comes_back_now:
            return key
    return None


def _share_key(group: ShareGroup, key: PartitionKey) -> ShareKey:
    return ShareKey(group.share_group_id, key.topic_id, key.partition)
