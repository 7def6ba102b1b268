import threading

from penstock.console.background import Look
from penstock.console.figures import ConsumerFigure, Figures, Snapshot, TopicFigure
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.support.deadlines import DEADLINE_S


def until_read(figures: Figures) -> Snapshot:
    """The figures once the reading that this look begins has ended."""
    ended = threading.Event()
    while (found := figures.look(0)).is_reading:
        ended.wait(0.001)
    assert found.value is not None
    return found.value


def test_rates_are_what_came_between_two_readings(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    service.create_topic("quiet")
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 0})
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    first = figures.look(int(DEADLINE_S * 1_000)).value
    assert first is not None
    assert (first.rate, first.is_complete, [*first.busiest]) == (None, True, [])
    with service.producer() as producer:
        for _ in range(20):
            producer.send("orders", "x", partition=0)
    now_ms = 10_000
    second = until_read(figures)
    assert second.rate == 2.0
    assert [*second.busiest] == [TopicFigure(name="orders", held=20, rate=2.0)]
    [behind] = second.behind
    assert (behind.kind, behind.name, behind.lag) == ("group", "billing", 20)


def test_partition_that_gets_far_more_than_the_others_is_hot(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)
    service.create_topic("even", partitions=2)
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    figures.look(int(DEADLINE_S * 1_000))
    with service.producer() as producer:
        for number in range(300):
            producer.send("orders", "x", partition=2 if number % 3 else 0)
            producer.send("even", "x", partition=number % 2)
    now_ms = 10_000
    found = until_read(figures)
    assert [(each.name, [*each.hot]) for each in found.hot] == [("orders", [2])]
    now_ms = 20_000
    assert [*until_read(figures).hot] == []  # nothing came since


def test_text_for_prometheus_is_that_of_the_last_reading(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    figures.look(int(DEADLINE_S * 1_000))
    service.create_topic("later")
    assert "later" not in figures.collector.text()
    now_ms = 30_000
    assert 'penstock_topic_partitions{topic="later"} 1' in figures.collector.text()


def test_furthest_behind_is_the_consumer_with_the_oldest_record() -> None:
    young = ConsumerFigure(kind="group", name="a", lag=900, oldest_age_ms=10)
    old = ConsumerFigure(kind="share_group", name="b", lag=1, oldest_age_ms=5_000)
    idle = ConsumerFigure(kind="group", name="c", lag=0, oldest_age_ms=0)
    assert [*Snapshot(topics=[], consumers=[young, idle, old], is_complete=True).behind] == [old, young]


def test_readings_are_close_together_only_if_they_are_cheap(service: MemoryPenstock) -> None:
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    figures.look(int(DEADLINE_S * 1_000))
    now_ms = 4_999
    found: Look[Snapshot] = figures.look(0)
    assert not found.is_reading
    now_ms = 5_000
    assert figures.look(0).is_reading
