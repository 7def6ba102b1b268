"""A subscription in memory with its queue and its target, on a stepped clock: appends wake it as the stream does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition, SubscriptionId, SubscriptionName, TopicName
from penstock_core.log.wake_up import PushEvent
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import LaneKey, LaneState, PushMessage
from penstock_core.push.subscription import Subscription, new_subscription_config
from penstock_core.push.targets.target import FunctionTarget, Target
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryTargets, ReceivedMessage
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.dispatch import dispatch
from penstock_service.records.produce import ProduceEntry, produce
from tests.support.service import Killed, SteppedClock, key_of, new_topic, patient_instance, with_stores

FUNCTION = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
NAME = SubscriptionName("packing")
ID = SubscriptionId("0c" * 10)
Answers = Callable[[PushBatch], Answer]


@dataclass(kw_only=True)
class Deliveries:
    """One subscription, `packing`, of the topic `orders`. `answer` answers each delivery; all is handled by default."""

    clock: SteppedClock = field(default_factory=SteppedClock)
    partitions: int = 1
    target: Target = FUNCTION
    settings: dict[str, Any] = field(default_factory=dict)
    instance: Instance = field(init=False)
    queue: MemoryDeliveryQueue = field(init=False)
    subscription: Subscription = field(init=False)
    answer: Answers = field(default=lambda _: Answered())
    batches: list[list[int]] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = MemoryDeliveryQueue(self.clock)
        self.queue.switch_on()
        targets = MemoryTargets()
        targets.answer = self._answer
        self.instance = with_stores(patient_instance(self.clock), deliveries=self.queue, targets=targets)
        new_topic(self.instance, "orders", self.partitions)
        self.subscription = Subscription(
            name=NAME,
            subscription_id=ID,
            topics={TopicName("orders"): key_of(self.instance, "orders").topic_id},
            target=self.target,
            config=new_subscription_config({"concurrency": 1, **self.settings}),
        )
        self.instance.stores.push.change_subscription(None, self.subscription)
        self.start()

    def start(self) -> None:
        """Sends a message for each lane, as the creation of a subscription does."""
        for lane in range(self.subscription.config.concurrency):
            self.queue.send([self.message(lane)])

    def message(self, lane: int = 0) -> PushMessage:
        return PushMessage(name=NAME, subscription_id=ID, lane=lane, version=self.subscription.version)

    def change(self, **changes: Any) -> None:
        """Another version of the subscription."""
        old = self.subscription
        self.subscription = replace(old, version=old.version + 1, **changes)
        self.instance.stores.push.change_subscription(old, self.subscription)

    def append(self, *records: NewRecord | str, partition: int = 0, topic: str = "orders") -> None:
        """One batch. Where the head has a push waiter, the stream wakes the subscriptions."""
        log, key = self.instance.stores.log, key_of(self.instance, topic, partition)
        before = log.heads([key])[key]
        data = encode(
            [
                each if isinstance(each, NewRecord) else NewRecord(self.clock.now_ms(), None, each.encode())
                for each in records
            ],
            Compression.ZSTD,
        )
        [result] = produce(self.instance, [ProduceEntry(topic=topic, partition=partition, data=data)], acks=Acks.QUORUM)
        assert not isinstance(result, PenstockError), result
        if before.has_push_waiter:
            event = PushEvent(key=key, next_offset=log.heads([key])[key].next_offset)
            dispatch(self.instance.stores.push, self.queue, self.instance.executor, [event])

    def append_many(self, count: int, partition: int = 0) -> None:
        self.append(*map(str, range(count)), partition=partition)

    def run_once(self, instance: Instance | None = None) -> Ending | None:
        """One receipt of a visible message; None if there is none."""
        received = self.queue.receive()
        return self.deliver(received[0], instance) if received else None

    def deliver(self, received: ReceivedMessage, instance: Instance | None = None) -> Ending:
        receipt = Receipt(message=received.message, message_id=received.message_id, handle=received.receipt)
        ending = deliver(instance or self.instance, receipt)
        self.endings.append(ending)
        if ending is Ending.DELETE:
            self.queue.delete(received.receipt)
        return ending

    def run(self, for_ms: int = 3_600_000) -> None:
        """Delivers until the queue is empty, or that time is over. Time passes while all messages are hidden."""
        end_ms = self.clock.time_ms + for_ms
        while (visible_ms := self.queue.next_visible_ms) is not None and visible_ms < end_ms:
            self.clock.time_ms = max(self.clock.time_ms, visible_ms)
            self.run_once()

    def die(self) -> None:
        """One receipt, whose function dies while its target works."""
        answer, self.answer = self.answer, _die
        try:
            self.run_once()
        except Killed:
            pass
        else:
            raise AssertionError("it did not deliver anything")
        finally:
            self.answer = answer

    def state(self, partition: int = 0) -> DeliveryState | None:
        key = self.key(partition)
        return self.instance.stores.push.find_deliveries([key]).get(key)

    def key(self, partition: int = 0) -> DeliveryKey:
        topic_id = key_of(self.instance, "orders").topic_id
        return DeliveryKey(subscription_id=ID, topic_id=topic_id, partition=Partition(partition))

    def lane(self, number: int = 0) -> LaneState | None:
        return self.instance.stores.push.find_lane(LaneKey(subscription_id=ID, lane=number))

    def is_armed(self, partition: int = 0) -> bool:
        key = key_of(self.instance, "orders", partition)
        return self.instance.stores.log.heads([key])[key].has_push_waiter

    def counts(self) -> dict[str, int]:
        """The metrics since the last call."""
        return dict(self.instance.telemetry.take()[0])

    def place(self, offset: int, partition: int = 0) -> tuple[Any, Offset]:
        return key_of(self.instance, "orders", partition), Offset(offset)

    def _answer(self, _target: Target, batch: PushBatch) -> Answer:
        self.batches.append([each.record.offset for each in batch.records])
        return self.answer(batch)


def refusing(poison: Sequence[int], otherwise: Answer) -> Answers:
    """Answers `otherwise` for a batch with one of these offsets."""
    return lambda batch: otherwise if {each.record.offset for each in batch.records} & {*poison} else Answered()


def _die(_batch: PushBatch) -> Answer:
    raise Killed
