"""The contract of DeliveryQueue, held by the adapter in memory and by that on SQS; moto has SQS's rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, SubscriptionName, TopicId
from penstock_core.limits import PUSH_MESSAGE_AGE_MS_MAX, PUSH_PAUSE_MS_MAX, PUSH_VISIBILITY_MS
from penstock_core.push.lane import PushMessage, decode_push_message
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue
from penstock_service.adapters.sqs import DeliveryPlaces, SqsDeliveryQueue
from penstock_service.ports.push import DeliveryQueue
from tests.core.push.push_samples import ID
from tests.support.service import SteppedClock

HIDDEN_MS = 1_000  # of a postponement that no test waits for


@dataclass(frozen=True)
class Taken:
    message_id: str
    receipt: str
    message: PushMessage
    receive_count: int


@dataclass
class Memory:
    clock: SteppedClock = field(default_factory=SteppedClock)

    def __post_init__(self) -> None:
        self.memory = MemoryDeliveryQueue(self.clock)
        self.queue: DeliveryQueue = self.memory
        self.queue.switch_on()

    def take(self) -> list[Taken]:
        found = self.memory.receive(10)
        return [Taken(each.message_id, each.receipt, each.message, each.receive_count) for each in found]

    def delete(self, receipt: str) -> None:
        self.memory.delete(receipt)


class Sqs:
    def __init__(self, client: Any) -> None:
        self._client = client
        attributes = {"VisibilityTimeout": str(PUSH_VISIBILITY_MS // 1_000)}
        self._url = client.create_queue(QueueName="deliveries", Attributes=attributes)["QueueUrl"]
        arn = "arn:aws:sqs:us-east-1:123456789012:deliveries"
        places = DeliveryPlaces(queue_url=self._url, queue_arn=arn, rule="look")
        self.queue: DeliveryQueue = SqsDeliveryQueue(places, lambda _: client)

    def take(self) -> list[Taken]:
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"]
        )
        return [
            Taken(
                each["MessageId"],
                each["ReceiptHandle"],
                decode_push_message(each["Body"]),
                int(each["Attributes"]["ApproximateReceiveCount"]),
            )
            for each in answer.get("Messages", ())
        ]

    def delete(self, receipt: str) -> None:
        self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)


Queue = Memory | Sqs


@pytest.fixture(params=["memory", "aws"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    if request.param == "memory":
        yield Memory()
        return
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name="us-east-1")
        yield Sqs(session.client("sqs"))


def message(lane: int) -> PushMessage:
    partition = PartitionKey(TopicId("00ff"), Partition(lane)) if lane % 2 else None
    return PushMessage(name=SubscriptionName("packing"), subscription_id=ID, lane=lane, version=3, partition=partition)


def drain(queue: Queue) -> list[Taken]:
    """All visible messages."""
    found = []
    while taken := queue.take():
        found += taken
    return found


def test_more_messages_than_one_call_takes_are_received(queue: Queue) -> None:
    sent = [message(lane) for lane in range(23)]
    queue.queue.send(sent)
    queue.queue.send([])
    found = drain(queue)
    assert sorted((each.message for each in found), key=lambda each: each.lane) == sent
    assert len({each.message_id for each in found}) == len({each.receipt for each in found}) == 23
    assert {each.receive_count for each in found} == {1}


def test_received_message_is_hidden(queue: Queue) -> None:
    queue.queue.send([message(1)])
    assert len(queue.take()) == 1
    assert queue.take() == []


def test_message_postponed_by_nothing_comes_again_at_once_and_counts(queue: Queue) -> None:
    queue.queue.send([message(1)])
    [first] = queue.take()
    queue.queue.postpone(first.receipt, 0)
    [again] = queue.take()
    assert (again.message_id, again.message, again.receive_count) == (first.message_id, first.message, 2)


@pytest.mark.parametrize("delay_ms", [HIDDEN_MS, PUSH_PAUSE_MS_MAX])
def test_postponed_message_stays_hidden(queue: Queue, delay_ms: int) -> None:
    queue.queue.send([message(1)])
    [taken] = queue.take()
    queue.queue.postpone(taken.receipt, delay_ms)
    assert queue.take() == []


def test_deleted_message_does_not_come_again_and_cannot_be_postponed(queue: Queue) -> None:
    queue.queue.send([message(1), message(2)])
    for taken in drain(queue):
        queue.delete(taken.receipt)
        with pytest.raises(PenstockError) as caught:
            queue.queue.postpone(taken.receipt, 0)
        assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert queue.take() == []


def test_message_in_memory_comes_again_when_its_time_is_over() -> None:
    """The steps that moto would have to wait for."""
    memory = Memory()
    memory.queue.send([message(1)])
    memory.take()
    memory.clock.sleep_ms(PUSH_VISIBILITY_MS - 1)
    assert memory.take() == []
    memory.clock.sleep_ms(1)
    [again] = memory.take()
    assert again.receive_count == 2
    memory.queue.postpone(again.receipt, 1)
    now_ms = memory.clock.now_ms()
    assert memory.memory.next_visible_ms == now_ms + 1_000, "SQS takes whole seconds"
    memory.clock.sleep_ms(1_000)
    assert [each.receive_count for each in memory.take()] == [3]


def test_old_receipt_in_memory_neither_deletes_nor_postpones() -> None:
    memory = Memory()
    memory.queue.send([message(1)])
    [old] = memory.take()
    memory.queue.postpone(old.receipt, 0)
    [new] = memory.take()
    memory.delete(old.receipt)
    with pytest.raises(PenstockError, match="in flight"):
        memory.queue.postpone(old.receipt, 0)
    assert memory.memory.messages == [message(1)]
    memory.delete(new.receipt)
    assert memory.memory.messages == []
    assert memory.memory.next_visible_ms is None


def test_message_in_memory_is_gone_at_its_age() -> None:
    memory = Memory()
    memory.queue.send([message(1)])
    for _ in range(PUSH_MESSAGE_AGE_MS_MAX // PUSH_PAUSE_MS_MAX):
        [taken] = memory.take()
        memory.queue.postpone(taken.receipt, PUSH_PAUSE_MS_MAX)
        memory.clock.sleep_ms(PUSH_PAUSE_MS_MAX)
    memory.clock.sleep_ms(PUSH_PAUSE_MS_MAX)
    assert memory.take() == []
    assert memory.memory.messages == []


def test_nothing_in_memory_is_taken_before_the_queue_is_on() -> None:
    memory = MemoryDeliveryQueue(SteppedClock())
    memory.send([message(1)])
    assert memory.receive() == []
    memory.switch_on()
    assert len(memory.receive()) == 1
