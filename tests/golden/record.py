"""Records what this release stores: `python -m tests.golden.record` writes the files of `tests/golden/<version>`.

One story runs through the real handlers until an item of every kind is stored: on boto3 and moto for `stored.json`, in
a data folder of `penstock dev` for `folder.sql`.
"""

import base64
import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock_core.acls.rule import parse_rule
from penstock_core.ids import (
    GroupName,
    LockNonce,
    Offset,
    Partition,
    ScheduleName,
    ShareGroupId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
    new_segment_id,
)
from penstock_core.limits import EVICTION_PRODUCERS_MIN, HEAD_PRODUCERS_KEPT, TAIL_ROLL_REFS, TIMER_MS_MAX, UNLIMITED
from penstock_core.log.repair import NamedRef, Repair, encode_message
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import DeletedTopic
from penstock_core.log.wake_up import WakeUp, messages
from penstock_core.mirror.group_offsets import MirroredOffset, MirroredOffsets
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble
from penstock_core.push.lane import LaneKey, LaneState
from penstock_core.quotas.bucket import BucketKey, fresh_bucket
from penstock_core.quotas.quota import Rate, Subject
from penstock_core.records import frame
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge
from penstock_core.share.acquire import AcquireRequest, LogBounds, plan_acquire
from penstock_core.share.draft import ShareUpdate, arming
from penstock_core.share.share_group import ShareGroup, new_share_group_config
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.version import VERSION
from penstock_service.acls.change_acls import change_acls
from penstock_service.compaction.compact import compact
from penstock_service.index.heads import waiting_timers
from penstock_service.records.jump_heads import Restore, jump_heads
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.retention.retain import retain
from penstock_service.timers.promote_due import promote_due
from tests.core.push.push_samples import FULL, PLAIN
from tests.core.schedules.schedule_samples import FULL as FULL_SCHEDULE
from tests.core.schedules.schedule_samples import PLAIN as PLAIN_SCHEDULE
from tests.golden.stage import Stage, dumped_folder, empty_stage, folder_stage
from tests.handlers.test_groups import Member
from tests.handlers.test_transactions import begin, transact
from tests.service.compaction.written_topic import HOUR_MS, SMALL
from tests.service.records.test_idempotence import numbered
from tests.support.service import batch, key_of

FOLDER = Path(__file__).parent
PRODUCERS = HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + 1
APPENDS = 2 * TAIL_ROLL_REFS + 2
GONE = SubscriptionId("ef" * 10)
NONCES = ("11" * 16, "22" * 16)


