"""The dispatcher: which messages an event of a head leads to, and which topics come back after a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, SubscriptionName, TopicId
from penstock_core.log.wake_up import PushEvent
from penstock_core.push.lane import PushMessage, lane_of
from penstock_core.push.subscription import SubscriptionNote
from penstock_service.adapters.system import SequentialExecutor
from penstock_service.ports.push import DeliveryQueue, PushStore
from penstock_service.push.dispatch import DispatchOutcome, dispatch

ORDERS, BILLS = TopicId("0a" * 10), TopicId("0b" * 10)
DOWN = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")


def note(name: str, *, concurrency: int = 10, is_paused: bool = False) -> SubscriptionNote:
    return SubscriptionNote(
        name=SubscriptionName(name),
        subscription_id=SubscriptionId(f"id of {name}"),
        version=3,
        concurrency=concurrency,
        is_paused=is_paused,
    )


def event(topic: TopicId, partition: int, next_offset: int = 1) -> PushEvent:
    return PushEvent(key=PartitionKey(topic, Partition(partition)), next_offset=Offset(next_offset))


@dataclass
class Stage:
    """A store of notes and a queue, each of which may be down."""

    notes: Mapping[TopicId, Sequence[SubscriptionNote]]
    down: frozenset[TopicId] = frozenset()
    is_queue_down: bool = False
    reads: list[TopicId] = field(default_factory=list)
    calls: list[Sequence[PushMessage]] = field(default_factory=list)

    def subscriptions_of(self, topic_id: TopicId) -> Sequence[SubscriptionNote]:
        self.reads.append(topic_id)
        if topic_id in self.down:
            raise DOWN
        return self.notes.get(topic_id, ())

    def send(self, messages: Sequence[PushMessage]) -> None:
        if self.is_queue_down:
            raise DOWN
        self.calls.append(messages)

    def dispatch(self, *events: PushEvent) -> DispatchOutcome:
        return dispatch(cast(PushStore, self), cast(DeliveryQueue, self), SequentialExecutor(), events)

    def sent(self) -> list[tuple[str, int, str | None]]:
        """Name, lane and partition of each message."""
        return [(each.name, each.lane, each.partition and str(each.partition)) for call in self.calls for each in call]


def test_each_unpaused_subscription_of_the_topic_gets_a_message() -> None:
    stage = Stage({ORDERS: [note("mail"), note("audit"), note("idle", is_paused=True)], BILLS: [note("tax")]})
    outcome = stage.dispatch(event(ORDERS, 4))
    key = PartitionKey(ORDERS, Partition(4))
    assert stage.sent() == [(name, lane_of(key, 10), str(key)) for name in ("mail", "audit")]
    [[message, _]] = stage.calls
    assert (message.subscription_id, message.version) == ("id of mail", 3)
    assert outcome == DispatchOutcome(messages=2, failures={})


def test_partitions_of_one_lane_share_a_message_that_names_the_highest() -> None:
    stage = Stage({ORDERS: [note("mail", concurrency=2), note("audit", concurrency=1)]})
    stage.dispatch(*(event(ORDERS, partition) for partition in (3, 0, 1, 2, 3)))
    told = [(name, partition) for name, _, partition in stage.sent()]
    assert sorted(told) == [("audit", f"{ORDERS}#3"), ("mail", f"{ORDERS}#2"), ("mail", f"{ORDERS}#3")]
    assert len({(name, lane) for name, lane, _ in stage.sent()}) == 3


def test_one_read_for_a_topic_and_one_call_for_all_messages() -> None:
    stage = Stage({ORDERS: [note("mail")], BILLS: [note("tax")]})
    stage.dispatch(event(ORDERS, 0), event(BILLS, 0), event(ORDERS, 1), event(BILLS, 0, next_offset=2))
    assert sorted(stage.reads) == [ORDERS, BILLS]
    assert len(stage.calls) == 1


def test_topic_without_subscriptions_sends_nothing_and_calls_no_queue() -> None:
    stage = Stage({BILLS: [note("tax", is_paused=True)]}, is_queue_down=True)
    assert stage.dispatch(event(ORDERS, 0), event(BILLS, 0)) == DispatchOutcome(messages=0, failures={})
    assert Stage({}).dispatch() == DispatchOutcome(messages=0, failures={})


def test_topic_that_cannot_be_read_fails_alone() -> None:
    stage = Stage({ORDERS: [note("mail")], BILLS: [note("tax")]}, down=frozenset([ORDERS]))
    assert stage.dispatch(event(ORDERS, 0), event(BILLS, 0)) == DispatchOutcome(messages=1, failures={ORDERS: DOWN})
    assert [name for name, _, _ in stage.sent()] == ["tax"]


def test_queue_that_refuses_fails_the_topics_that_had_messages() -> None:
    stage = Stage({ORDERS: [note("mail")]}, is_queue_down=True)
    assert stage.dispatch(event(ORDERS, 0), event(BILLS, 0)) == DispatchOutcome(messages=0, failures={ORDERS: DOWN})
    again = replace(stage, is_queue_down=False)
    assert again.dispatch(event(ORDERS, 0)).messages == 1
