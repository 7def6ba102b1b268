"""Topics that a template declares: made, altered in place, and deleted only where the template says so.

Schedules that a template declares.

Share groups that a template declares.

Subscriptions that a template declares.
"""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicName
from penstock_core.push.targets.target import Target, TopicTarget
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.subscriptions import find_subscription
from penstock_service.schedules.put_schedule import ScheduleWish, find_schedule, put_schedule
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.handlers.provision.template import Template, config
from tests.support.service import SteppedClock


def test_topic_is_made_with_partitions_and_settings(topic: Template, to: Instance) -> None:
    answer = topic.create(Name="orders", Partitions="6", Config=config(retention_ms=60_000))
    found = to.topic_cache.read_through("orders")
    assert (found.partitions, found.config.retention_ms) == (6, 60_000)
    assert answer["Status"] == "SUCCESS"
    assert answer["Data"] == {"Name": "orders", "Id": found.topic_id}
    assert answer["PhysicalResourceId"] == f"orders/{found.topic_id}"
    assert {answer[each] for each in ("RequestId", "LogicalResourceId")} == {"request-1", "Orders"}


def test_topic_has_one_partition_and_defaults_when_the_template_says_nothing(topic: Template, to: Instance) -> None:
    topic.create(Name="orders")
    assert to.topic_cache.read_through("orders").partitions == 1


def test_topic_is_altered_in_place(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", Partitions="2", Config=config(retention_ms=60_000, max_batch_bytes=50_000))
    made = to.topic_cache.read_through("orders")
    first_id = topic.resource_id
    answer = topic.update(Name="orders", Partitions="4", Config=config(max_batch_bytes=70_000))
    found = to.topic_cache.read_through("orders")
    assert answer["PhysicalResourceId"] == first_id
    assert (found.topic_id, found.partitions, found.config.max_batch_bytes) == (made.topic_id, 4, 70_000)
    assert found.config.retention_ms != 60_000, "a setting that the template dropped is at its default"


def test_setting_that_an_operator_changed_stays_when_no_template_had_it(topic: Template, to: Instance) -> None:
    topic.create(Name="orders")
    Template(to, "Topic").create(Name="orders", Config=config(retention_ms=60_000))
    topic.update(Name="orders", Partitions="2")
    assert to.topic_cache.read_through("orders").config.retention_ms == 60_000


def test_partitions_drain_when_an_update_declares_fewer(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", Partitions="4")
    answer = topic.update(Name="orders", Partitions="2")
    assert answer["Status"] == "SUCCESS"
    found = to.topic_cache.read_through("orders")
    assert (found.partitions, found.writable_partitions) == (4, 2)


def test_create_with_fewer_partitions_than_the_topic_has_fails_with_the_reason(topic: Template, to: Instance) -> None:
    create_topic(to, "orders", 4, {})
    answer = topic.create(Name="orders", Partitions="2")
    assert answer["Status"] == "FAILED"
    assert "Declare it with 4" in answer["Reason"]
    assert to.topic_cache.read_through("orders").writable_partitions == 4


def test_partitions_stay_when_the_stack_rolls_an_increase_back(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", Partitions="2")
    topic.update(Name="orders", Partitions="4")
    topic.stack.is_in_rollback = True
    answer = topic.update(Name="orders", Partitions="2")
    assert answer["Status"] == "SUCCESS"
    assert to.topic_cache.read_through("orders").partitions == 4


def test_every_mistake_is_in_the_reason(topic: Template, to: Instance) -> None:
    answer = topic.create(Name="a/b", Partitions="0", Config=config(retention_ms="long", colour=1))
    assert answer["Status"] == "FAILED"
    for part in ("'a/b'", "0 partitions", "retention_ms='long'", "'colour'"):
        assert part in answer["Reason"]
    assert to.stores.topics.list() == []


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"Name": "orders", "Partitions": "many"}, "Partitions is 'many'"),
        ({"Name": "orders", "Partitions": "-1"}, "Partitions is '-1'"),
        ({"Name": "orders", "Config": "retention_ms=1"}, "Config is"),
        ({"Name": "orders", "Config": "[1]"}, "Config is '[1]'"),
        ({"Name": "orders", "Config": {"retention_ms": "1"}}, "Config is"),
        ({"Partitions": "1"}, "Name is None"),
    ],
)
def test_properties_of_another_form_are_refused(topic: Template, properties: dict[str, Any], told: str) -> None:
    answer = topic.create(**properties)
    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]


def test_long_reason_fits_into_an_answer(topic: Template) -> None:
    answer = topic.create(Name="orders", Config=config(**{f"ü{number}": "ü" * 200 for number in range(300)}))
    assert answer["Status"] == "FAILED"
    assert len(answer["Reason"]) > 500


def test_topic_stays_when_its_resource_goes(topic: Template, to: Instance) -> None:
    topic.create(Name="orders")
    assert topic.delete()["Status"] == "SUCCESS"
    assert to.topic_cache.read_through("orders")


