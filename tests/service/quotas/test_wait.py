"""Waits within the stage's waiting time: how many wait at once, what that costs, and what a cut wait tells."""

import heapq
import itertools
from dataclasses import dataclass, field, replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FETCH_POLL_MS_MAX, FETCH_WAIT_MS_MAX
from penstock_core.quotas.bucket import WaitPool
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.system import SystemEntropy, ThreadExecutor
from penstock_service.instance.instance import Instance, Tuning
from penstock_service.ports.runtime import Runtime
from penstock_service.quotas.wait import Wait
from tests.service.quotas.counted_quotas import CountedQuotas
from tests.support.service import SteppedClock

WINDOW_MS = 10_000
SAMPLES_MS = 100


class ModelClock(SteppedClock):
    """Sleeping only notes the time: the model comes back when it has passed."""

    def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps.append(duration_ms)


@dataclass
class Stage:
    """Instances that serve a request each, as Lambda gives them out: the one that was free last comes first."""

    waits_max: int | None
    clock: SteppedClock = field(default_factory=ModelClock)
    quotas: CountedQuotas = field(default_factory=CountedQuotas)
    free: list[Instance] = field(default_factory=list)
    waiting: int = 0

    def instance(self) -> Instance:
        if self.free:
            return self.free.pop()
        stores = replace(memory_stores(), quotas=self.quotas)
        runtime = Runtime(clock=self.clock, entropy=SystemEntropy(), executor=ThreadExecutor())
        pool = None if self.waits_max is None else WaitPool(name="fetch", instances=self.waits_max)
        return Instance.new(stores, runtime, Tuning(wait_pool=pool))


def crowd(stage: Stage, consumers: int, for_ms: int, wait_ms: int = FETCH_WAIT_MS_MAX) -> list[int]:
    """The number of requests that wait, each `SAMPLES_MS`. The consumers begin within a second, and find no record."""
    ties = itertools.count()
    start_ms = stage.clock.time_ms
    due: list[tuple[float, int, Wait | None, Instance | None]] = [
        (start_ms + number * 1_000 / consumers, next(ties), None, None) for number in range(consumers)
    ]
    heapq.heapify(due)
    samples: list[int] = []
    while due[0][0] < start_ms + for_ms:
        at_ms, _, wait, instance = heapq.heappop(due)
        while start_ms + len(samples) * SAMPLES_MS <= at_ms:
            samples.append(stage.waiting)
        stage.clock.time_ms = at_ms
        if wait is None or instance is None:
            instance = stage.instance()
            wait = Wait(instance, wait_ms)
        else:
            stage.waiting -= 1
        if wait.pause():
            stage.waiting += 1
            heapq.heappush(due, (at_ms + stage.clock.sleeps.pop(), next(ties), wait, instance))
        else:
            wait.__exit__(None, None, None)
            stage.free.append(instance)
            heapq.heappush(due, (at_ms + 5 + (wait.again_ms or 0), next(ties), None, None))
    return samples


@pytest.mark.parametrize(("waits_max", "consumers"), [(5, 40), (50, 150)])
def test_crowd_waits_in_as_many_instances_as_the_pool_has(waits_max: int, consumers: int) -> None:
    samples = crowd(Stage(waits_max), consumers, 40_000)
    size = WINDOW_MS // SAMPLES_MS
    windows = [sum(samples[at : at + size]) / size for at in range(0, len(samples) - size, 10)]
    assert max(windows) <= 1.1 * waits_max
    assert min(windows) >= 0.75 * waits_max
    assert max(samples) <= 1.5 * waits_max + 2


def test_crowd_waits_in_all_instances_when_there_is_no_pool() -> None:
    assert max(crowd(Stage(None), 40, 30_000)) == 40


@pytest.mark.parametrize("wait_ms", [500, FETCH_WAIT_MS_MAX])
def test_waits_far_below_the_pool_are_whole_and_cost_a_write_in_four_seconds(wait_ms: int) -> None:
    stage = Stage(100)
    samples = crowd(stage, 5, 100_000, wait_ms)
    assert min(samples[2_000 // SAMPLES_MS :]) >= 4  # one may be on its way to the next call
    assert stage.quotas.calls <= 5 * 25
    assert all(instance.telemetry.take()[0]["waits_cut"] == 0 for instance in stage.free)


def pauses(stage: Stage, wait_ms: int) -> Wait:
    """One request, to its end."""
    with Wait(stage.instance(), wait_ms) as wait:
        while wait.pause():
            pass
    return wait


def test_whole_wait_tells_no_time_to_come_back() -> None:
    stage = Stage(5, clock=SteppedClock())
    started_ms = stage.clock.time_ms
    assert pauses(stage, 500).again_ms is None
    assert stage.clock.time_ms - started_ms == pytest.approx(500)


@pytest.mark.parametrize(("wait_ms", "again_ms"), [(300, 300), (20_000, FETCH_POLL_MS_MAX)])
def test_cut_wait_tells_to_come_back_as_soon_as_a_waiting_request_would_look(wait_ms: int, again_ms: int) -> None:
    stage = Stage(0, clock=SteppedClock())
    wait = pauses(stage, wait_ms)
    assert wait.again_ms == again_ms
    assert stage.clock.sleeps == []
    assert stage.quotas.calls == 0


def test_request_that_does_not_wait_is_not_cut() -> None:
    assert pauses(Stage(0, clock=SteppedClock()), 0).again_ms is None


def test_request_waits_when_the_pool_cannot_be_reached() -> None:
    stage = Stage(1, clock=SteppedClock())
    stage.quotas.failure = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")
    assert pauses(stage, 2_000).again_ms is None


def test_wait_is_cut_and_counted_when_the_pool_is_throttled() -> None:
    stage = Stage(1, clock=SteppedClock())
    stage.quotas.failure = PenstockError(ErrorCode.THROTTLED, "too many charges")
    wait = Wait(stage.instance(), 2_000)
    assert not wait.pause()
    assert wait.again_ms == 1_000
