"""A crowd that waits next to a producer, in an account that runs few instances at once: a model in stepped time."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock_core.limits import FETCH_WAIT_MS_MAX
from penstock_service.instance.instance import Instance
from penstock_service.quotas.wait import Wait
from tests.service.quotas.test_wait import Stage

ACCOUNT = 10  # instances of a new account
LOOK_MS, PRODUCE_MS = 15, 50  # of a call on AWS
REFUSED_MS = 1_000  # a caller that Lambda refuses comes back
SETTLED_MS = 5_000  # the crowd has begun by then


@dataclass(slots=True)
class Account:
    """Callers share `ACCOUNT` instances. Lambda refuses a call while all of them run."""

    stage: Stage
    running: int = 0
    produced: int = 0
    refused: int = 0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _ties: "itertools.count[int]" = field(default_factory=itertools.count)

    def after(self, delay_ms: float, step: Callable[[], None]) -> None:
        """Takes the step later."""
        heapq.heappush(self._due, (self.stage.clock.time_ms + delay_ms, next(self._ties), step))

    def run(self, for_ms: int) -> None:
        """Takes all steps of so long a time."""
        end_ms = self.stage.clock.time_ms + for_ms
        while self._due and self._due[0][0] < end_ms:
            self.stage.clock.time_ms, _, step = heapq.heappop(self._due)
            step()

    def fetch(self) -> None:
        """A consumer's call: it looks, and waits while the stage lets it."""
        if self.running >= ACCOUNT:
            self.after(REFUSED_MS, self.fetch)
            return
        self.running += 1
        instance = self.stage.instance()
        self.after(LOOK_MS, lambda: self._go_on(Wait(instance, FETCH_WAIT_MS_MAX), instance))

    def produce(self) -> None:
        """A producer's call, each 100 ms."""
        self.after(100, self.produce)
        self.produced += 1
        if self.running >= ACCOUNT:
            self.refused += 1
            return
        self.running += 1
        self.after(PRODUCE_MS, self._end)

    def _go_on(self, wait: Wait, instance: Instance) -> None:
        if wait.pause():
            self.after(self.stage.clock.sleeps.pop() + LOOK_MS, lambda: self._go_on(wait, instance))
            return
        wait.__exit__(None, None, None)
        self._end()
        self.stage.free.append(instance)
        self.after((wait.again_ms or 0) + LOOK_MS, self.fetch)

    def _end(self) -> None:
        self.running -= 1


def refused_share(waits_max: int | None, consumers: int) -> float:
    """The share of produces that Lambda refuses in 30 s, once the crowd is there."""
    account = Account(Stage(waits_max))
    for number in range(consumers):
        account.after(number * 1_000 / consumers, account.fetch)
    account.run(SETTLED_MS)
    account.produce()
    account.run(30_000)
    assert account.produced >= 290
    return account.refused / account.produced


@pytest.mark.parametrize("consumers", [30, 100])
def test_producer_is_never_refused_when_a_quarter_of_the_account_may_wait(consumers: int) -> None:
    assert refused_share(ACCOUNT // 4, consumers) == 0


def test_producer_is_always_refused_when_the_crowd_may_wait_everywhere() -> None:
    assert refused_share(None, 30) > 0.9