def tell(stage: Stage) -> None:
    """The story. Its end has an item of every kind."""
    service = stage.service
    service.create("orders", 3, retention_ms=UNLIMITED, validate_records=True)
    service.create("table", 1, cleanup_policy="compact")
    _spend_a_quota(stage)
    service.create("gone", 1)
    assert service.call("DELETE", "/v1/topics/gone").status == 204
    for number in range(max(PRODUCERS, APPENDS)):
        assert service.produce(("orders", 0, numbered(0, f"{number}", producer_id=number + 1))).status == 200
        stage.clock.sleep_ms(10)
    for number in range(TAIL_ROLL_REFS + 1):
        assert service.produce(("orders", 1, batch(f"{number}"))).status == 200
        service.send({"key": f"{number % 3}", "value": f"{number}"}, topic="table")
    _form_group(stage)
    _transact(stage)
    stage.clock.sleep_ms(2 * HOUR_MS)
    for topic in ("orders", "table"):
        done = compact(stage.instance, topic, 0, SMALL)
        assert (done.runs, done.failures, done.refused) == (1, 0, 0), asdict(done)
    retain(stage.instance, budget_ms=1e9)
    for state in ("taken_out", "catching_up"):
        assert service.call("POST", "/v1/zones/c", {"state": state, "reason": "recorded"}).status == 200
    recover_zones(stage.instance, 0)
    assert service.call("POST", "/v1/topics/orders/truncate", {"1": 3}).status == 200
    stage.instance.stores.topics.begin(
        DeletedTopic(
            topic_id=TopicId("ab" * 10),
            name=TopicName("half"),
            partitions=1,
            deleted_at_ms=stage.clock.now_ms(),
            is_being_created=True,
        )
    )
    rules = [parse_rule("*", "write", "topic:gone", "deny"), parse_rule("arn:aws:iam::1:role/ops", "all", "*")]
    change_acls(stage.instance, rules, ())
    change_acls(stage.instance, rules[1:], (), owner="stack.resource")
    _share(stage)
    _push(stage)
    _schedules(stage)
    _delay(stage)
    _tell(stage)
    assert arm(stage, 1)
    assert arm_push(stage, 1)
    data = ("orders", 2, batch("staged"))
    assert transact(service, data, stage=0, nonce=NONCES[1]).status == 200
    service.create("tagged", 1, index_tags=True)
    _turn(stage)
    service.send({"value": "0", "headers": [["tag", "order"]]}, topic="tagged")
    service.send({"value": "1", "headers": [["penstock-expires-at", "1790000000000"]]}, topic="tagged")
    # As an append leaves it that dies before its update. A ref to it would be one that the release before refuses.
    segment_id = new_segment_id(stage.clock.now_ms(), bytes(range(10)))
    stage.instance.stores.inline.put(segment_id, b"a small segment", 0)
    stage.instance.stores.inline.put_expiring(segment_id, b"a small segment", 23)
    service.create("raised", 1)
    assert service.call("PATCH", "/v1/topics/raised", {"config": {"retention_ms": UNLIMITED}}).status == 200
    service.create("restored", 1)
    [*jump_heads(stage.instance, stage.instance.topic_cache.get("restored"), Restore(restore_id="1", harmed=None))]


def _turn(stage: Stage) -> None:
    """A topic with two generations, and one whose next generation is opening."""
    stage.service.create("turned", 1, ordering_on_change="wait")
    assert stage.service.call("PATCH", "/v1/topics/turned", {"partitions": 2}).status == 200
    stage.service.create("turning", 1, ordering_on_change="wait")
    topic = stage.instance.topic_cache.read_through("turning")
    stage.instance.stores.topics.replace(topic, topic.with_opening(2))


def _tell(stage: Stage) -> None:
    """Offsets of groups, as the source of a mirror tells them, and the note of a timer that it has told."""
    groups = {GroupName("billing"): {Partition(0): MirroredOffset(offset=Offset(2), metadata="m")}}
    offsets = MirroredOffsets(read_ms=stage.clock.now_ms(), groups=groups)
    stores, later = stage.instance.stores, key_of(stage.instance, "later")
    stores.log.put_offsets(later.topic_id, 1, offsets)
    stores.timers.note_told(waiting_timers(stage.instance, later, PlaceRange(0, TIMER_MS_MAX), 1)[0])


def _delay(stage: Stage) -> None:
    """A timer that is delivered, one that is cancelled, one that waits near, and one that waits far."""
    stage.service.create("later", 1)
    now_ms = stage.clock.now_ms()
    delays = (0, 60_000, 60_000, 10 * HOUR_MS)
    answers = stage.service.send(
        *({"value": "later", "deliver_at_ms": now_ms + each, "cancellable": True} for each in delays), topic="later"
    )
    assert promote_due(stage.instance, budget_ms=1e9).promotion.timers == 1
    answer = stage.service.call("DELETE", f"/v1/topics/later/scheduled/{answers[1]['scheduled_id']}")
    assert answer.status == 200, answer.body


def arm(stage: Stage, partition: int) -> bool:
    """Waits at the end of the partition; True if the head then has a waiter."""
    key = key_of(stage.instance, "orders", partition)
    end = stage.instance.stores.log.heads([key])[key].next_offset
    results, _ = stage.service.fetch({"topic": "orders", "partition": partition, "offset": end}, arm=True)
    return bool(results[0]["armed"])


def arm_push(stage: Stage, partition: int) -> bool:
    """Waits as a subscription at the end of the partition; True if the head then has a push waiter."""
    key = key_of(stage.instance, "orders", partition)
    end = stage.instance.stores.log.heads([key])[key].next_offset
    return stage.instance.stores.log.arm_push(key, end)[0]


