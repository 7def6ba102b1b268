"""Counts what AWS meters of members, share workers, subscriptions, and of small requests that become items.

The queue of deliveries and the targets are in memory, so their requests to SQS are counted as they are made. Lambda's
own receive and delete of each message are added. The target's own function is not Penstock's to pay.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.bill.deployment import BilledDeployment, BilledProfile, BillError
from bench.bill.idle_consumers import bill_busy_member
from bench.bill.shared_records import bill_waiting_worker
from bench.money.capture import (
    MANY_SEGMENTS,
    ROUNDS,
    TOPIC,
    Counting,
    Counts,
    append,
    count_appends,
    count_fetches,
    of_bill,
    producer_of,
    topic_of,
)
from penstock import Admin
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import KIB
from penstock_core.log.inline import BOUNDS_OF_PROFILES
from penstock_core.log.wake_up import PushEvent
from penstock_core.push.lane import encode_push_message
from penstock_core.records import frame
from penstock_handlers import deliver
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryTargets
from penstock_service.push.dispatch import dispatch

ITEM_RECORD_BYTES = 1_000
_GROUP, _SUBSCRIPTION = "workers", "packing"
_TARGET = {"lambda": "arn:aws:lambda:us-east-1:123456789012:function:pack"}
_POLLS = 2  # Lambda's requests to SQS for each message: it is received, and deleted
_WARM_UP = 4


def count_heartbeat(profile: BilledProfile) -> Counts:
    """One heartbeat of a member that gets records."""
    bill = bill_busy_member(profile)
    return of_bill(bill, "groups", bill.requests)


def count_idle_worker(profile: BilledProfile) -> Counts:
    """An hour of a share worker of six partitions that waits for wake-ups and gets none."""
    return of_bill(bill_waiting_worker(profile), "share", 1) | {"APPSYNC_MINUTES": 60}


def count_acquires(profile: BilledProfile, segments: int) -> Counts:
    """One acquire that accepts the records of the one before, and finds those of so many requests, a record each."""
    with topic_of(profile, 1) as counting, producer_of(counting.deployment) as producer:
        _make_share_group(counting.deployment)
        held: Sequence[Mapping[str, Any]] = ()
        all_counts = []
        for _ in range(1 + ROUNDS):
            for _ in range(segments):
                append(producer, KIB, 1)
            counting.start()
            held = _acquire(counting.deployment, held)
            if sum(end - start for lock in held for start, end in lock["ranges"]) != segments:
                raise BillError(f"an acquire found {held}, and not {segments} records")
            all_counts.append(counting.take(1, "share", answer_bytes=KIB * segments))
        return _mean(all_counts[1:])  # the first one accepts nothing


def count_arming_acquires(profile: BilledProfile, partitions: int) -> Counts:
    """One acquire that finds nothing in so many partitions and arms them, because an append has woken the workers."""
    with topic_of(profile, partitions) as counting, producer_of(counting.deployment) as producer:
        _make_share_group(counting.deployment)
        all_counts = []
        for _ in range(ROUNDS):
            append(producer, KIB, partitions)
            held = _acquire(counting.deployment, ())
            while held:
                held = _acquire(counting.deployment, held)
            counting.start()
            _acquire(counting.deployment, (), arm=True)
            all_counts.append(counting.take(1, "share"))
        return _mean(all_counts)


def count_deliveries(profile: BilledProfile, segments: int) -> Counts:
    """One delivery of a subscription, from the wake-up on, with the records of so many requests to one partition."""
    with topic_of(profile, 1, pushes=True) as counting, producer_of(counting.deployment) as producer:
        deployment = counting.deployment
        with Admin(transport=deployment) as admin:
            admin.put_subscription(_SUBSCRIPTION, TOPIC, _TARGET, {})
            topic_id = TopicId(admin.describe_topic(TOPIC).topic.topic_id)
        _deliver_all(counting)
        all_counts = []
        for _ in range(_WARM_UP + ROUNDS):
            for _ in range(segments):
                append(producer, KIB, 1)
            counting.start()
            _wake(deployment, PartitionKey(topic_id, Partition(0)))
            woken = counting.take(1, "dispatch")
            all_counts.append(_total([woken, _deliver_all(counting)]))
        targets = deployment.instance.stores.targets
        assert isinstance(targets, MemoryTargets)
        if len(targets.deliveries) != _WARM_UP + ROUNDS:
            raise BillError(f"there were {len(targets.deliveries)} deliveries")
        return _mean(all_counts[_WARM_UP:])


def count_items(profile: BilledProfile) -> dict[str, Counts]:
    """A request of one record that becomes an item with a TTL, and fetches of one and of more such requests.

    The item is a part of the bytes in the index.
    """
    bounds = str(BOUNDS_OF_PROFILES[profile.name])
    return {
        "append_as_item": count_appends(profile, ITEM_RECORD_BYTES, 1, bounds),
        "fetch_of_item": count_fetches(profile, ITEM_RECORD_BYTES, inline_bytes_max=bounds),
        "fetch_of_many_items": count_fetches(
            profile, ITEM_RECORD_BYTES, segments=MANY_SEGMENTS, inline_bytes_max=bounds
        ),
    }


def _make_share_group(deployment: BilledDeployment) -> None:
    with Admin(transport=deployment) as admin:
        admin.create_share_group(_GROUP, [TOPIC])


def _acquire(
    deployment: BilledDeployment, held: Sequence[Mapping[str, Any]], *, arm: bool = False
) -> Sequence[Mapping[str, Any]]:
    """One call: it accepts the locks of the one before, and answers with its own."""
    accepted = [
        {**{name: lock[name] for name in ("topic", "partition", "lock_id")}, "type": "accept", "offsets": None}
        for lock in held
    ]
    body = json.dumps({"max_records": 100, "acknowledge": accepted, "arm": arm}).encode()
    response = deployment.call("POST", f"/v1/share-groups/{_GROUP}/acquire", {}, {}, body)
    if response.status != 200:
        raise BillError(f"the acquire failed: {response.body!r}")
    header: Any = frame.decode(response.body)[0]
    locks: Sequence[Mapping[str, Any]] = header["partitions"]
    if arm and (locks or not all(each["armed"] for each in header["watch"])):
        raise BillError(f"an acquire that was to arm found {locks}")
    return locks


def _total(all_counts: Iterable[Counts]) -> Counts:
    total: Counts = {}
    for counts in all_counts:
        for name, value in counts.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _mean(all_counts: Sequence[Counts]) -> Counts:
    return {name: round(value / len(all_counts), 6) for name, value in _total(all_counts).items()}


def _wake(deployment: BilledDeployment, key: PartitionKey) -> None:
    """Dispatches, as the function `dispatch` does for an append that took a push waiter."""
    stores = deployment.instance.stores
    event = PushEvent(key=key, next_offset=stores.log.heads([key])[key].next_offset)
    with deployment.billed("dispatch", moved_bytes=0):
        dispatch(stores.push, stores.deliveries, deployment.instance.executor, [event])


def _deliver_all(counting: Counting) -> Counts:
    """Runs the function `deliver` for each message, as Lambda does, until none is visible."""
    deployment = counting.deployment
    queue = deployment.instance.stores.deliveries
    assert isinstance(queue, MemoryDeliveryQueue)
    found: list[Counts] = []
    while received := queue.receive():
        [message] = received
        record = {
            "messageId": message.message_id,
            "receiptHandle": message.receipt,
            "body": encode_push_message(message.message),
        }
        counting.start()
        deployment.run("deliver", deliver.handler, {"Records": [record]})
        queue.delete(message.receipt)
        counts = counting.take(1, "deliver")
        found.append(counts | {"SQS_REQUESTS": counts.get("SQS_REQUESTS", 0.0) + _POLLS})
    return _total(found)
