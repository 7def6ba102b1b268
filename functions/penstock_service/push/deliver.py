"""Deliver: what one message of the queue of deliveries starts. It works on one lane of a subscription.

```
take the lane ─▶ rounds over its partitions ─▶ release ─▶ read topics, arm heads ─▶ delete the message
                  slice is over: release, read topics, send a new message, delete the own one
                  a pause:       release, read topics, arm, hide the own message until the next try
```
The lane's lock and the versions of all states make it safe to die, freeze or run twice anywhere (docs/protocol/push). A
delivery costs this on top of its batches:

| step | reads | writes | other calls |
|---|---|---|---|
| begin | subscription, lane, states, heads | 1 lane | |
| each round | heads | | |
| end | topics, heads that had a push waiter | 1 lane, 1 head per partition without one | deletes or hides its message |
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, TopicName
from penstock_core.limits import MIRROR_HIDE_MS, PUSH_PAUSE_MS_MAX, PUSH_RECEIPT_RETRY_MS, PUSH_SLICE_MS
from penstock_core.log.index import Head
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.lane import Drop, LaneKey, LaneState, Postpone, PushMessage, Turn, finish, lane_of, rest, take
from penstock_core.push.subscription import PARALLEL, Subscription, message_of
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment
from penstock_service.push.deliver_ordered import deliver_ordered
from penstock_service.push.lane_work import LaneHold, LaneResult, LaneWork
from penstock_service.push.parallel.deliver_parallel import deliver_parallel
from penstock_service.push.subscriptions import partitions_of

_NONCE_BYTES = 8
_TAKES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One receipt of a message. The queue names the message by `message_id`, and this receipt of it by `handle`."""

    message: PushMessage
    message_id: str
    handle: str


class Ending(Enum):
    """The end of a delivery: the caller deletes the message, or leaves it in the queue."""

    DELETE = "delete"
    KEEP = "keep"


def deliver(instance: Instance, receipt: Receipt) -> Ending:
    """Works on the message's lane for `PUSH_SLICE_MS`. An invocation that begins before that is waited for.

    Raises what storage raises before the lane is taken, and after it was released: leave the message in the queue then.
    """
    return _Delivery(instance, receipt).run()


