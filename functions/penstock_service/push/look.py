"""The look: starts deliveries that no message stands for, and removes what gone subscriptions have left.

Deliveries need no look while nothing is lost: an append wakes them, and a message stands for each lane that works or
pauses. But an event of the stream may be given up, a creation may die before its messages, and a partition that an
older release made has no push waiter. The look compares places with heads, and sends a message where records wait.

All deliveries that are due: for a service in one process, without a stream and functions.

It finds work as the look does, by places and heads. So the work goes on after a restart, which loses all messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey, ShareGroupId
from penstock_core.limits import MIRROR_LATE_MS, PUSH_LIST_MAX, PUSH_ORPHANS_MS, PUSH_STUCK_MS
from penstock_core.log.index import Head
from penstock_core.push.delivery import DeliveryKey, DeliveryState, needs_message, telling_due_ms
from penstock_core.push.lane import PushMessage, lane_of
from penstock_core.push.subscription import PARALLEL, OrphanedStates, Subscription, message_of
from penstock_core.push.targets.target import StageTarget
from penstock_core.share.acquire import next_available_ms
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.index.reader import record_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.ports.push import PushStore, SubscriptionStates
from penstock_service.push.admin.pause_subscription import remove_states
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.parallel.parallel_group import lane_delivery_key, parallel_group
from penstock_service.push.subscriptions import partitions_of

_JOB = "look"
_FIRST_LANE = 0  # it waits for records of a parallel subscription that come back
_AT_ONCE = 10


@dataclass(slots=True, kw_only=True)
class LookRun:
    """The counts of one run. `is_finished` is False if its time was up before it had seen every subscription.

    `partitions_stuck` are partitions, or lanes of parallel subscriptions, that have failed for longer than the
    subscription's `patience_ms`, or than `PUSH_STUCK_MS` if that is less. `mirrors_late` are partitions whose mirror
    lacks a record that is older than `MIRROR_LATE_MS`.
    """

    subscriptions: int = 0
    messages: int = 0
    partitions_stuck: int = 0
    mirrors_late: int = 0
    states_removed: int = 0
    failures: int = 0
    is_finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The messages that one subscription needs, and its partitions that are stuck or late."""

    messages: Sequence[PushMessage] = field(default_factory=tuple)
    partitions_stuck: int = 0
    mirrors_late: int = 0


def look(instance: Instance, *, budget_ms: float) -> LookRun:
    """One run over all subscriptions, from the place where the last run stopped, for `budget_ms` at most.

    Of each subscription: one query for each MB of its states, and one read for each 100 partitions. One query more for
    each mirrored partition whose oldest missing record is not in the tail. One call of the queue for each 10 messages.
    An error of a subscription counts as a failure, and the next run tries it again.
    """
    ends_ms = instance.clock.monotonic_ms() + budget_ms
    done = LookRun()
    begins_after = instance.stores.cursors.get(_JOB)
    after = begins_after or ""
    while page := instance.stores.push.list_subscriptions(after, PUSH_LIST_MAX):
        _look_at_all(instance, page, done)
        after = page[-1].name
        if instance.clock.monotonic_ms() >= ends_ms:
            instance.stores.cursors.put(_JOB, after)
            done.is_finished = False
            return done
    if begins_after is not None:
        instance.stores.cursors.clear(_JOB)
    _remove_orphans(instance, done)
    return done


def _look_at_all(instance: Instance, page: Sequence[Subscription], done: LookRun) -> None:
    done.subscriptions += len(page)
    outcomes = instance.executor.map(lambda each: _look_at(instance, each), page)
    _note_failures(instance, outcomes.errors, done)
    messages = [message for found in outcomes.ok for message in found.messages]
    done.partitions_stuck += sum(found.partitions_stuck for found in outcomes.ok)
    done.mirrors_late += sum(found.mirrors_late for found in outcomes.ok)
    if not messages:
        return
    try:
        instance.stores.deliveries.switch_on()  # a creation may have died before it did
        instance.stores.deliveries.send(messages)
    except PenstockError as error:
        _note_failures(instance, [error], done)
    else:
        done.messages += len(messages)


def _look_at(instance: Instance, subscription: Subscription) -> _Found:
    if subscription.is_paused:
        return _Found()
    now_ms = instance.clock.now_ms()
    states = instance.stores.push.states_of(subscription.subscription_id)
    heads = heads_of(instance, subscription)
    messages: dict[int, PushMessage] = {}
    for lane, key, due_ms in sorted(due_work(instance, subscription, states, heads)):
        if needs_message(states.lanes.get(lane), due_ms, now_ms):
            messages[lane] = message_of(subscription, lane, key)
    return _Found(
        messages=[*messages.values()],
        partitions_stuck=_stuck(subscription, states, [*heads], now_ms),
        mirrors_late=_late(instance, subscription, states, heads),
    )


