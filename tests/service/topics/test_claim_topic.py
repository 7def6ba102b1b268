"""Partitions count as those of the principal that made them."""

import pytest

from penstock_core.errors import PenstockError
from penstock_core.quotas.quota import ClaimKind
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.topics.create_topic import create_topic
from tests.support.service import SteppedClock

ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"


@pytest.mark.parametrize("config", [{}, {"ordering_on_change": "wait"}])
def test_partitions_that_an_alteration_adds_count(config: dict[str, str]) -> None:
    instance = memory_instance(clock=SteppedClock())
    put_quota(instance, "principal", "*", {"partitions_max": 9, "topics_max": 1})
    create_topic(instance, "orders", 2, config, ADA)
    alter_topic(instance, "orders", 4, {}, ADA)
    with pytest.raises(PenstockError, match="partitions_max=9"):
        alter_topic(instance, "orders", 12, {}, ADA)
    assert instance.topic_cache.read_through("orders").writable_partitions == 4
    alter_topic(instance, "orders", 3, {}, BOB)
    alter_topic(instance, "orders", 5, {}, BOB)
    mine = instance.stores.quotas.claims(BOB)
    assert [each.kind for each in mine] == [ClaimKind.PARTITIONS]
    with pytest.raises(PenstockError, match="topics_max=1"):
        create_topic(instance, "more", 1, {}, ADA)
    create_topic(instance, "more", 1, {}, BOB)


def test_partitions_that_open_again_are_claimed_once() -> None:
    instance = memory_instance(clock=SteppedClock())
    create_topic(instance, "orders", 4, {}, ADA)
    alter_topic(instance, "orders", 2, {}, ADA)
    alter_topic(instance, "orders", 4, {}, ADA)
    [claim] = instance.stores.quotas.claims(ADA)
    assert claim.partitions == 4
