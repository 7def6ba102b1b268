"""Starts deliveries for partitions that got records: a message for each lane of each subscription that may have work.

```
stream of the log table ──events──▶ dispatch ──messages──▶ queue ──▶ deliver
                                       └─ reads the subscriptions of each topic, consistently
```

A push waiter is gone when its event comes, so a lost event is a late delivery. The caller must bring back the events
of a topic that failed. A doubled message is harmless: a delivery looks at the lane itself (core/push/lane.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.wake_up import PushEvent
from penstock_core.push.lane import PushMessage, lane_of
from penstock_core.push.subscription import SubscriptionNote, message_of
from penstock_service.ports.push import DeliveryQueue, PushStore
from penstock_service.ports.runtime import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOutcome:
    """The number of messages that were sent, and the topics whose subscriptions may have got none."""

    messages: int
    failures: Mapping[TopicId, PenstockError]


def dispatch(push: PushStore, queue: DeliveryQueue, executor: Executor, events: Sequence[PushEvent]) -> DispatchOutcome:
    """Sends the messages of the events. Subscriptions that are paused get none.

    One query for each topic, and one call of the queue for each 10 messages. Raises nothing.
    """
    partitions: dict[TopicId, set[Partition]] = {}
    for event in events:
        partitions.setdefault(event.key.topic_id, set()).add(event.key.partition)
    topics = [*partitions]
    found = dict(zip(topics, executor.map(push.subscriptions_of, topics), strict=True))
    failures = {topic: notes for topic, notes in found.items() if isinstance(notes, PenstockError)}
    messages = {
        topic: _messages(topic, notes, partitions[topic])
        for topic, notes in found.items()
        if not isinstance(notes, PenstockError)
    }
    to_send = [message for of_topic in messages.values() for message in of_topic]
    if to_send:
        try:
            queue.send(to_send)
        except PenstockError as error:
            failures |= {topic: error for topic, of_topic in messages.items() if of_topic}
            to_send = []
    return DispatchOutcome(messages=len(to_send), failures=failures)


def _messages(
    topic_id: TopicId, notes: Iterable[SubscriptionNote], partitions: Iterable[Partition]
) -> list[PushMessage]:
    """One message for each lane. It names the lane's highest partition: a topic that has it has those below it."""
    by_lane: dict[tuple[str, int], PushMessage] = {}
    for note in notes:
        for partition in () if note.is_paused else sorted(partitions):
            key = PartitionKey(topic_id, partition)
            lane = lane_of(key, note.concurrency)
            by_lane[note.subscription_id, lane] = message_of(note, lane, key)
    return [*by_lane.values()]
