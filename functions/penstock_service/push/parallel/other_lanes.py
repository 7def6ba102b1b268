"""Other lanes of a parallel subscription: each may take the records of all partitions, so one can go on for another."""

from collections.abc import Mapping

from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head
from penstock_core.push.message import PushMessage
from penstock_core.share.acquire import next_available_ms
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey
from penstock_service.push.lane_work import LaneWork
from penstock_service.push.parallel.parallel_group import lane_delivery_key


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
    message = PushMessage(
        name=work.subscription.name,
        subscription_id=work.subscription.subscription_id,
        lane=number,
        version=work.subscription.version,
        partition=hint,
    )
    work.instance.stores.deliveries.send([message])


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