def heads_of(instance: Instance, subscription: Subscription) -> dict[DeliveryKey, Head]:
    """The heads of all partitions that are there. One read for each 100 partitions."""
    keys = [key for _, key in partitions_of(instance, subscription)]
    heads = instance.stores.log.heads([key.partition_key for key in keys])
    return {key: heads[key.partition_key] for key in keys if key.partition_key in heads}


def due_work(
    instance: Instance, subscription: Subscription, states: SubscriptionStates, heads: Mapping[DeliveryKey, Head]
) -> Iterator[tuple[int, PartitionKey, int]]:
    """Lane, partition and time of the work that there is."""
    if subscription.config.mode == PARALLEL:
        return _due_in_parallel(instance, subscription, states, heads)
    return _due_in_order(subscription, states, heads, instance.clock.now_ms())


def _due_in_order(
    subscription: Subscription, states: SubscriptionStates, heads: Mapping[DeliveryKey, Head], now_ms: int
) -> Iterator[tuple[int, PartitionKey, int]]:
    """A partition at its end, without a push waiter, is work. So is one whose mirror must be asked, or told offsets."""
    is_mirror = isinstance(subscription.target, StageTarget)
    for key, head in heads.items():
        state = states.deliveries.get(key)
        place = head.next_record(0 if state is None else state.offset)
        must_ask = is_mirror and state is not None and state.asked_version < subscription.version
        told_ms = telling_due_ms(state, is_again=False) if is_mirror and state is not None else None
        lane = lane_of(key.partition_key, subscription.config.concurrency)
        if must_ask or place < head.next_offset or not head.has_push_waiter:
            yield lane, key.partition_key, 0 if state is None else state.next_try_ms
        elif told_ms is not None and told_ms <= now_ms:
            yield lane, key.partition_key, told_ms


def _due_in_parallel(
    instance: Instance, subscription: Subscription, states: SubscriptionStates, heads: Mapping[DeliveryKey, Head]
) -> Iterator[tuple[int, PartitionKey, int]]:
    """As `_due_in_order`. Fresh records are work of the partition's lane, and records that come back of the first."""
    group, now_ms = parallel_group(subscription), instance.clock.now_ms()
    found = instance.stores.share.find_states([_share_key(key) for key in heads])
    for key, head in heads.items():
        share: ShareState | None = found.get(_share_key(key))
        place = head.next_record(0 if share is None else share.position)
        lane = lane_of(key.partition_key, subscription.config.concurrency)
        if place < head.next_offset or not head.has_push_waiter:
            yield lane, key.partition_key, _next_try_ms(subscription, states, lane)
        back_in_ms = None if share is None else next_available_ms(share, group.config, now_ms)
        if back_in_ms is not None:
            again_ms = max(now_ms + back_in_ms, _next_try_ms(subscription, states, _FIRST_LANE))
            yield _FIRST_LANE, key.partition_key, again_ms


def _next_try_ms(subscription: Subscription, states: SubscriptionStates, lane: int) -> int:
    state: DeliveryState | None = states.deliveries.get(lane_delivery_key(subscription.subscription_id, lane))
    return 0 if state is None else state.next_try_ms


def _share_key(key: DeliveryKey) -> ShareKey:
    return ShareKey(ShareGroupId(key.subscription_id), key.topic_id, key.partition)


def _stuck(subscription: Subscription, states: SubscriptionStates, there: Sequence[DeliveryKey], now_ms: int) -> int:
    """The partitions, or lanes in parallel mode, that have failed for long. Partitions that are gone fail no more."""
    since_ms = now_ms - min(subscription.config.patience_ms, PUSH_STUCK_MS)
    is_parallel = subscription.config.mode == PARALLEL
    lanes = range(subscription.config.concurrency if there else 0)
    current = [lane_delivery_key(subscription.subscription_id, lane) for lane in lanes] if is_parallel else there
    found = (states.deliveries.get(key) for key in current)
    troubles = [state.trouble for state in found if state is not None and state.trouble is not None]
    return sum(each.first_failed_ms < since_ms and not (is_parallel and each.is_well) for each in troubles)


