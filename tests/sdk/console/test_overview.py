import threading
from functools import partial

import pytest

from penstock.console import figures as module
from penstock.console.background import Look
from penstock.console.figures import ConsumerFigure, Figures, Snapshot, TopicFigure
from penstock.console.parsing import changed_settings, settings_of
from penstock.errors import InvalidError
from penstock.metrics.collector import Lag, TopicLag
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.test_background import DEADLINE_MS
from tests.sdk.console.visitor import Visitor
from tests.support.deadlines import DEADLINE_S
from tests.support.denying import DenyingTransport

DEFAULTS = {"retention_ms": 100, "cleanup_policy": "delete", "validate_records": False, "retention_bytes": -1}


def test_overview_shows_zones_counts_and_who_is_behind(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor
) -> None:
    service.create_topic("orders", partitions=4)
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    with service.producer() as producer:
        producer.send("orders", "x")
    console.memory.figures.look(DEADLINE_MS)
    console.memory.lists.look(DEADLINE_MS)
    seen = visitor.get("/")
    assert "Partitions 4" in seen.text
    assert "Share groups 1" in seen.text
    assert seen.text.count("in sync") >= 3
    assert "AWS has no alarms and no costs for it" in seen.text


def test_hot_partition_is_told_with_a_link(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = TopicFigure(name="orders", held=1, rate=9.0, hot=(3, 1))
    found = Snapshot(topics=[hot], consumers=[], is_complete=True)
    look = Look(value=found, age_ms=0, error=None, is_reading=False)
    monkeypatch.setattr(console.memory.figures, "look", lambda _: look)
    seen = visitor.get("/")
    assert "orders : partition 3 gets far more records than the others." in seen.text
    assert 'href="/topics/orders/hot"' in seen.html


def test_list_that_is_denied_leaves_the_rest_of_the_page(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)
    console = RunningConsole(DenyingTransport(service.transport, "/v1/zones"))
    try:
        console.memory.lists.look(DEADLINE_MS)
        seen = console.visitor().get("/")
        assert seen.status == 200
        assert "ACCESS_DENIED" in seen.text
        assert "Partitions 4" in seen.text
    finally:
        console.stop()


def test_zone_that_is_out_is_told_first(service: MemoryPenstock, console: RunningConsole, visitor: Visitor) -> None:
    service.admin().take_zone_out("b", "a <b>drill")
    console.memory.lists.look(DEADLINE_MS)
    seen = visitor.get("/")
    assert "b: not in sync" in seen.text
    assert "<b>drill" not in seen.html


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
    assert (behind.kind, behind.name, behind.lag.records) == ("group", "billing", 20)


def test_series_has_the_last_readings_of_each_topic_within_its_bounds(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONSOLE_SERIES_MAX", 1)
    monkeypatch.setattr(module, "CONSOLE_SERIES_POINTS_MAX", 3)
    service.create_topic("orders")
    service.create_topic("other")
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 0})
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    figures.look(DEADLINE_MS)
    seen = []
    for count in (10, 20, 0, 5):
        with service.producer() as producer:
            for _ in range(count):
                producer.send("orders", "x")
        now_ms += 10_000
        found = until_read(figures).topic("orders")
        assert found is not None
        seen.append([(each.rate, each.behind) for each in found.series])
    assert seen[:2] == [[(1.0, 20)], [(1.0, 20), (2.0, 60)]]
    assert seen[-1] == [(2.0, 60), (0.0, 60), (0.5, 70)]
    other = until_read(figures).topic("other")
    assert other is not None
    assert other.series == ()


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


def figure(kind: str, name: str, records: int, oldest_age_ms: int, *, is_abandoned: bool = False) -> ConsumerFigure:
    lag = Lag(by_topic={"orders": TopicLag(records=records, oldest_age_ms=oldest_age_ms)})
    return ConsumerFigure(kind=kind, name=name, lag=lag, is_abandoned=is_abandoned)


