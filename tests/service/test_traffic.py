"""An instance counts the traffic of topics."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.limits import INSTANCE_TRAFFIC_TOPICS_MAX
from penstock_core.metrics.lag_memory import NO_TRAFFIC, OTHER, TopicTraffic
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance, Traffic
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from tests.support.refusals import refused
from tests.support.service import ask, batch, entry, new_topic


@pytest.fixture
def instance(instance: Instance) -> Instance:
    instance.traffic.is_on = True
    return instance


def test_records_and_bytes_count_on_their_way_in_and_on_each_way_out(instance: Instance) -> None:
    new_topic(instance)
    data = batch("a", "b", "c") + batch("d")
    produce_or_schedule(instance, [entry("orders", 0, data)], Acks.QUORUM)
    ask(instance, "orders", 0)
    ask(instance, "orders", 3)
    size = len(data)
    assert instance.traffic.take() == {
        "orders": TopicTraffic(
            records_received=4, bytes_received=size, records_sent=5, bytes_sent=size + len(batch("d"))
        )
    }
    assert instance.traffic.take() == {}


def test_records_that_a_share_group_hands_out_count(instance: Instance) -> None:
    new_topic(instance)
    put_share_group(instance, "workers", ["orders"], {"start": "earliest"})
    produce_or_schedule(instance, [entry("orders", 0, batch("a", "b"))], Acks.QUORUM)
    instance.traffic.take()
    acquire(instance, "workers", AcquireWish(records_max=10, bytes_max=1_000_000))
    assert instance.traffic.take()["orders"].records_sent == 2


def test_errors_count_for_the_topic_and_those_of_unknown_topics_for_all_others(instance: Instance) -> None:
    new_topic(instance)
    produce_or_schedule(instance, [entry("orders", 0, b"torn"), entry("unknown", 0, batch("a"))], Acks.QUORUM)
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(instance, "orders", 9))
    assert instance.traffic.take() == {
        "orders": TopicTraffic(requests_failed=2),
        OTHER: TopicTraffic(requests_failed=1),
    }


def test_nothing_is_counted_where_the_stage_has_no_metrics(instance: Instance) -> None:
    instance.traffic.is_on = False
    new_topic(instance)
    produce_or_schedule(instance, [entry("orders", 0, batch("a"))], Acks.QUORUM)
    assert instance.traffic.take() == {}


def test_topics_beyond_the_bound_count_together() -> None:
    traffic = Traffic(is_on=True)
    for number in range(INSTANCE_TRAFFIC_TOPICS_MAX + 5):
        traffic.add(f"topic-{number}", NO_TRAFFIC.plus(TopicTraffic(records_sent=1)))
    taken = traffic.take()
    assert len(taken) == INSTANCE_TRAFFIC_TOPICS_MAX + 1
    assert taken[OTHER].records_sent == 5
