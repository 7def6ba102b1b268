"""Topics of share groups with topic_order=listed have 100 partitions in all, whoever changes what."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_LISTED_PARTITIONS_MAX
from penstock_service.instance.instance import Instance
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic
from tests.support.service import new_topic

GROUP, HIGH, LOW = "workers", "urgent", "bulk"


def refusal(instance: Instance, topics: list[str], **config: str) -> str:
    with pytest.raises(PenstockError) as caught:
        put_share_group(instance, GROUP, topics, config)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_too_many_partitions_are_refused_at_creation_at_alteration_and_later(instance: Instance) -> None:
    new_topic(instance, HIGH, SHARE_LISTED_PARTITIONS_MAX - 1)
    new_topic(instance, LOW, 2)
    told = refusal(instance, [HIGH, LOW], topic_order="listed")
    assert f"would have 101 partitions ({HIGH} has 99, {LOW} has 2): 100 at most in all" in told
    put_share_group(instance, GROUP, [HIGH], {"topic_order": "listed"})
    assert "101 partitions" in refusal(instance, [HIGH, LOW])
    alter_topic(instance, HIGH, 100, {})
    with pytest.raises(PenstockError) as caught:
        alter_topic(instance, HIGH, 101, {})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert f"share group {GROUP!r} has topic_order=listed" in caught.value.message
    assert "set topic_order=any" in caught.value.message
    put_share_group(instance, GROUP, None, {"topic_order": "any"})
    assert alter_topic(instance, HIGH, 101, {}).partitions == 101


def test_generation_that_opens_counts_too(instance: Instance) -> None:
    new_topic(instance, HIGH, 60, ordering_on_change="wait")
    put_share_group(instance, GROUP, [HIGH], {"topic_order": "listed"})
    with pytest.raises(PenstockError, match="would have 101 partitions"):
        alter_topic(instance, HIGH, 41, {})
    assert alter_topic(instance, HIGH, 40, {}).partitions_to_come == 100