def test_abandoned_group_is_shown_apart_and_not_counted(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Snapshot(
        topics=[],
        consumers=[figure("group", "live", 7, 10), figure("group", "<b>left", 217_000, 9_000, is_abandoned=True)],
        is_complete=True,
    )
    look = Look(value=found, age_ms=0, error=None, is_reading=False)
    monkeypatch.setattr(console.memory.figures, "look", lambda _: look)
    seen = visitor.get("/")
    assert "Records behind 7 " in seen.text
    assert "Oldest unprocessed 10 ms" in seen.text
    assert "<b>left 217,000" in seen.text.partition("Abandoned groups")[2]
    assert "217,000" not in seen.text.partition("Abandoned groups")[0]
    assert "<b>left" not in seen.html


def test_group_without_members_is_abandoned_a_day_after_its_last_commit(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", "x")
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 0})
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    [partition] = service.admin().describe_group("billing").partitions
    with service.consumer("orders", group_id="live", auto_offset_reset="earliest") as consumer:
        assert consumer.poll(timeout_ms=1_000)
        consumer.commit()
        for later_ms, expected in ((86_400_000, []), (86_400_001, ["billing"])):
            now_ms = partition.committed_at_ms + later_ms
            found = Figures(service.transport, now_ms=partial(int, now_ms)).look(DEADLINE_MS).value
            assert found is not None
            assert [each.name for each in found.abandoned] == expected
            assert found.records_behind == 2 - len(expected)


def test_furthest_behind_is_the_consumer_with_the_oldest_record() -> None:
    young = figure("group", "a", 900, 10)
    old = figure("share_group", "b", 1, 5_000)
    idle = figure("group", "c", 0, 0)
    assert [*Snapshot(topics=[], consumers=[young, idle, old], is_complete=True).behind] == [old, young]


def test_readings_are_close_together_only_if_they_are_cheap(service: MemoryPenstock) -> None:
    now_ms = 0
    figures = Figures(service.transport, clock_ms=lambda: now_ms)
    figures.look(int(DEADLINE_S * 1_000))
    now_ms = 4_999
    found: Look[Snapshot] = figures.look(0)
    assert not found.is_reading
    now_ms = 5_000
    found = figures.look(0)
    assert found.is_reading or found.age_ms == 0, "another reading has begun, or ended at once"


@pytest.mark.parametrize(
    ("form", "config", "changes"),
    [
        ({}, {}, {}),
        ({"set.retention_ms": "100"}, {}, {}),
        ({"set.retention_ms": "1h"}, {}, {"retention_ms": 3_600_000}),
        ({"set.retention_ms": "1h"}, {"retention_ms": 3_600_000}, {}),
        ({"set.retention_ms": "forever"}, {}, {"retention_ms": -1}),
        ({"set.retention_bytes": "unlimited"}, {"retention_bytes": 5}, {"retention_bytes": None}),
        ({"set.retention_ms": " "}, {"retention_ms": 5}, {"retention_ms": None}),
        ({"set.validate_records": "true"}, {}, {"validate_records": True}),
        ({"set.cleanup_policy": "compact", "set.other": "x", "name": "y"}, {}, {"cleanup_policy": "compact"}),
    ],
)
def test_only_changes_are_sent(form: dict[str, str], config: dict[str, object], changes: dict[str, object]) -> None:
    assert settings_of(form, config, DEFAULTS) == changes


@pytest.mark.parametrize(
    ("name", "text"), [("retention_ms", "soon"), ("retention_bytes", "1h"), ("retention_ms", "9" * 20)]
)
def test_value_that_is_no_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidError, match=f"{name}='{text}'"):
        settings_of({f"set.{name}": text}, {}, DEFAULTS)


def test_changed_settings_are_those_unlike_the_defaults() -> None:
    assert changed_settings({"retention_ms": 1, "cleanup_policy": "delete"}, DEFAULTS) == {"retention_ms": 1}