def _late(
    instance: Instance, subscription: Subscription, states: SubscriptionStates, heads: Mapping[DeliveryKey, Head]
) -> int:
    """The partitions of a mirror that lack a record for long. An index that cannot be read holds no message back."""
    if not isinstance(subscription.target, StageTarget):
        return 0

    def is_late(key: DeliveryKey) -> bool:
        state, head = states.deliveries.get(key), heads[key]
        offset = Offset(max(0 if state is None else state.offset, head.log_start_offset))
        try:
            return (record_age_ms(instance, key.partition_key, head, offset) or 0) > MIRROR_LATE_MS
        except PenstockError as error:
            instance.telemetry.log("lag_unknown", error=str(error))
            return False  # its push fails, too, and partitions that are stuck ring

    return sum(map(is_late, heads))


def _remove_orphans(instance: Instance, done: LookRun) -> None:
    """Remove states that have no subscription for `PUSH_ORPHANS_MS`: no creation or delivery of then goes on."""
    before_ms = instance.clock.now_ms() - PUSH_ORPHANS_MS
    old = [each for each in _orphans(instance.stores.push) if each.since_ms < before_ms]
    outcomes = instance.executor.map(lambda each: _remove(instance, each), old)
    done.states_removed += sum(outcomes.ok)
    _note_failures(instance, outcomes.errors, done)


def _orphans(push: PushStore) -> Iterator[OrphanedStates]:
    after = ""
    while page := push.orphaned_states(after, PUSH_LIST_MAX):
        yield from page
        after = page[-1].subscription_id


def _remove(instance: Instance, orphans: OrphanedStates) -> bool:
    """True if the states were without an owner. A note that was put late, by a repeat, names a subscription."""
    found = instance.stores.push.get_subscription(orphans.name)
    is_orphaned = found is None or found.subscription_id != orphans.subscription_id
    if is_orphaned:
        remove_states(instance, orphans.subscription_id)
    instance.stores.push.forget_orphans(orphans.subscription_id)
    return is_orphaned


def _note_failures(instance: Instance, errors: Sequence[PenstockError], done: LookRun) -> None:
    done.failures += len(errors)
    for error in errors:
        instance.telemetry.log("look_failed", error=str(error))


class Received(Protocol):
    """One receipt of a message."""

    @property
    def message(self) -> PushMessage:
        """The message."""

    @property
    def message_id(self) -> str:
        """The message's id, the same in each receipt."""

    @property
    def receipt(self) -> str:
        """The handle of this receipt."""


class ReceivingQueue(Protocol):
    """The receiving side of the queue of deliveries, as Lambda has it on SQS."""

    def receive(self, limit: int = 1) -> Sequence[Received]:
        """At most `limit` visible messages, which are hidden then."""

    def delete(self, receipt: str) -> None:
        """Removes the message of the receipt."""


def deliver_due(instance: Instance, queue: ReceivingQueue) -> int:
    """Starts what is due, works until no message is visible, and gives how many messages there were.

    Raises what `deliver` raises. The message is hidden for a while then.
    """
    start_due(instance)
    worked = 0
    while received := queue.receive(_AT_ONCE):
        for each in received:
            worked += 1
            deliver_received(instance, queue, each)
    return worked


def start_due(instance: Instance) -> None:
    """Sends the messages of all subscriptions for work that is due now."""
    for subscription in _subscriptions(instance):
        if not subscription.is_paused:
            _start(instance, subscription)


def deliver_received(instance: Instance, queue: ReceivingQueue, received: Received) -> None:
    """Delivers what the message asks for. Raises what `deliver` raises, and the message is hidden for a while then."""
    receipt = Receipt(message=received.message, message_id=received.message_id, handle=received.receipt)
    if deliver(instance, receipt) is Ending.DELETE:
        queue.delete(received.receipt)


def _start(instance: Instance, subscription: Subscription) -> None:
    """Sends a message for each lane with work that is due, unless a delivery has the lane.

    A lane that sleeps for one partition may have records of another one.
    """
    now_ms = instance.clock.now_ms()
    states = instance.stores.push.states_of(subscription.subscription_id)
    busy = {number for number, lane in states.lanes.items() if lane.locked_until_ms > now_ms}
    messages: dict[int, PushMessage] = {}
    for lane, key, due_ms in due_work(instance, subscription, states, heads_of(instance, subscription)):
        if due_ms <= now_ms and lane not in busy:
            messages[lane] = message_of(subscription, lane, key)
    if messages:
        instance.stores.deliveries.send([*messages.values()])


def _subscriptions(instance: Instance) -> Iterator[Subscription]:
    after = ""
    while page := instance.stores.push.list_subscriptions(after, PUSH_LIST_MAX):
        yield from page
        after = page[-1].name
