"""Share groups that a template declares."""

from typing import Any

import pytest

from penstock_service.instance.instance import Instance
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.create_topic import create_topic
from tests.handlers.provision.template import Template, config


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
