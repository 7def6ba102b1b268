"""Calls side by side as tasks of the scheduler, until the process that made them ends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcomes, outcome_of
from tests.simulation.engine.scheduler import Scheduler, Task

A = TypeVar("A")
T = TypeVar("T")


class Killed(BaseException):
    """The function instance ends here, as Lambda may end it anywhere. The service never catches this."""


class Owner(Protocol):
    """The process whose calls they are."""

    is_dead: bool

    def hold(self) -> None:
        """Wait while it is frozen: none of its code runs then."""

    def check_alive(self) -> None:
        """Raise Killed if it has ended."""


class _Immortal:
    is_dead = False

    def hold(self) -> None:
        pass

    def check_alive(self) -> None:
        pass


class SimulatedExecutor:
    """Runs calls as tasks of their own: they interleave with all other tasks, and stragglers outlive their request."""

    def __init__(self, scheduler: Scheduler, owner: Owner | None = None) -> None:
        self._scheduler = scheduler
        self._owner = owner or _Immortal()
        self._waiting: dict[Task, None] = {}

    def wake_all(self) -> None:
        for task in list(self._waiting):
            self._scheduler.wake(task)

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        if len(items) <= 1:
            return Outcomes.collect(function, items)
        results: list[Any] = [None] * len(items)
        self._start(function, items, results, range(len(items)), {})
        self._wait(lambda: None not in results, None)
        return Outcomes([result[0] for result in results])

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        lanes: Sequence[str] = (),
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        scheduler = self._scheduler
        boxes: list[Any] = [None] * len(items)

        def results() -> list[Any]:
            return [box and box[0] for box in boxes]

        def is_done() -> bool:
            return is_enough(results()) or None not in boxes

        end_ms = None if timeout_ms is None else scheduler.now_ms + timeout_ms
        portions = [[index] for index in range(len(items))] if hedge_delays_ms else [list(range(len(items)))]
        wanted: dict[int, None] = {}
        for portion in portions:
            if is_done():
                break
            self._start(function, items, boxes, portion, wanted)
            self._wait(
                partial(lambda begun: is_done() or None not in boxes[:begun], portion[-1] + 1),
                _until(scheduler.now_ms, end_ms, hedge_delays_ms[portion[-1]] if hedge_delays_ms else None),
            )
        self._wait(is_done, _until(scheduler.now_ms, end_ms, None))
        if is_enough(results()):
            self._wait(lambda: all(boxes[index] for index in wanted), _until(scheduler.now_ms, end_ms, grace_ms))
        wanted.clear()  # calls that have not begun never will
        return results()

    def _start(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        boxes: list[Any],
        indexes: Sequence[int],
        wanted: dict[int, None],
    ) -> None:
        """Start a task for each of `indexes`. While wanted, it runs, and puts a tuple of its outcome into its box."""
        scheduler, owner = self._scheduler, self._owner
        wanted.update(dict.fromkeys(indexes))
        parent = scheduler.current

        def run(index: int, item: A) -> None:
            try:
                owner.hold()
                if index in wanted and not owner.is_dead:
                    boxes[index] = (outcome_of(function, item),)
            except Killed:
                pass
            scheduler.wake(parent)

        for index in indexes:
            delay_ms = scheduler.random.random() * 0.1
            scheduler.spawn(f"{parent.name}/{index}", partial(run, index, items[index]), owner=owner, delay_ms=delay_ms)

    def _wait(self, is_done: Callable[[], bool], timeout_ms: float | None) -> None:
        scheduler = self._scheduler
        deadline_ms = None if timeout_ms is None else scheduler.now_ms + timeout_ms
        task = scheduler.current
        self._owner.hold()
        self._owner.check_alive()
        while not is_done():
            remaining_ms = None if deadline_ms is None else deadline_ms - scheduler.now_ms
            if remaining_ms is not None and remaining_ms <= 0:
                return
            self._waiting[task] = None
            scheduler.block(remaining_ms)
            del self._waiting[task]
            self._owner.hold()
            self._owner.check_alive()


def _until(now_ms: float, end_ms: float | None, duration_ms: float | None) -> float | None:
    """Return the shorter of `duration_ms` and the time left until `end_ms`. None stands for no bound."""
    waits = [each for each in (duration_ms, None if end_ms is None else end_ms - now_ms) if each is not None]
    return max(0.0, min(waits)) if waits else None