class _Delivery:
    def __init__(self, instance: Instance, receipt: Receipt) -> None:
        self._instance = instance
        self._receipt = receipt
        self._message = receipt.message
        self._started = Moment.now(instance.clock)
        self._nonce = instance.entropy.random_bytes(_NONCE_BYTES).hex()
        self._key = LaneKey(subscription_id=self._message.subscription_id, lane=self._message.lane)
        self._hold = LaneHold(instance, self._key, receipt.handle)
        self._seen: Sequence[tuple[TopicName, DeliveryKey]] = ()  # the partitions of the last work

    def run(self) -> Ending:
        push = self._instance.stores.push
        if self._message.is_mirror:
            self._hold.hide_until(self._started.wall_ms + MIRROR_HIDE_MS)
        subscription = push.get_subscription(self._message.name)
        if subscription is None or subscription.subscription_id != self._message.subscription_id:
            return Ending.DELETE  # it was deleted, and perhaps made anew
        lane = self._take(subscription, push.find_lane(self._key))
        while isinstance(lane, LaneState):
            self._hold.hold(lane)
            try:
                result = self._work(subscription)
            except PenstockError as error:
                return self._give_up(error)
            after = self._release(result)
            if after is None:
                return Ending.KEEP
            added = self._added(subscription)
            if not result.is_unfinished and added is None and self._arm(result):
                return self._leave(after)
            if result.is_unfinished or not self._may_take():
                self._instance.stores.deliveries.send([self._successor(subscription, added)])
                return self._leave(after)
            lane = self._take(subscription, after)
        return self._hide(lane.until_ms) if isinstance(lane, Postpone) else Ending.DELETE

    def _take(self, subscription: Subscription, stored: LaneState | None) -> LaneState | Drop | Postpone:
        """The lane as it is held now. One write, and one for each delivery that came between.

        A delivery that was frozen since it began takes no lane: the queue may have given its message to another one,
        which has deleted it. A lane without a message in the queue would swallow the wake-up of the next append.
        """
        for _ in range(_TAKES_MAX):
            if not self._may_take():
                return Postpone(until_ms=self._instance.clock.now_ms() + PUSH_RECEIPT_RETRY_MS)
            turn = Turn(
                message_id=self._receipt.message_id,
                nonce=self._nonce,
                sent_version=self._message.version,
                seen_version=subscription.version,
                now_ms=self._instance.clock.now_ms(),
                is_mirror=subscription.is_mirror,
            )
            taken = take(stored, turn)
            if not isinstance(taken, LaneState) or taken is stored:
                return taken
            stored = self._instance.stores.push.put_lane(self._key, taken)
            if stored == taken:
                return taken
        raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"lane {self._key} was changed {_TAKES_MAX} times in a row")

    def _may_take(self) -> bool:
        """True while no other delivery can have the message. A freeze behind this look is met by the lane's version."""
        age_ms, hidden_until_ms = self._started.age_ms(self._instance.clock), self._hold.hidden_until_ms
        is_hidden = not hidden_until_ms or age_ms < hidden_until_ms - self._started.wall_ms
        return is_hidden and age_ms < PUSH_SLICE_MS

    def _work(self, subscription: Subscription) -> LaneResult:
        if subscription.is_paused:
            return LaneResult(is_unfinished=False)
        if subscription.is_mirror:
            self._hold.hide_until(self._hold.lane.locked_until_ms)
        has_worked = bool(self._seen)
        partitions = self._seen = self._partitions(subscription)
        slices = self._hold.lane.version // 2  # each begins with the next partition, so that each has a turn
        if subscription.is_mirror:
            slices = int(self._nonce, 16)  # or by chance with one: renewals raise the version, too
        at = slices % max(1, len(partitions))
        work = LaneWork(
            instance=self._instance,
            subscription=subscription,
            number=self._key.lane,
            hold=self._hold,
            partitions=[*partitions[at:], *partitions[:at]],
            started=self._started,
            hint=self._message.partition,
            has_worked=has_worked,
        )
        return deliver_parallel(work) if subscription.config.mode == PARALLEL else deliver_ordered(work)

    def _partitions(self, subscription: Subscription) -> list[tuple[TopicName, DeliveryKey]]:
        """The lane's partitions. Topics are read again if they do not have the partition that the message names."""
        found = partitions_of(self._instance, subscription)
        hint = self._message.partition
        if hint is not None and all(key.partition_key != hint for _, key in found):
            for name, topic_id in subscription.topics.items():
                if topic_id == hint.topic_id:
                    self._instance.topic_cache.forget(name)
            found = partitions_of(self._instance, subscription)
        return self._in_lane(subscription, found)

    def _in_lane(
        self, subscription: Subscription, partitions: Sequence[tuple[TopicName, DeliveryKey]]
    ) -> list[tuple[TopicName, DeliveryKey]]:
        lanes = subscription.config.concurrency
        return [(name, key) for name, key in partitions if lane_of(key.partition_key, lanes) == self._key.lane]

    def _added(self, subscription: Subscription) -> PartitionKey | None:
        """A partition of the lane that the work did not know. One read of each topic, after the release.

        The message of its first records may have met the lane held, and is gone then. Its head was there before its
        topic showed it, so a message that comes later finds the lane free.
        """
        if subscription.is_paused:
            return None
        read = self._instance.executor.map(self._instance.topic_cache.read_through, [*subscription.topics])
        for error in read.errors:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise error
        seen = {key for _, key in self._seen}
        now = self._in_lane(subscription, partitions_of(self._instance, subscription))
        return next((key.partition_key for _, key in now if key not in seen), None)

    def _release(self, result: LaneResult) -> LaneState | None:
        """The lane as it is free. None if another delivery has taken it, because this one was frozen. One write."""
        lane = self._hold.lane
        free, now_ms = finish(lane), self._instance.clock.now_ms()
        if result.due_ms is not None and not result.is_unfinished:
            free = rest(lane, result.due_ms, now_ms, result.look_ms)
        return free if self._instance.stores.push.put_lane(self._key, free) == free else None

    def _successor(self, subscription: Subscription, added: PartitionKey | None) -> PushMessage:
        return message_of(subscription, self._key.lane, added or self._message.partition)

    def _arm(self, result: LaneResult) -> bool:
        """Sets the push waiters of the partitions that are at their end. False if records have come meanwhile.

        The lane is free already, so each append after this wakes a delivery that can take it. A waiter that was there
        before the release may have woken a delivery that found the lane held: such a head is read again.
        """
        log, seen = self._instance.stores.log, dict(result.ends)
        known = [key for key, head in seen.items() if head.has_push_waiter]
        if known:
            fresh = log.heads(known)
            if any(head.next_offset > seen[key].next_offset for key, head in fresh.items()):
                return False
            for key in known:
                del seen[key]
            seen |= {key: head for key, head in fresh.items() if not head.has_push_waiter}
        armed = self._instance.executor.map(self._arm_head, [*seen.items()]).all_ok()
        return all(armed)

    def _arm_head(self, each: tuple[PartitionKey, Head]) -> bool:
        key, head = each
        is_armed, found = self._instance.stores.log.arm_push(key, head.next_offset)
        return is_armed or found is None

    def _leave(self, lane: LaneState) -> Ending:
        """Hides the message, or lets it go. Once the lock is over, another delivery may hold the lane by it."""
        if self._hold.is_over:
            return Ending.KEEP
        if lane.sleeper == self._receipt.message_id:
            return self._hide(lane.due_ms)
        return self._hide(lane.look_ms) if lane.looker == self._receipt.message_id else Ending.DELETE

    def _hide(self, until_ms: int) -> Ending:
        """Lets the message come again. If it comes early, it is hidden once more."""
        pause_ms = min(max(until_ms - self._instance.clock.now_ms(), 0), PUSH_PAUSE_MS_MAX)
        self._instance.stores.deliveries.postpone(self._receipt.handle, pause_ms)
        return Ending.KEEP

    def _give_up(self, error: PenstockError) -> Ending:
        """Frees the lane, so that its next delivery counts no death. The message comes again soon."""
        self._instance.telemetry.log(
            "push_delivery_failed", subscription=self._message.name, lane=self._key.lane, error=str(error)
        )
        with contextlib.suppress(PenstockError):  # if not, the lock and the message's receipt end by themselves
            self._instance.stores.push.put_lane(self._key, finish(self._hold.lane))
            if not self._hold.is_over:
                self._instance.stores.deliveries.postpone(self._receipt.handle, PUSH_RECEIPT_RETRY_MS)
        return Ending.KEEP
