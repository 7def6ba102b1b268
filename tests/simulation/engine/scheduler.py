"""Simulated time and tasks: one task runs at a time, and gives way only at `pause` and `block`.

The wake times alone decide which task runs next, and the seed decides the wake times. So the same seed gives the same
run.
"""

import heapq
import re
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

STEPS_MAX = 5_000_000  # the longest runs need less than 2 percent of these

TraceEntry = tuple[float, str, str, tuple[Any, ...]]


class Task(greenlet):  # type: ignore[misc]  # greenlet has no types
    """Code that runs on its own stack. Tasks of one `owner`, such as a function instance, end together.

    `request` is the call of a client that it works for. The tasks that it starts work for that, too.
    """

    name: str
    owner: object
    request: Any
    ticket: int  # the wake-up that counts: queue entries with an older ticket are void
    is_blocked: bool
    blocked_in_turn: int

    def __repr__(self) -> str:
        return self.name


class Scheduler:
    """The queue of wake-ups, the clock that it moves, the run's one source of chance, and the trace."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0.0
        self.steps = 0
        self.trace: list[TraceEntry] = []
        self.steps_max: float = STEPS_MAX
        self.sleeps_until_ms = 0.0  # a program sleeps for hours: whoever polls meanwhile may take its time
        self.on_pause: Callable[[Task], object] = lambda _: None  # may raise, and end the task
        self._queue: list[tuple[float, int, Task, int]] = []
        self._order = count()
        self._hub = getcurrent()

    def spawn(self, name: str, run: Callable[[], object], *, owner: object = None, delay_ms: float = 0.0) -> Task:
        """Start `run` as a task after `delay_ms`. If it raises, the whole run ends."""
        task = Task(run, parent=self._hub)
        task.name, task.owner, task.ticket, task.is_blocked = name, owner, 0, False
        task.request = getattr(getcurrent(), "request", None)
        self._wake_at(task, self.now_ms + delay_ms)
        return task

    def pause(self, duration_ms: float) -> None:
        """Let other tasks run for `duration_ms` of simulated time."""
        self.on_pause(self.current)
        self._wake_at(self.current, self.now_ms + duration_ms)
        self._hub.switch()

    def pause_between_polls(self, duration_ms: float) -> None:
        """Pause, and for longer while a program sleeps: the run would poll through the hours otherwise."""
        left_ms = self.sleeps_until_ms - self.now_ms
        self.pause(duration_ms if left_ms <= 0 else max(duration_ms, left_ms * self.random.random()))

    def block(self, timeout_ms: float | None = None) -> None:
        """Let other tasks run until one calls `wake` on this task, or the time is up."""
        task = self.current
        task.is_blocked = True
        task.blocked_in_turn = next(self._order)
        task.ticket += 1
        if timeout_ms is not None:
            self._wake_at(task, self.now_ms + timeout_ms)
        self._hub.switch()
        task.is_blocked = False

    def wake(self, task: Task, at_ms: float | None = None) -> None:
        """End the task's `block`. If the task is not blocked, do nothing.

        With a time, it ends then, and comes before tasks of the same time that have begun to wait later.
        """
        if task.is_blocked:
            task.is_blocked = False
            self._wake_at(
                task, self.now_ms if at_ms is None else at_ms, None if at_ms is None else task.blocked_in_turn
            )

    def run(self) -> None:
        """Run until no task has anything left to do. Raises RuntimeError after `steps_max` steps."""
        while self._queue:
            if self.steps >= self.steps_max:
                raise RuntimeError(f"the run does not end: it has taken {self.steps:,} steps")
            at_ms, _, task, ticket = heapq.heappop(self._queue)
            if ticket != task.ticket or task.dead:
                continue
            self.now_ms = max(self.now_ms, at_ms)
            self.steps += 1
            task.switch()

    @property
    def current(self) -> Task:
        task = getcurrent()
        assert isinstance(task, Task), "only tasks may wait"
        return task

    def note(self, what: str, *facts: Any) -> None:
        """Add a line to the trace. `facts` must not change afterwards, for the trace formats them when it is read."""
        task = getcurrent()
        self.trace.append((self.now_ms, task.name if isinstance(task, Task) else "-", what, facts))

    def _wake_at(self, task: Task, at_ms: float, turn: int | None = None) -> None:
        task.ticket += 1
        heapq.heappush(self._queue, (at_ms, next(self._order) if turn is None else turn, task, task.ticket))


_SET = re.compile(r"frozenset\(\{(.*?)\}\)")


def format_entry(entry: TraceEntry) -> str:
    """Format one line of a trace."""
    at_ms, name, what, facts = entry
    return f"{at_ms:12.3f} {name:<16} {what} {' '.join(map(_format, facts))}".rstrip()


def as_text(trace: list[TraceEntry]) -> list[TraceEntry]:
    """Return the same trace with its facts as text."""
    return [(at_ms, name, what, tuple(map(_format, facts))) for at_ms, name, what, facts in trace]


def _format(fact: Any) -> str:
    if isinstance(fact, bytes):
        return fact.hex() if len(fact) <= 16 else f"<{len(fact)} bytes>"
    # The order of a set depends on hashes, which differ from process to process.
    text = _SET.sub(lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", str(fact))
    return text if len(text) <= 200 else text[:200] + "…"
