"""List subscriptions, and describe one: how far each partition is, and what happened to its last delivery."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock_core.ids import Offset, TopicName
from penstock_core.limits import HEADS_AT_ONCE, PUSH_LIST_MAX
from penstock_core.pages import show_all, shown_page
from penstock_core.push.attempt import patience_ends_ms
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import LaneState, lane_of
from penstock_core.push.subscription import PARALLEL, Subscription, SubscriptionConfig
from penstock_core.share.share_state import ShareKey
from penstock_service.index.reader import record_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.push.parallel.parallel_group import lane_delivery_key, parallel_group
from penstock_service.push.subscriptions import find_subscription, partitions_of
from penstock_service.share.admin.describe_share_group import describe_partitions


class LastResult(StrEnum):
    """The result of the last delivery."""

    NONE = "none"
    """Nothing was delivered yet."""
    OK = "ok"
    FAILING = "failing"
    """The target refuses records, or it is broken."""
    AWAY = "away"
    """The target is throttled, denied, missing or out of reach. No attempt counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """The report of a state. Times are milliseconds since 1970, None for none.

    `failing_since_ms` is the first failure of the records that fail now, and `attempts` counts the attempts at them.
    Nothing is tried before `next_try_ms`. `patience_until_ms` is there while the records had their attempts, and wait
    for a success of another delivery: without one they go on at that time.
    """

    result: LastResult
    error: str
    attempts: int
    failing_since_ms: int | None
    succeeded_ms: int | None
    next_try_ms: int | None
    patience_until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPlace:
    """The target has answered for all records below `offset`, and not for the `lag` records from there on.

    A filter may pass over some of these. `oldest_age_ms` is the age of the record at `offset`, None if there is none.
    `expired` records were passed over because their time was over.
    """

    offset: Offset
    lag: int
    oldest_age_ms: int | None
    expired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPartition:
    """One partition. In parallel mode, `report` is that of its lane: each delivery has records of many partitions.

    `dead_lettered` counts the records that went from there to the dead-letter topic; None in parallel mode.
    """

    topic: TopicName
    key: DeliveryKey
    lane: int
    place: DeliveryPlace
    report: DeliveryReport
    dead_lettered: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCounts:
    """The number of lanes with a delivery that works now, and of lanes that rest until a time.

    `deaths` counts the deliveries that ended in the middle, in lanes that have not got over it.
    """

    working: int
    resting: int
    deaths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPage:
    """A subscription with some of its partitions. `next_after` is the `after` of the next page, or None."""

    subscription: Subscription
    lanes: LaneCounts
    dead_lettered: int | None
    partitions: Sequence[SubscriptionPartition]
    next_after: str | None


def list_subscriptions(
    instance: Instance, limit: int, after: str, is_shown: Callable[[str], bool] = show_all
) -> tuple[Sequence[Subscription], str | None]:
    """Up to `limit` subscriptions whose names sort after `after`, and the `after` of the next page, or None.

    Leaves out those that are not shown. One query for each MB that it passes, and one that finds the end.
    """

    def read(place: str) -> tuple[Sequence[Subscription], str | None]:
        found = instance.stores.push.list_subscriptions(place, PUSH_LIST_MAX)
        return found, found[-1].name if found else None

    return shown_page(read, after, limit, lambda each: is_shown(each.name), lambda each: each.name)


def describe_subscription(instance: Instance, name: str, after: str, limit: int) -> SubscriptionPage:
    """The subscription, and up to `limit` of its partitions behind `after`.

    One read of the subscription, one of each topic that is not remembered, one query for each MB of its states, and a
    read of heads for each 100 partitions. One query more for each partition whose oldest record is not in the tail.
    Raises INVALID_NAME and UNKNOWN_SUBSCRIPTION.
    """
    subscription = find_subscription(instance, name)
    partitions = partitions_of(instance, subscription)
    places = {place_of(topic, key): index for index, (topic, key) in enumerate(partitions)}
    begin = places.get(after, -1) + 1
    chosen = partitions[begin : begin + limit]
    states = instance.stores.push.states_of(subscription.subscription_id)
    found: list[SubscriptionPartition] = []
    for start in range(0, len(chosen), HEADS_AT_ONCE):
        found += _described(instance, subscription, chosen[start : start + HEADS_AT_ONCE], states.deliveries)
    is_last = begin + limit >= len(partitions)
    return SubscriptionPage(
        subscription=subscription,
        lanes=_counts(states.lanes.values(), instance.clock.now_ms()),
        dead_lettered=None if subscription.config.mode == PARALLEL else _dead_lettered(*states.deliveries.values()),
        partitions=found,
        next_after=None if is_last else place_of(*chosen[-1]),
    )


