"""Hedged reads: another zone overtakes one that takes longer than usual. In the usual case only one is asked."""

import threading
from typing import Any

from penstock_core.ids import ZoneName
from penstock_service.instance.instance import Instance
from penstock_service.instance.zones import ZoneLatency
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    new_topic,
    read_all,
    send,
    with_tuning,
    without_recent_reads,
)

A, B = ZoneName("a"), ZoneName("b")


def _spied(instance: Instance, clock: SteppedClock, hangs: threading.Event | None, asked: list[str]) -> list[Any]:
    """The answers of zone a wait for the event, if there is one. The other zones take 5 ms."""

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

    return [spy(zone) for zone in instance.stores.zones]


def test_read_is_answered_by_the_next_zone_when_the_first_hangs(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "x")
    hangs, asked = threading.Event(), list[str]()
    zones = _spied(instance, clock, hangs, asked)
    reader = without_recent_reads(another_instance(instance, zones=zones, hedge_floor_ms=1))
    try:
        assert read_all(reader, topic) == [(0, "x")]
        assert asked[:2] == ["a", "b"]
        assert reader.telemetry.take()[0]["reads_hedged"] >= 1
        asked.clear()
        assert read_all(reader, topic) == [(0, "x")]
        assert asked[0] != "a", "who was overtaken is not asked first again"
    finally:
        hangs.set()


def test_read_asks_one_zone_when_it_answers_in_its_usual_time(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "x")
    asked: list[str] = []
    spied = another_instance(instance, zones=_spied(instance, clock, None, asked))
    reader = without_recent_reads(with_tuning(spied, hedge_floor_ms=60_000))
    for _ in range(20):
        read_all(reader, topic)
    assert len(asked) == 20
    assert "reads_hedged" not in reader.telemetry.take()[0]


def test_hedge_delay_is_mean_and_deviations_with_a_floor_and_time_for_the_bytes() -> None:
    latency = ZoneLatency(SteppedClock())
    unknown_ms = latency.hedge_delay_ms(A, 0, 50.0)
    for _ in range(100):
        latency.observe(A, 10.0)
    assert latency.hedge_delay_ms(A, 0, 50.0) == 50.0 < unknown_ms
    assert latency.hedge_delay_ms(A, 1_000_000, 50.0) == 150.0
    for number in range(100):
        latency.observe(B, 100.0 if number % 2 else 300.0)
    assert 500.0 < latency.hedge_delay_ms(B, 0, 50.0) < 800.0
    latency.observe_failure(A)
    assert latency.hedge_delay_ms(A, 0, 50.0) == 50.0, "a failure says nothing of how long an answer takes"
