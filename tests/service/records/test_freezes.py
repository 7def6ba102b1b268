"""An instance is frozen after its answer, for seconds to minutes. Its threads go on when it is thawed.

The freeze counts on both clocks here, as in Lambda. `executor.close` waits until every straggler has ended.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import REPORT_INTERVAL_MS
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.system import ThreadExecutor
from penstock_service.instance.instance import Instance, RepairThrottle
from penstock_service.instance.update_window import Moment
from penstock_service.instance.zones import FAILURES_KEPT_MS, TIMES_KEPT_MS, ZoneHealth, ZoneLatency
from tests.support.service import (
    UNAVAILABLE,
    FrozenClock,
    Intercepted,
    SteppedClock,
    another_instance,
    head_of,
    new_topic,
    read_all,
    send,
    without_recent_reads,
)

A, C = ZoneName("a"), ZoneName("c")
FREEZE_MS = 10_000


class _Straggler:
    """Makes calls wait until the freeze is over."""

    def __init__(self, error: PenstockError | None = None) -> None:
        self.is_slow = True
        self.thawed = threading.Event()
        self._error = error

    def __call__(self, original: Any, *arguments: Any) -> Any:
        if self.is_slow:
            self.thawed.wait()
            if self._error is not None:
                raise self._error
        return original(*arguments)

    def freeze(self, instance: Instance, clock: SteppedClock) -> Instance:
        """Freeze the instance, thaw it, and return it once its stragglers have ended."""
        clock.time_ms += FREEZE_MS
        self.thawed.set()
        assert isinstance(instance.executor, ThreadExecutor)
        instance.executor.close()
        self.thawed.clear()
        return replace(instance, executor=ThreadExecutor())


@pytest.fixture
def straggler() -> Iterator[_Straggler]:
    made = _Straggler()
    yield made
    made.thawed.set()


def _appender(instance: Instance, straggler: _Straggler) -> Instance:
    zones = [*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], put=straggler)]
    return another_instance(instance, zones=zones, executor=ThreadExecutor(), straggler_grace_ms=5, put_timeout_ms=3000)


@pytest.mark.parametrize("error", [None, UNAVAILABLE])
def test_put_that_ends_after_a_freeze_says_nothing_of_its_zone(
    instance: Instance, clock: SteppedClock, error: PenstockError | None
) -> None:
    """Two of them made the zone count as failing, and `all` then did not wait for it (findings/aws.md 3)."""
    straggler = _Straggler(error)
    topic = new_topic(instance)
    appender = _appender(instance, straggler)
    for number in range(2):
        send(appender, topic, str(number))
        appender = straggler.freeze(appender, clock)
        assert not appender.zone_health.is_failing(C)
    straggler.is_slow = False
    send(appender, topic, "all", acks=Acks.ALL)
    assert head_of(appender, topic).tail[-1].zones == 0b111


def test_read_that_ends_after_a_freeze_does_not_count_as_the_time_of_its_zone(
    instance: Instance, clock: SteppedClock, straggler: _Straggler
) -> None:
    """One such read took the zone's patience from 57 ms to 10 s, so that the next hang stalled a fetch for 5 s."""
    topic = new_topic(instance)
    send(instance, topic, "x")
    zones = [Intercepted(instance.stores.zones[0], get=straggler), *instance.stores.zones[1:]]
    reader = another_instance(instance, zones=zones, executor=ThreadExecutor(), hedge_floor_ms=1)
    reader = without_recent_reads(reader)
    straggler.is_slow = False
    read_all(reader, topic)
    reader.zone_latency.observe(A, 0.0)
    usual_ms = reader.zone_latency.hedge_delay_ms(A, 0, 1)
    straggler.is_slow = True
    while not reader.telemetry.take()[0]["reads_hedged"]:  # until zone a is asked first
        read_all(reader, topic)
    reader = straggler.freeze(reader, clock)
    assert reader.zone_latency.hedge_delay_ms(A, 0, 1) == usual_ms


class _BothClocks:
    """Passes time on one clock only: the other stood still, or was set back."""

    def __init__(self, *, by_wall: bool) -> None:
        self._time = SteppedClock()
        self.clock = FrozenClock(self._time)
        self._by_wall = by_wall

    def pass_ms(self, duration_ms: int) -> None:
        if self._by_wall:
            self.clock.freeze(duration_ms)
        else:
            self._time.time_ms += duration_ms
            self.clock.set_back_ms += duration_ms


@pytest.fixture(params=[True, False], ids=["wall clock", "monotonic clock"])
def time(request: pytest.FixtureRequest) -> _BothClocks:
    return _BothClocks(by_wall=request.param)


def test_moment_ages_by_the_clock_that_shows_more(time: _BothClocks) -> None:
    moment = Moment.now(time.clock)
    assert moment.age_ms(time.clock) == 0.0
    time.pass_ms(90_000)
    assert moment.age_ms(time.clock) == 90_000.0


def test_failures_of_a_zone_are_forgotten_when_they_are_old_by_either_clock(time: _BothClocks) -> None:
    health = ZoneHealth(time.clock)
    for _ in range(2):
        health.begin_put(C).end(is_failed=True)
    time.pass_ms(FAILURES_KEPT_MS - 1)
    assert health.is_failing(C)
    time.pass_ms(1)
    assert not health.is_failing(C)
    health.begin_put(C).end(is_failed=True)
    assert not health.is_failing(C), "the old failures do not count with the new one"


def test_read_times_of_a_zone_are_forgotten_when_they_are_old_by_either_clock(time: _BothClocks) -> None:
    latency = ZoneLatency(time.clock)
    unknown_ms = latency.hedge_delay_ms(A, 0, 1.0)
    latency.observe(A, 900.0)
    latency.observe(C, 5.0)
    time.pass_ms(TIMES_KEPT_MS - 1)
    assert latency.fastest_first([A, C]) == [C, A]
    time.pass_ms(1)
    assert latency.fastest_first([A, C]) == [A, C]
    assert latency.hedge_delay_ms(A, 0, 1.0) == unknown_ms
    latency.observe(A, 7.0)
    assert latency.hedge_delay_ms(A, 0, 1.0) < 20.0, "it begins anew"


def test_bad_copy_is_reported_again_when_its_report_is_old_by_either_clock(time: _BothClocks) -> None:
    throttle = RepairThrottle(time.clock)
    segment_id = SegmentId(b"s" * 16)
    assert throttle.take(segment_id, A)
    time.pass_ms(REPORT_INTERVAL_MS - 1)
    assert not throttle.take(segment_id, A)
    time.pass_ms(1)
    assert throttle.take(segment_id, A)