def place_of(topic: TopicName, key: DeliveryKey) -> str:
    """The text that stands for a partition in `after`."""
    return f"{topic}#{key.partition}"


def _described(
    instance: Instance,
    subscription: Subscription,
    partitions: Sequence[tuple[TopicName, DeliveryKey]],
    deliveries: Mapping[DeliveryKey, DeliveryState],
) -> list[SubscriptionPartition]:
    is_parallel = subscription.config.mode == PARALLEL
    read = _shared_places if is_parallel else _ordered_places
    places = read(instance, subscription, partitions, deliveries)
    now_ms = instance.clock.now_ms()
    found = []
    for topic, key in partitions:
        if key not in places:  # the topic was deleted meanwhile
            continue
        lane = lane_of(key.partition_key, subscription.config.concurrency)
        reporter = lane_delivery_key(subscription.subscription_id, lane) if is_parallel else key
        report = _report(deliveries.get(reporter), subscription.config, now_ms)
        found.append(
            SubscriptionPartition(
                topic=topic,
                key=key,
                lane=lane,
                place=places[key],
                report=report,
                dead_lettered=None if is_parallel else _dead_lettered(deliveries.get(key)),
            )
        )
    return found


def _ordered_places(
    instance: Instance,
    subscription: Subscription,  # noqa: ARG001 - as `_shared_places`
    partitions: Sequence[tuple[TopicName, DeliveryKey]],
    deliveries: Mapping[DeliveryKey, DeliveryState],
) -> dict[DeliveryKey, DeliveryPlace]:
    heads = instance.stores.log.heads([key.partition_key for _, key in partitions])
    present = [key for _, key in partitions if key.partition_key in heads]

    def place(key: DeliveryKey) -> DeliveryPlace:
        head, state = heads[key.partition_key], deliveries.get(key)
        offset = Offset(max(0 if state is None else state.offset, head.log_start_offset))
        age_ms = record_age_ms(instance, key.partition_key, head, offset)
        expired = 0 if state is None else state.expired
        return DeliveryPlace(offset=offset, lag=head.count_from(offset), oldest_age_ms=age_ms, expired=expired)

    return dict(zip(present, instance.executor.map(place, present).all_ok(), strict=True))


def _shared_places(
    instance: Instance,
    subscription: Subscription,
    partitions: Sequence[tuple[TopicName, DeliveryKey]],
    deliveries: Mapping[DeliveryKey, DeliveryState],  # noqa: ARG001 - as `_ordered_places`
) -> dict[DeliveryKey, DeliveryPlace]:
    group = parallel_group(subscription)
    shared = [(topic, ShareKey(group.share_group_id, key.topic_id, key.partition)) for topic, key in partitions]
    found = {each.key.partition_key: each for each in describe_partitions(instance, group, shared)}
    return {
        key: DeliveryPlace(
            offset=each.start_offset, lag=each.lag, oldest_age_ms=each.oldest_age_ms, expired=each.expired
        )
        for _, key in partitions
        if (each := found.get(key.partition_key)) is not None
    }


def _dead_lettered(*states: DeliveryState | None) -> int:
    return sum(each.dead_lettered for each in states if each is not None)


def _report(state: DeliveryState | None, config: SubscriptionConfig, now_ms: int) -> DeliveryReport:
    """A lane that is well has no trouble. A partition that is well still has a record that fails."""
    is_lane = config.mode == PARALLEL
    trouble = None if state is None or (is_lane and state.trouble and state.trouble.is_well) else state.trouble
    succeeded_ms = 0 if state is None else state.succeeded_ms
    next_try_ms = 0 if state is None else state.next_try_ms
    if trouble is None:
        result = LastResult.OK if succeeded_ms else LastResult.NONE
    else:
        result = LastResult.AWAY if trouble.outages else LastResult.FAILING
    return DeliveryReport(
        result=result,
        error="" if trouble is None else trouble.error,
        attempts=0 if trouble is None else trouble.attempts,
        failing_since_ms=None if trouble is None else trouble.first_failed_ms,
        succeeded_ms=succeeded_ms or None,
        next_try_ms=next_try_ms if next_try_ms > now_ms else None,
        patience_until_ms=None if state is None or is_lane else patience_ends_ms(state, config),
    )


def _counts(lanes: Iterable[LaneState], now_ms: int) -> LaneCounts:
    found = [*lanes]
    return LaneCounts(
        working=sum(lane.locked_until_ms > now_ms for lane in found),
        resting=sum(lane.locked_until_ms <= now_ms < lane.due_ms for lane in found),
        deaths=sum(lane.deaths for lane in found),
    )
