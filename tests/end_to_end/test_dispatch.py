"""Push waiters on the deployed stack: a write to an armed head reaches the queue of deliveries through the stream.

The test stores a subscription itself, and receives the messages as the function that delivers will. Another test of the
stack may have switched deliveries on. So they are off while these tests run: no poller takes a message, and no look
sends one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from penstock import Producer
from penstock.http.transport import HttpTransport
from penstock_core.ids import Offset, PartitionKey, SubscriptionId, SubscriptionName, TopicName, parse_partition_key
from penstock_core.log.index import Page
from penstock_core.push.lane import PushMessage, decode_push_message, lane_of
from penstock_service.instance.instance import Instance
from tests.core.push.push_samples import PLAIN
from tests.end_to_end.jobs.test_compaction import instance_of
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import until

pytestmark = pytest.mark.stack


@pytest.fixture
def instance(stack: Stack, storage: StackStorage) -> Instance:
    """An instance on the tables of the stack, which may do everything."""
    return instance_of(stack, storage)


@pytest.fixture(autouse=True, scope="module")
def no_deliveries(stack: Stack, storage: StackStorage) -> Iterator[None]:
    """Switches off the pollers of the queue of deliveries, and the look, and restores both afterwards."""
    functions, events, sqs = (stack.root_client(name) for name in ("lambda", "events", "sqs"))
    answer = sqs.get_queue_attributes(QueueUrl=storage.outputs["DeliveriesQueueUrl"], AttributeNames=["QueueArn"])
    found = functions.list_event_source_mappings(EventSourceArn=answer["Attributes"]["QueueArn"])["EventSourceMappings"]
    polling = [each["UUID"] for each in found if each["State"] == "Enabled"]
    rules = [each for each in events.list_rules()["Rules"] if each["Name"].endswith("-look-at-subscriptions")]
    looking = [each["Name"] for each in rules if each["State"] == "ENABLED"]
    assert found
    assert rules
    for uuid in polling:
        functions.update_event_source_mapping(UUID=uuid, Enabled=False)
    for name in looking:
        events.disable_rule(Name=name)
    yield
    for uuid in polling:
        functions.update_event_source_mapping(UUID=uuid, Enabled=True)
    for name in looking:
        events.enable_rule(Name=name)


@pytest.fixture
def key(instance: Instance, storage: StackStorage, topic: str) -> Iterator[PartitionKey]:
    """Partition 0 of a topic with a subscription, whose head is armed."""
    found = parse_partition_key(storage.partition(topic))
    subscription = replace(
        PLAIN,
        name=SubscriptionName(topic),
        subscription_id=SubscriptionId(found.topic_id),
        topics={TopicName(topic): found.topic_id},
    )
    instance.stores.push.change_subscription(None, subscription)
    arm(instance, found)
    yield found
    instance.stores.push.delete_subscription(subscription, instance.clock.now_ms())


def arm(instance: Instance, key: PartitionKey) -> None:
    next_offset = instance.stores.log.heads([key])[key].next_offset
    assert instance.stores.log.arm_push(key, next_offset)[0]


@pytest.fixture
def received(stack: Stack, storage: StackStorage, topic: str) -> Callable[[], list[PushMessage]]:
    """Gives all messages for the subscription so far."""
    sqs, found = stack.root_client("sqs"), list[PushMessage]()

    def receive() -> list[PushMessage]:
        answer = sqs.receive_message(QueueUrl=storage.outputs["DeliveriesQueueUrl"], MaxNumberOfMessages=10)
        for each in answer.get("Messages", ()):
            found.append(decode_push_message(each["Body"]))
        return [message for message in found if message.name == topic]

    return receive


def send(transport: HttpTransport, topic: str, value: str) -> None:
    with Producer(transport=transport, acks="all") as producer:
        producer.send(topic, value.encode(), partition=0).result()


def test_append_to_an_armed_head_becomes_one_message(
    instance: Instance,
    key: PartitionKey,
    received: Callable[[], list[PushMessage]],
    transport: HttpTransport,
    topic: str,
) -> None:
    send(transport, topic, "first")
    until(lambda: len(received()) == 1, shown=received)
    [message] = received()
    assert (message.partition, message.lane) == (key, lane_of(key, PLAIN.config.concurrency))
    assert not instance.stores.log.heads([key])[key].has_push_waiter
    send(transport, topic, "nobody waits")
    arm(instance, key)
    send(transport, topic, "again")
    until(lambda: len(received()) >= 2, shown=received)
    assert [each.partition for each in received()] == [key, key]


def test_transaction_into_an_armed_head_becomes_a_message(
    key: PartitionKey, received: Callable[[], list[PushMessage]], transport: HttpTransport, topic: str
) -> None:
    with Producer(transport=transport, transactional_id=topic) as producer, producer.transaction() as transaction:
        transaction.send(topic, b"together", partition=0)
    until(lambda: len(received()) == 1, shown=received)
    assert received()[0].partition == key


def test_other_writes_of_an_armed_head_start_no_dispatch(
    instance: Instance,
    key: PartitionKey,
    received: Callable[[], list[PushMessage]],
    transport: HttpTransport,
    topic: str,
) -> None:
    """The stream keeps the order of a head's updates, so the message of the last append would come behind theirs."""
    log = instance.stores.log
    for number in range(3):
        send(transport, topic, f"{number}")
    until(lambda: len(received()) == 1, shown=received)
    arm(instance, key)
    head = log.heads([key])[key]
    assert log.arm(key, head.next_offset, instance.clock.now_ms())[0]
    log.mark_stored(key, {head.located_tail()[0]: 0b111})
    log.note_log_start(key, Offset(0), instance.clock.now_ms())
    log.raise_log_start(key, Offset(1))
    page = Page(base_offset=head.tail_base, refs=log.heads([key])[key].tail, max_timestamp_ms=1)
    assert log.put_page(key, page) == page
    assert log.shorten_tail(key, page)[0]
    assert log.heads([key])[key].has_push_waiter
    send(transport, topic, "last")
    until(lambda: len(received()) >= 2, shown=received)
    assert [each.partition for each in received()] == [key, key]
