"""Hedged reads: a zone that takes longer than usual is overtaken, and nothing is asked twice in the usual case."""

import threading
from dataclasses import replace
from typing import Any

from penstock_broker.broker import Broker
from penstock_broker.zone_latency import ZoneLatency
from penstock_core.ids import ZoneName
from tests.broker.setting import Intercepted, SteppedClock, another_instance, new_topic, read_all, send

A, B = ZoneName("a"), ZoneName("b")


def _spied(broker: Broker, clock: SteppedClock, hangs: threading.Event | None, asked: list[str]) -> list[Any]:
    """Zone a's answers wait for the event, if there is one; others take 5 ms."""

    def spy(zone: Any) -> Any:
        def get(original: Any, *arguments: Any) -> bytes:
            asked.append(zone.zone)
            if hangs is not None and zone.zone == "a":
                hangs.wait()
            else:
                clock.time_ms += 5
            data: bytes = original(*arguments)
            return data

        return Intercepted(zone, get=get)

    return [spy(zone) for zone in broker.zones]


def test_read_is_answered_by_the_next_zone_when_the_first_hangs(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    send(broker, topic, "x")
    hangs, asked = threading.Event(), list[str]()
    reader = another_instance(broker, zones=_spied(broker, clock, hangs, asked), hedge_floor_ms=1)
    try:
        assert read_all(reader, topic) == [(0, "x")]
        assert asked[:2] == ["a", "b"]
        assert reader.events.take()[0]["reads_hedged"] >= 1
        asked.clear()
        assert read_all(reader, topic) == [(0, "x")]
        assert asked[0] != "a", "who was overtaken is not asked first again"
    finally:
        hangs.set()


def test_read_asks_one_zone_when_it_answers_in_its_usual_time(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    send(broker, topic, "x")
    asked: list[str] = []
    reader = replace(another_instance(broker, zones=_spied(broker, clock, None, asked)), hedge_floor_ms=60_000)
    for _ in range(20):
        read_all(reader, topic)
    assert len(asked) == 20
    assert "reads_hedged" not in reader.events.take()[0]


def test_patience_is_mean_and_deviations_with_a_floor_and_time_for_the_bytes() -> None:
    latency = ZoneLatency()
    unknown_ms = latency.patience_ms(A, 0, 50.0)
    for _ in range(100):
        latency.observe(A, 10.0)
    assert latency.patience_ms(A, 0, 50.0) == 50.0 < unknown_ms
    assert latency.patience_ms(A, 1_000_000, 50.0) == 150.0
    for number in range(100):
        latency.observe(B, 100.0 if number % 2 else 300.0)
    assert 500.0 < latency.patience_ms(B, 0, 50.0) < 800.0
    latency.observe_failure(A)
    assert latency.patience_ms(A, 0, 50.0) == 50.0, "a failure says nothing of how long an answer takes"
