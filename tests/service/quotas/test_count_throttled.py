"""Calls that a quota refuses count among the metrics of their topics."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.limits import FETCH_BYTES_MAX
from penstock_core.metrics.lag_memory import OTHER, TopicTraffic
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.admit import allow_fetch
from penstock_service.records.produce_within_quotas import admit_whole, produce_within_quotas
from tests.support.refusals import refused
from tests.support.service import SteppedClock, batch, entry, new_topic

ME = "arn:aws:iam::111122223333:role/me"
ONE = TopicTraffic(requests_failed=1, requests_throttled=1)
TWO = TopicTraffic(requests_failed=2, requests_throttled=2)


@pytest.fixture
def instance() -> Instance:
    """Traffic counts, and the instance remembers two topics."""
    made = memory_instance(clock=SteppedClock())
    for name in ("orders", "other"):
        new_topic(made, name)
        made.topic_cache.get(name)
    made.traffic.is_on = True
    return made


def spend(instance: Instance) -> None:
    """The principal has one request a second, and has made it."""
    put_quota(instance, "principal", ME, {"produce_requests_per_s": 1, "fetch_requests_per_s": 1})
    produce_within_quotas(instance, ME, [entry("other", 0, batch("a"))], Acks.QUORUM)
    allow_fetch(instance, ME, ["other"], FETCH_BYTES_MAX)
    instance.traffic.take()


def test_produce_over_the_principals_quota_counts_for_each_partition(instance: Instance) -> None:
    spend(instance)
    entries = [entry("orders", 0, batch("a")), entry("orders", 0, batch("b")), entry("other", 0, batch("c"))]
    refused(ErrorCode.THROTTLED, lambda: produce_within_quotas(instance, ME, entries, Acks.QUORUM))
    assert instance.traffic.take() == {"orders": TWO, "other": ONE}


def test_transaction_over_the_principals_quota_counts_for_its_topics(instance: Instance) -> None:
    spend(instance)
    refused(ErrorCode.THROTTLED, lambda: admit_whole(instance, ME, [entry("orders", 0, batch("a"))]))
    assert instance.traffic.take() == {"orders": ONE}


def test_fetch_over_the_principals_quota_counts_for_each_partition(instance: Instance) -> None:
    spend(instance)
    refused(ErrorCode.THROTTLED, lambda: allow_fetch(instance, ME, ["orders", "orders"], FETCH_BYTES_MAX))
    assert instance.traffic.take() == {"orders": TWO}


def test_topic_over_its_quota_counts_alone(instance: Instance) -> None:
    put_quota(instance, "topic", "orders", {"produce_requests_per_s": 1, "fetch_requests_per_s": 1})
    entries = [entry("orders", 0, batch("a")), entry("other", 0, batch("b"))]
    for _ in range(2):
        produce_within_quotas(instance, ME, entries, Acks.QUORUM)
        allow_fetch(instance, ME, ["orders", "other"], FETCH_BYTES_MAX)
    taken = instance.traffic.take()
    assert (taken["orders"].requests_throttled, taken["other"].requests_throttled) == (2, 0)


def test_topic_that_the_instance_does_not_know_counts_for_all_others(instance: Instance) -> None:
    spend(instance)
    refused(ErrorCode.THROTTLED, lambda: allow_fetch(instance, ME, ["made-up"], FETCH_BYTES_MAX))
    assert instance.traffic.take() == {OTHER: ONE}