def _spend_a_quota(stage: Stage) -> None:
    """Of a topic that the story does not use, so that its bucket stays as it is."""
    quota = {"subject": "topic", "name": "busy", "limits": {"produce_bytes_per_s": 1_000}}
    assert stage.service.call("PUT", "/v1/quotas", quota).status == 200
    key = BucketKey(subject=Subject.TOPIC, name="busy", rate=Rate.PRODUCE_BYTES)
    bucket = fresh_bucket(1_000, 10, stage.clock.now_ms())
    assert stage.instance.stores.quotas.begin(key, None, bucket).is_made


def _form_group(stage: Stage) -> None:
    service = stage.service
    first, second = Member(service, "m-1", client_id="host"), Member(service, "m-2", instance_id="i-2")
    told = first.beat(subscription={"topics": ["orders"], "patterns": ["or*"]}, config={"session_timeout_ms": 30_000})
    second.join()
    lease = next(each for each in told["granted"] if each["partition"] == 0)
    offset = {"topic": "orders", "partition": 0, "offset": 2, "metadata": "note", "lease_epoch": lease["lease_epoch"]}
    answer = service.call("POST", "/v1/groups/billing/offsets", {"member_id": "m-1", "offsets": [offset]})
    assert "error" not in answer.json["results"][0], answer.json
    plain = {"topic": "orders", "partition": 1, "offset": 1}
    assert service.call("POST", "/v1/groups/plain/offsets", {"offsets": [plain]}).status == 200
    _leave_group(stage, "left")
    led = {"version": None, "protocol_type": "connect", "member_count": 1, "document": "AAEC"}
    assert service.call("PUT", "/v1/groups/led/document", led).status == 200


def _leave_group(stage: Stage, group: str) -> None:
    """A group whose only member has come and gone, so its item says since when it is empty."""
    body = {"member_id": "m-1", "epoch": 0}
    for change in (
        {"sequence": 1, "subscription": {"topics": ["orders"]}},
        {"sequence": 2, "session": 1, "leave": True},
    ):
        answer = stage.service.call("POST", f"/v1/groups/{group}/heartbeat", body | change)
        assert answer.status == 200, answer.body


def _share(stage: Stage) -> None:
    """A share group whose state has a lock, two waits, the reason of a release, a waiter and an expired record."""
    store, now_ms = stage.instance.stores.share, stage.clock.now_ms()
    orders = key_of(stage.instance, "orders", 1)
    config = new_share_group_config({"dead_letter_topic": "gone", "deliveries_max": 2})
    group = ShareGroup(
        name=GroupName("workers"),
        share_group_id=ShareGroupId("cd" * 10),
        created_at_ms=now_ms,
        topics={TopicName("orders"): orders.topic_id},
        config=config,
    )
    store.change_group(None, group)
    key = ShareKey(group.share_group_id, orders.topic_id, orders.partition)
    state = store.create_state(key, Offset(0))
    request = AcquireRequest(nonce=LockNonce("nonce-01"), records_max=9, lock_ms=30_000, now_ms=now_ms)
    log = LogBounds(log_start=Offset(0), next_offset=Offset(12))
    state = _updated(stage, key, plan_acquire(state, config, log, request).update)
    [lock_id] = state.locks
    rejected = Acknowledgement(lock_id=lock_id, type=AckType.REJECT, offsets=((2, 4),), reason="recorded")
    released = Acknowledgement(lock_id=lock_id, type=AckType.RELEASE, offsets=((5, 6),), reason="recorded")
    expired = Acknowledgement(lock_id=lock_id, type=AckType.ACCEPT, offsets=((4, 5),), is_expired=True)
    state = _updated(stage, key, plan_acknowledge(state, config, [rejected, released, expired], now_ms).update)
    _updated(stage, key, arming(state, now_ms))


