"""Counts what AWS meters of members, share workers, subscriptions, and of small requests that become items.

The queue of deliveries and the targets are in memory, so their requests to SQS are counted as they are made. Lambda's
own receive and delete of each message are added. The target's own function is not Penstock's to pay.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.bill.deployment import (
    FUNCTION_MS_PER_MIB,
    BilledDeployment,
    BilledProfile,
    BillError,
    billed_deployment,
)
from bench.bill.idle_consumers import bill_busy_member
from bench.bill.shared_records import bill_waiting_worker
from bench.money.capture import (
    MANY_PARTITIONS,
    MANY_SEGMENTS,
    ROUNDS,
    TOPIC,
    Counting,
    Counts,
    append,
    commit,
    count_appends,
    count_fetches,
    index_bytes,
    of_bill,
    producer_of,
    topic_of,
)
from penstock import Admin
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import KIB, MIB, MIRROR_OFFSETS_MS, MIRROR_REST_MS
from penstock_core.log.inline import BOUNDS_OF_PROFILES
from penstock_core.log.wake_up import PushEvent
from penstock_core.mirror.push import MirrorPush, PushAnswer, push_header
from penstock_core.push.lane import encode_push_message
from penstock_core.push.targets.target import StageTarget
from penstock_core.records import frame
from penstock_handlers import deliver
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryTargets
from penstock_service.push.dispatch import dispatch

ITEM_RECORD_BYTES = 1_000
_GROUP, _SUBSCRIPTION = "workers", "packing"
_TARGET = {"lambda": "arn:aws:lambda:us-east-1:123456789012:function:pack"}
_STAGE_URL = "https://b.example"
MIRRORED_SIZES = (KIB, 64 * KIB, MIB, 3 * MIB)  # the bytes of a push of one request
_ONE_LANE = {"mode": "ordered", "start": "earliest", "concurrency": 1}
_DELIVER_GB = FUNCTION_SIZES["deliver"].memory_mb / KIB
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


def count_mirroring(
    profile: BilledProfile, size: int, segments: int = 1, inline_bytes_max: str = "0"
) -> tuple[Counts, Counts]:
    """One push of so many requests of `size` to a mirror: what it costs at the source, and at the other stage.

    The source's pushes are noted, and then sent to a stage of their own. The wait for it is left out.
    """
    pushes, source = _noted_pushes(profile, size, segments, inline_bytes_max)
    if len(pushes) != _WARM_UP + ROUNDS or any(len(each.parts) != segments for each in pushes):
        raise BillError(f"there were {[len(each.parts) for each in pushes]} parts in the pushes")
    moved_gb_s = _DELIVER_GB * FUNCTION_MS_PER_MIB * size * segments / MIB / 1_000
    source["LAMBDA_GB_SECONDS"] = round(source["LAMBDA_GB_SECONDS"] + moved_gb_s, 6)
    return source, _count_appended(profile, pushes, inline_bytes_max)


def count_mirror_round(profile: BilledProfile, partitions: int, pushes: int) -> Counts:
    """One delivery of a lane to a mirror that rests between two: it pushes a request of 1 KiB of some partitions."""
    opened = topic_of(profile, partitions, pushes=True)
    with opened as counting, producer_of(counting.deployment) as producer:
        deployment, taken = counting.deployment, list[int]()
        targets, queue = deployment.instance.stores.targets, deployment.instance.stores.deliveries
        assert isinstance(targets, MemoryTargets)
        assert isinstance(queue, MemoryDeliveryQueue)

        def take(_: StageTarget, push: MirrorPush) -> PushAnswer:
            taken.append(len(push.parts))
            return PushAnswer(next_offset=push.next_offset, topic_id="mirrored")

        targets.stage = take
        with Admin(transport=deployment) as admin:
            admin.put_subscription(_SUBSCRIPTION, TOPIC, {"stage": {"url": _STAGE_URL}}, _ONE_LANE)
            topic_id = TopicId(admin.describe_topic(TOPIC).topic.topic_id)
        _deliver_all(counting)
        all_counts = []
        for _ in range(_WARM_UP + ROUNDS):
            append(producer, KIB * pushes, pushes)
            if not queue.messages:  # the lane does not rest yet
                _wake(deployment, PartitionKey(topic_id, Partition(0)))
            taken.clear()
            all_counts.append(_deliver_all(counting))
            deployment.clock.sleep_ms(2 * MIRROR_REST_MS)  # the queue counts whole seconds
            if taken != [1] * pushes:
                raise BillError(f"a delivery after a rest pushed {taken}, and not {pushes} parts")
        return _mean(all_counts[_WARM_UP:])


def count_telling(profile: BilledProfile) -> tuple[Counts, Counts]:
    """One telling of the offsets of a group, as a surplus of the delivery that it is a part of, and at the mirror."""
    pushes, with_telling = _noted_pushes(profile, KIB, 1, "0", commits=True)
    _, without = _noted_pushes(profile, KIB, 1, "0")
    tellings = [each for each in pushes if each.offsets is not None]
    if len(tellings) != _WARM_UP + ROUNDS:
        raise BillError(f"there were {len(tellings)} tellings")
    surplus = {name: round(value - without.get(name, 0.0), 6) for name, value in with_telling.items()}
    return {name: value for name, value in surplus.items() if value > 0}, _count_appended(
        profile, pushes, "0", tellings
    )


def _noted_pushes(
    profile: BilledProfile, size: int, segments: int, inline_bytes_max: str, *, commits: bool = False
) -> tuple[list[MirrorPush], Counts]:
    """The pushes of a topic to a mirror that takes all, and the mean of one delivery, from its wake-up on.

    With `commits`, a group commits before each, and so late that each delivery tells its offsets.
    """
    pushes: list[MirrorPush] = []

    def take(_: StageTarget, push: MirrorPush) -> PushAnswer:
        pushes.append(push)
        if push.offsets is None:
            return PushAnswer(next_offset=push.next_offset, topic_id="mirrored")
        number = push.offsets.replaces + 1
        return PushAnswer(
            next_offset=push.base_offset, topic_id="mirrored", offsets_number=number, is_offsets_kept=True
        )

    opened = topic_of(profile, 1, inline_bytes_max, pushes=True)
    with opened as counting, producer_of(counting.deployment) as producer:
        deployment = counting.deployment
        targets = deployment.instance.stores.targets
        assert isinstance(targets, MemoryTargets)
        targets.stage = take
        with Admin(transport=deployment) as admin:
            admin.create_mirror(_SUBSCRIPTION, TOPIC, _STAGE_URL)
            topic_id = TopicId(admin.describe_topic(TOPIC).topic.topic_id)
        _deliver_all(counting)
        pushes.clear()
        all_counts = []
        for number in range(_WARM_UP + ROUNDS):
            for _ in range(segments):
                append(producer, size, 1)
            if commits:
                commit(deployment, number)
                deployment.clock.sleep_ms(MIRROR_OFFSETS_MS)
            counting.start()
            _wake(deployment, PartitionKey(topic_id, Partition(0)))
            woken = counting.take(1, "dispatch")
            all_counts.append(_total([woken, _deliver_all(counting)]))
        return pushes, _mean(all_counts[_WARM_UP:])


def _count_appended(
    profile: BilledProfile, pushes: Sequence[MirrorPush], inline_bytes_max: str, counted: Sequence[MirrorPush] = ()
) -> Counts:
    """One of the pushes at a stage that gets them in order: the mean of `counted`, of all after the first ones if none.

    The stage is open, as that of the source is. `INDEX_BYTES` are those that the push leaves.
    """
    with billed_deployment(profile, inline_bytes_max=inline_bytes_max) as deployment:
        counting = Counting(profile, deployment)
        chosen = {id(each) for each in [*counted[_WARM_UP:]] or pushes[_WARM_UP:]}
        all_counts, before = [], 0
        for number, push in enumerate(pushes):
            if number == _WARM_UP:
                before = index_bytes()
            counting.start()
            body = frame.encode(push_header(push), [push.data])
            answer = deployment.call("POST", f"/v1/mirrors/{push.mirror}/append", {}, {}, body)
            if answer.status != 200 or json.loads(answer.body)["diverged"]:
                raise BillError(f"the push failed: {answer.body!r}")
            counts = counting.take(1, "admin")
            all_counts += [counts] if id(push) in chosen else []
        added = {} if counted else {"INDEX_BYTES": round((index_bytes() - before) / len(chosen), 1)}
        return _mean(all_counts) | added


def count_mirrors(profile: BilledProfile) -> dict[str, object]:
    """Pushes of several sizes and of more requests, of those that are items, and a telling of offsets."""
    bounds = str(BOUNDS_OF_PROFILES[profile.name])
    by_size = {str(size): count_mirroring(profile, size) for size in MIRRORED_SIZES}
    many = count_mirroring(profile, KIB, MANY_SEGMENTS)
    item = count_mirroring(profile, ITEM_RECORD_BYTES, inline_bytes_max=bounds)
    items = count_mirroring(profile, ITEM_RECORD_BYTES, MANY_SEGMENTS, bounds)
    telling = count_telling(profile)
    return {
        "mirror_push": {size: pair[0] for size, pair in by_size.items()},
        "mirror_append": {size: pair[1] for size, pair in by_size.items()},
        "mirror_push_of_many_segments": many[0],
        "mirror_append_of_many_segments": many[1],
        "mirror_push_of_item": item[0],
        "mirror_append_of_item": item[1],
        "mirror_push_of_many_items": items[0],
        "mirror_append_of_many_items": items[1],
        "mirror_telling": _total(telling),
        "mirror_round": count_mirror_round(profile, MANY_PARTITIONS // 2, 1),
        "mirror_round_of_many_partitions": count_mirror_round(profile, MANY_PARTITIONS, 1),
        "mirror_round_of_many_pushes": count_mirror_round(profile, MANY_PARTITIONS, MANY_PARTITIONS),
    }


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