def test_topic_goes_with_its_resource_when_the_template_says_so(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", OnDelete="destroy")
    assert topic.delete()["Status"] == "SUCCESS"
    assert topic.delete()["Status"] == "SUCCESS", "CloudFormation may repeat itself"
    assert to.stores.topics.list() == []


def test_topic_that_was_there_is_altered_and_never_deleted(topic: Template, to: Instance) -> None:
    made = create_topic(to, "orders", 2, {"retention_ms": 60_000})
    answer = topic.create(Name="orders", Partitions="3", OnDelete="destroy", Config=config(max_batch_bytes=50_000))
    found = to.topic_cache.read_through("orders")
    assert (found.topic_id, found.partitions) == (made.topic_id, 3)
    assert (found.config.retention_ms, found.config.max_batch_bytes) == (60_000, 50_000)
    assert answer["PhysicalResourceId"] == "orders"
    topic.update(Name="orders", Partitions="3", OnDelete="destroy")
    assert topic.delete()["Status"] == "SUCCESS"
    assert to.topic_cache.read_through("orders")


def test_topic_that_an_operator_made_anew_is_not_the_stacks(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", OnDelete="destroy")
    delete_topic(to, "orders")
    create_topic(to, "orders", 1, {})
    topic.delete()
    assert to.topic_cache.read_through("orders")


def test_topic_that_was_deleted_by_hand_comes_back_with_an_update(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", OnDelete="destroy")
    first_id = topic.resource_id
    delete_topic(to, "orders")
    answer = topic.update(Name="orders", Partitions="2", OnDelete="destroy")
    assert answer["PhysicalResourceId"] == f"orders/{to.topic_cache.read_through('orders').topic_id}"
    topic.delete(first_id)
    assert to.topic_cache.read_through("orders").partitions == 2, "CloudFormation deletes the id that was replaced"


def test_new_name_is_a_new_topic_and_the_old_one_stays(topic: Template, to: Instance) -> None:
    topic.create(Name="orders", Config=config(retention_ms=60_000))
    first_id = topic.resource_id
    topic.update(Name="sales")
    assert topic.resource_id.startswith("sales/")
    topic.delete(first_id)
    assert {each.name for each in to.stores.topics.list()} == {"orders", "sales"}


def test_create_that_failed_deletes_nothing(topic: Template, to: Instance) -> None:
    create_topic(to, "orders", 4, {})
    failed = topic.create(Name="orders", Partitions="2", OnDelete="destroy")
    assert failed["Status"] == "FAILED"
    topic.properties = {"Name": "orders", "OnDelete": "destroy"}
    assert topic.delete(failed["PhysicalResourceId"])["Status"] == "SUCCESS"
    assert to.topic_cache.read_through("orders").partitions == 4


def test_rollback_of_wrong_properties_succeeds(topic: Template) -> None:
    failed = topic.create(Name=["orders"], OnDelete="destroy")
    assert failed["Status"] == "FAILED"
    topic.properties = {"Name": ["orders"], "OnDelete": "destroy"}
    assert topic.delete(failed["PhysicalResourceId"])["Status"] == "SUCCESS"


WISH = {"Name": "report", "Topic": "orders", "Cron": "0 9 * * *", "TimeZone": "UTC", "Record": config(value="go")}


def test_schedule_is_made_altered_and_deleted(schedule: Template, to: Instance) -> None:
    made = schedule.create(**WISH, OnDelete="destroy")
    found = find_schedule(to, "report")
    assert made["PhysicalResourceId"] == f"report/{found.schedule_id}"
    assert (found.times.cron, found.record.value, found.is_enabled) == ("0 9 * * *", b"go", True)
    put_schedule(to, "report", ScheduleWish(is_enabled=False))
    altered = schedule.update(**{**WISH, "Cron": "0 8 * * *"}, OnDelete="destroy")
    found = find_schedule(to, "report")
    assert altered["PhysicalResourceId"] == made["PhysicalResourceId"]
    assert (found.times.cron, found.is_enabled) == ("0 8 * * *", True)
    assert schedule.delete()["Status"] == "SUCCESS"
    with pytest.raises(PenstockError, match="report"):
        find_schedule(to, "report")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"Cron": "9 o'clock"}, "has 2 fields"),
        ({"TimeZone": "Berlin"}, "Europe/Berlin"),
        ({"Topic": "absent"}, "topic 'absent' does not exist"),
        ({"Record": "go"}, "Record"),
        ({"Record": config(valeu="go")}, "Record"),
        ({"Cron": 5}, "Cron"),
    ],
)
def test_schedule_with_a_mistake_fails_with_the_reason(
    schedule: Template, properties: dict[str, Any], told: str
) -> None:
    answer = schedule.create(**{**WISH, **properties})
    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]