def _push(stage: Stage) -> None:
    """A subscription with a lane that sleeps, a partition in trouble and one that is well; and states of a gone one."""
    store, orders = stage.instance.stores.push, key_of(stage.instance, "orders", 1)
    subscription = replace(FULL, topics={TopicName("orders"): orders.topic_id})
    store.change_subscription(None, subscription)
    store.change_subscription(None, replace(PLAIN, name=SubscriptionName("gone"), subscription_id=GONE))
    store.delete_subscription(replace(PLAIN, name=SubscriptionName("gone"), subscription_id=GONE), 9)
    held = LaneState(version=1, holder="message-1", nonce="nonce-01", locked_until_ms=stage.clock.now_ms())
    assert store.put_lane(LaneKey(subscription_id=subscription.subscription_id, lane=2), held) == held
    trouble = Trouble(first_failed_ms=stage.clock.now_ms(), range_end=Offset(2), attempts=1, error="recorded")
    for partition, state in enumerate(
        (DeliveryState(offset=Offset(1)), DeliveryState(offset=Offset(1), trouble=trouble))
    ):
        key = DeliveryKey(
            subscription_id=subscription.subscription_id, topic_id=orders.topic_id, partition=Partition(partition)
        )
        assert store.put_delivery(key, state) == state


def _schedules(stage: Stage) -> None:
    """A schedule whose last run failed, and one that is disabled and never ran."""
    store, orders = stage.instance.stores.schedules, key_of(stage.instance, "orders", 0)
    store.change(None, replace(FULL_SCHEDULE, topic_id=orders.topic_id))
    resting = replace(PLAIN_SCHEDULE, name=ScheduleName("resting"), topic_id=orders.topic_id, next_ms=None)
    store.change(None, resting)


def _updated(stage: Stage, key: ShareKey, update: ShareUpdate | None) -> ShareState:
    assert update is not None
    after = stage.instance.stores.share.update(key, update).after
    assert after is not None
    return after


def _transact(stage: Stage) -> None:
    begin(stage.service)
    offsets = [{"group": "readers", "topic": "orders", "partition": 1, "offset": 1}]
    data = ("orders", 2, batch("committed"))
    assert transact(stage.service, data, stage=0, nonce=NONCES[0]).status == 200
    assert transact(stage.service, stages=1, offsets=offsets, nonce=NONCES[0]).status == 200


def in_flight(stage: Stage) -> dict[str, str]:
    """A frame and the messages that one release may send and the other receive."""
    key = key_of(stage.instance, "orders", 1)
    head = stage.instance.stores.log.heads([key])[key]
    located = head.located_tail()[0]
    repair = Repair(
        segment_id=located.ref.segment_id,
        zones=frozenset(stage.instance.stores.zone_names[2:]),
        refs=(NamedRef(key=key, located=located),),
    )
    header = {"batches": [{"topic": "orders", "partition": 1, "length": len(batch("a"))}]}
    return {
        "frame": base64.b64encode(frame.encode(header, [batch("a")])).decode(),
        "repair": encode_message(repair),
        "wake_up": messages([WakeUp(key=key, next_offset=head.next_offset)])[0].event,
    }


def recorded() -> dict[str, Any]:
    """What this release stores and sends at the end of the story."""
    with empty_stage() as stage:
        tell(stage)
        return {"release": VERSION, **stage.stored(), "in_flight": in_flight(stage)}


def recorded_folder() -> str:
    """What this release stores in a data folder at the end of the story, as SQL."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with folder_stage(folder) as stage:
            tell(stage)
        return dumped_folder(folder)


def golden(version: str = VERSION) -> dict[str, Any]:
    """What was recorded for that release."""
    stored: dict[str, Any] = json.loads((FOLDER / version / "stored.json").read_text())
    return stored


def main() -> None:
    """Writes the golden files of this release."""
    folder = FOLDER / VERSION
    folder.mkdir(exist_ok=True)
    (folder / "stored.json").write_text(json.dumps(recorded(), indent=1, sort_keys=True) + "\n")
    (folder / "folder.sql").write_text(recorded_folder())
    print(f"recorded {folder.relative_to(FOLDER.parents[1])}")


if __name__ == "__main__":
    main()
