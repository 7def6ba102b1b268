"""The function `dispatch`, as Lambda calls it with records of the log table's stream."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, SubscriptionName, TopicName
from penstock_core.limits import DISPATCH_LATE_MS
from penstock_core.log.index import Head
from penstock_core.storage.head_item import head_item, head_key
from penstock_handlers.dispatch import serve
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from tests.core.push.push_samples import PLAIN
from tests.support.service import Intercepted, SteppedClock, another_instance, key_of, new_topic, send

NONE_FAILED: dict[str, list[dict[str, str]]] = {"batchItemFailures": []}


@pytest.fixture
def instance() -> Instance:
    return memory_instance(clock=SteppedClock())


@pytest.fixture
def orders(instance: Instance) -> PartitionKey:
    """A partition of a topic with one subscription."""
    topic = new_topic(instance, "orders")
    key = key_of(instance, topic)
    subscribe(instance, key, "packing")
    return key


def subscribe(instance: Instance, key: PartitionKey, name: str) -> None:
    subscription = replace(
        PLAIN,
        name=SubscriptionName(name),
        subscription_id=SubscriptionId(name.encode().hex().ljust(20, "0")),
        topics={TopicName("orders"): key.topic_id},
    )
    instance.stores.push.change_subscription(None, subscription)


def appended_to(instance: Instance, key: PartitionKey, number: int = 1) -> dict[str, Any]:
    """The stream's record of an append to the head, which a subscription had armed, as Lambda hands it over."""
    log = instance.stores.log
    is_armed, before = log.arm_push(key, log.heads([key])[key].next_offset)
    assert is_armed
    assert before is not None
    send(instance, "orders", "x")
    return streamed(instance, key, before, log.heads([key])[key], number)


def streamed(
    instance: Instance, key: PartitionKey, before: Head, after: Head | None, number: int = 1
) -> dict[str, Any]:
    images = {"OldImage": head_item(key, before)} | ({} if after is None else {"NewImage": head_item(key, after)})
    written_s = instance.clock.now_ms() // 1_000
    told = {
        "Keys": head_key(key),
        **images,
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": written_s,
    }
    as_json = json.loads(json.dumps(told, default=lambda data: base64.b64encode(data).decode()))
    return {"eventSource": "aws:dynamodb", "eventName": "MODIFY", "dynamodb": as_json}


def sent(instance: Instance) -> list[str]:
    """The names of the subscriptions that got messages."""
    assert isinstance(instance.stores.deliveries, MemoryDeliveryQueue)
    return [message.name for message in instance.stores.deliveries.messages]


def test_append_to_an_armed_head_sends_a_message_to_each_subscription(instance: Instance, orders: PartitionKey) -> None:
    subscribe(instance, orders, "billing")
    answer, figures = serve({"Records": [appended_to(instance, orders)]}, instance)
    assert (answer, sorted(sent(instance))) == (NONE_FAILED, ["billing", "packing"])
    assert figures == {"records": 1, "wake_ups": 1, "messages": 2, "dispatches_failed": 0, "dispatches_late": 0}


def test_record_in_an_added_partition_sends_a_message_though_no_delivery_has_been_there(
    instance: Instance, orders: PartitionKey
) -> None:
    alter_topic(instance, "orders", 2, {})
    added = orders._replace(partition=Partition(1))
    before = instance.stores.log.heads([added])[added]
    send(instance, "orders", "x", partition=1)
    after = instance.stores.log.heads([added])[added]
    assert serve({"Records": [streamed(instance, added, before, after)]}, instance)[0] == NONE_FAILED
    assert isinstance(instance.stores.deliveries, MemoryDeliveryQueue)
    assert [each.partition for each in instance.stores.deliveries.messages] == [added]


def test_write_that_takes_no_push_waiter_sends_nothing(instance: Instance, orders: PartitionKey) -> None:
    head = replace(instance.stores.log.heads([orders])[orders], has_push_waiter=True)
    records = [streamed(instance, orders, head, after) for after in (replace(head, waiter_ms=6), None)]
    answer, figures = serve({"Records": records}, instance)
    assert (answer, sent(instance), figures["wake_ups"]) == (NONE_FAILED, [], 0)


@pytest.mark.parametrize(
    "broken",
    [
        {"eventSource": "aws:dynamodb"},
        {"dynamodb": {"SequenceNumber": "7"}},
        {"dynamodb": {"SequenceNumber": "7", "OldImage": {"push_waiter": {"N": "1"}}, "NewImage": {}}},
        {"dynamodb": {"SequenceNumber": "7", "OldImage": {"push_waiter": None}, "NewImage": {}}},
    ],
)
def test_record_that_cannot_be_read_holds_up_no_other(
    instance: Instance, orders: PartitionKey, broken: dict[str, Any]
) -> None:
    answer, figures = serve({"Records": [broken, appended_to(instance, orders)]}, instance)
    assert (answer, sent(instance), figures["records"]) == (NONE_FAILED, ["packing"], 2)


def test_lambda_goes_on_from_the_first_record_whose_topic_failed(instance: Instance, orders: PartitionKey) -> None:
    other = key_of(instance, new_topic(instance, "others"))
    head = replace(instance.stores.log.heads([other])[other], has_push_waiter=True)
    grown = replace(head, next_offset=Offset(1), has_push_waiter=False)

    def subscriptions_of(original: Any, topic_id: Any) -> Any:
        if topic_id == orders.topic_id:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")
        return original(topic_id)

    push = Intercepted(instance.stores.push, subscriptions_of=subscriptions_of)
    records = [
        streamed(instance, other, head, grown, 1),
        appended_to(instance, orders, 2),
        appended_to(instance, orders, 3),
    ]
    answer, figures = serve({"Records": records}, another_instance(instance, push=push))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "2"}]}
    assert (figures["wake_ups"], figures["dispatches_failed"], sent(instance)) == (3, 1, [])
    assert serve({"Records": records[1:]}, instance)[0] == NONE_FAILED
    assert sent(instance) == ["packing"]


def test_late_wake_ups_are_counted(instance: Instance, orders: PartitionKey) -> None:
    record = appended_to(instance, orders)
    instance.clock.sleep_ms(DISPATCH_LATE_MS - 2_000)
    assert serve({"Records": [record]}, instance)[1]["dispatches_late"] == 0
    instance.clock.sleep_ms(4_000)
    assert serve({"Records": [record]}, instance)[1]["dispatches_late"] == 1
