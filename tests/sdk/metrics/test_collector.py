"""The collector reads lag and age through the API, within its bound of requests."""

import re

import pytest

from penstock import Admin
from penstock.errors import AccessDeniedError
from penstock.metrics.collector import Collector, CountedTransport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.support.denying import DenyingTransport


def values_of(text: str) -> dict[str, float]:
    """Each line's value by its name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


class Clock:
    def __init__(self) -> None:
        self.time_ms = 1_000

    def __call__(self) -> int:
        return self.time_ms


def test_text_has_lag_and_age_of_each_consumer_and_the_records_of_each_topic(service: MemoryPenstock) -> None:
    admin = Admin(transport=service.transport)
    admin.create_topic("orders", 2)
    with service.producer() as producer:
        for number in range(10):
            producer.send("orders", str(number).encode(), partition=0)
    admin.commit_group_offsets("billing", {TopicPartition("orders", 0): 4})
    admin.create_share_group("workers", ["orders"], {"start": "earliest"})
    found = values_of(Collector(service.transport).text())
    assert found['penstock_consumer_lag_records{kind="group",consumer="billing"}'] == 6
    assert found['penstock_consumer_lag_records{kind="share_group",consumer="workers"}'] == 10
    assert 0 <= found['penstock_consumer_oldest_age_seconds{kind="group",consumer="billing"}'] < 60
    assert found['penstock_topic_appended_records_total{topic="orders"}'] == 10
    assert found['penstock_topic_held_records{topic="orders"}'] == 10
    stored = sum(each.stored_bytes or 0 for each in admin.describe_topic("orders").offsets)
    assert found['penstock_topic_stored_bytes{topic="orders"}'] == stored > 0
    assert found['penstock_topic_partitions{topic="orders"}'] == 2
    assert found["penstock_reading_complete"] == 1
    assert found["penstock_reading_requests"] == 4 + 3


def test_mirror_has_the_time_of_its_last_success_and_an_epoch(service: MemoryPenstock) -> None:
    with MemoryPenstock() as other:
        service.add_stage("https://b.example", other)
        service.create_topic("mirrored")
        service.admin().create_mirror("dr", "mirrored", "https://b.example")
        assert 'penstock_mirror_success_timestamp_seconds{consumer="dr"' not in Collector(service.transport).text()
        with service.producer() as producer:
            producer.send("mirrored", "a")
        service.deliver_pushes()
        service.admin().move_topic("mirrored", "dr")
        values = values_of(Collector(service.transport).text())
        [partition] = service.admin().describe_subscription("dr").partitions
    assert partition.succeeded_ms
    labels = '{consumer="dr",topic="mirrored"}'
    assert values[f"penstock_mirror_success_timestamp_seconds{labels}"] == partition.succeeded_ms / 1_000
    assert values[f"penstock_mirror_epoch{labels}"] == 1
    assert values['penstock_consumer_lag_records{kind="subscription",consumer="dr"}'] == 0


def test_two_scrapes_within_the_interval_cost_one_reading(service: MemoryPenstock) -> None:
    clock = Clock()
    transport = CountedTransport(service.transport)
    collector = Collector(transport, interval_ms=30_000, clock_ms=clock)
    first = collector.text()
    read = transport.requests
    clock.time_ms += 29_999
    assert collector.text() == first
    assert transport.requests == read
    clock.time_ms += 1
    collector.text()
    assert transport.requests == 2 * read


def test_reading_ends_at_its_bound_and_the_next_one_goes_on_there(service: MemoryPenstock) -> None:
    admin = Admin(transport=service.transport)
    for number in range(5):
        admin.create_topic(f"topic-{number}")
    clock = Clock()
    collector = Collector(service.transport, interval_ms=1, requests_max=4 + 2, clock_ms=clock)
    seen = []
    for _ in range(3):
        found = values_of(collector.text())
        topics = {name for name in found if name.startswith("penstock_topic_partitions")}
        seen.append((len(topics), found["penstock_reading_complete"], found["penstock_reading_requests"]))
        clock.time_ms += 1
    assert seen == [(2, 0, 6), (4, 0, 6), (5, 0, 6)]


@pytest.mark.parametrize("status", [403, 404])
def test_kind_that_the_caller_may_not_list_has_no_values_and_hides_no_other(
    service: MemoryPenstock, status: int
) -> None:
    service.create_topic("orders")
    found = values_of(Collector(DenyingTransport(service.transport, "/v1/subscriptions", status=status)).text())
    assert found['penstock_topic_partitions{topic="orders"}'] == 1


def test_caller_that_may_list_nothing_is_told(service: MemoryPenstock) -> None:
    with pytest.raises(AccessDeniedError):
        Collector(DenyingTransport(service.transport, "/v1/")).text()


def test_topic_that_is_gone_has_no_value_any_more(service: MemoryPenstock) -> None:
    admin = Admin(transport=service.transport)
    admin.create_topic("orders")
    clock = Clock()
    collector = Collector(service.transport, interval_ms=1, clock_ms=clock)
    assert re.search("topic=", collector.text())
    admin.delete_topic("orders")
    clock.time_ms += 1
    assert not re.search("topic=", collector.text())
