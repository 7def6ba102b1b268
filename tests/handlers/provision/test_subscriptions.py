"""Subscriptions that a template declares."""

from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import TopicName
from penstock_core.push.targets.target import TopicTarget
from penstock_service.instance.instance import Instance
from penstock_service.push.subscriptions import find_subscription
from penstock_service.topics.create_topic import create_topic
from tests.handlers.provision.template import Template, config

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