def test_share_group_is_made_altered_and_deleted(group: Template, to: Instance) -> None:
    create_topic(to, "sales", 1, {})
    made = group.create(Name="workers", Topics=["orders"], Config=config(lock_ms=10_000), OnDelete="destroy")
    found = to.share_group_cache.read_through("workers")
    assert made["PhysicalResourceId"] == f"workers/{found.share_group_id}"
    assert (set(found.topics), found.config.lock_ms) == ({"orders"}, 10_000)
    group.update(Name="workers", Topics=["orders", "sales"], OnDelete="destroy")
    found = to.share_group_cache.read_through("workers")
    assert set(found.topics) == {"orders", "sales"}
    assert found.config.lock_ms != 10_000
    assert group.resource_id == made["PhysicalResourceId"]
    group.delete()
    assert to.stores.share.get_group(found.name) is None


def test_share_group_stays_when_its_resource_goes(group: Template, to: Instance) -> None:
    group.create(Name="workers", Topics=["orders"])
    group.delete()
    assert to.share_group_cache.read_through("workers")


def test_share_group_that_was_there_is_altered_and_never_deleted(group: Template, to: Instance) -> None:
    put_share_group(to, "workers", ["orders"], {"lock_ms": 10_000})
    group.create(Name="workers", Topics=["orders"], OnDelete="destroy")
    group.delete()
    assert to.share_group_cache.read_through("workers").config.lock_ms == 10_000


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"Topics": "orders"}, "Topics is 'orders'"),
        ({"Topics": [{"Ref": "Orders"}]}, "Topics is"),
        ({"Topics": ["absent"]}, "topic 'absent' does not exist"),
        ({"Topics": ["orders"], "Config": config(lock_ms=1, ordering="random")}, "lock_ms=1"),
        ({"Topics": ["orders"], "Config": config(lock_ms=1, ordering="random")}, "ordering='random'"),
        ({"Topics": ["orders"], "Config": config(deliveries_max=5)}, "without dead_letter_topic"),
    ],
)
def test_share_group_with_a_mistake_fails_with_the_reason(
    group: Template, properties: dict[str, Any], told: str
) -> None:
    answer = group.create(Name="workers", **properties)
    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]


TO_MIRROR = config(topic="mirror")


def test_subscription_is_made_altered_and_deleted(subscription: Template, to: Instance) -> None:
    made = subscription.create(
        Name="copies", Topics=["orders"], Target=TO_MIRROR, Config=config(batch_records=7), OnDelete="destroy"
    )
    found = find_subscription(to, "copies")
    assert made["PhysicalResourceId"] == f"copies/{found.subscription_id}"
    assert (set(found.topics), found.target, found.config.batch_records) == (
        {"orders"},
        TopicTarget(topic=TopicName("mirror")),
        7,
    )
    create_topic(to, "sales", 1, {})
    altered = subscription.update(Name="copies", Topics=["orders", "sales"], Target=TO_MIRROR, OnDelete="destroy")
    found = find_subscription(to, "copies")
    assert altered["PhysicalResourceId"] == made["PhysicalResourceId"]
    assert set(found.topics) == {"orders", "sales"}
    assert found.config.batch_records != 7
    assert subscription.delete()["Status"] == "SUCCESS"
    with pytest.raises(PenstockError, match="copies"):
        find_subscription(to, "copies")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"Target": "mirror"}, "Target is 'mirror'"),
        ({"Target": config(pigeon="mirror")}, "pigeon"),
        ({"Target": TO_MIRROR, "Topics": ["absent"]}, "topic 'absent' does not exist"),
        ({"Target": TO_MIRROR, "Config": config(batch_records=0, mode="random")}, "batch_records=0"),
        ({"Target": TO_MIRROR, "Config": config(batch_records=0, mode="random")}, "mode='random'"),
    ],
)
def test_subscription_with_a_mistake_fails_with_the_reason(
    subscription: Template, properties: dict[str, Any], told: str
) -> None:
    answer = subscription.create(**{"Name": "copies", "Topics": ["orders"], **properties})
    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]


TO_STAGE = config(stage={"url": "https://b.example"})


@pytest.mark.parametrize(
    ("target", "refusals", "status", "waited_ms"),
    [
        (TO_STAGE, 4, "SUCCESS", 27_000),
        (TO_STAGE, 5, "FAILED", 27_000),
        (config(**{"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}), 1, "FAILED", 0),
    ],
)
def test_role_of_a_mirror_that_cannot_be_assumed_yet_is_tried_again(
    subscription: Template,
    to: Instance,
    clock: SteppedClock,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    refusals: int,
    status: str,
    waited_ms: int,
) -> None:
    """IAM shows a new policy some seconds later. A target of another kind is refused at once."""
    targets = to.stores.targets
    assert isinstance(targets, MemoryTargets)
    asked: list[Target] = []

    def check(wanted: Target) -> None:
        asked.append(wanted)
        if len(asked) <= refusals:
            raise PenstockError(ErrorCode.ACCESS_DENIED, "role cannot be assumed")

    monkeypatch.setattr(targets, "check", check)  # IAM, which learns late
    began_ms = clock.now_ms()
    answer = subscription.create(Name="dr", Topics=["orders"], Target=target, Config=config(start="earliest"))
    assert answer["Status"] == status, answer
    assert clock.now_ms() - began_ms == waited_ms
