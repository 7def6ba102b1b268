"""The thread that heartbeats for a member of a group: it drives a Membership."""

import threading
from collections.abc import Callable

from penstock.client import Client
from penstock.group_calls import beat
from penstock.heartbeat import Heartbeat
from penstock.membership import Membership, State
from penstock.steps import drive
from penstock.system import chance, monotonic_ms
from penstock.worker_threads import WorkerThreads, seconds_until


class Heartbeater:
    """`lock` guards the membership, and `changed`, a condition of it, is told; call `wake` under it after a change.
    `follow` is called under it after each heartbeat."""

    def __init__(
        self,
        membership: Membership,
        group_id: str,
        client: Client,
        *,
        lock: threading.Lock,
        changed: threading.Condition,
        follow: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._group_id = group_id
        self._client = client
        self._lock = lock
        self._changed = changed
        self._follow = follow
        self._due = threading.Condition(lock)
        self._sleeps_until_ms = -1
        self._threads = WorkerThreads("penstock-heartbeat", 1, self._next_heartbeat, self._carry)

    def start(self) -> None:
        """Start the thread, once."""
        self._threads.start()

    def wake(self) -> None:
        """Let the thread look, if it would sleep past what there is to do."""
        if self._membership.wake_at_ms < self._sleeps_until_ms or self._membership.state is State.ENDED:
            self._sleeps_until_ms = -1
            self._due.notify()

    def join(self) -> None:
        """Wait for the thread to end: the membership is closed by now, and it leaves the group if it is to."""
        self._threads.join()

    def _next_heartbeat(self) -> Heartbeat | None:
        with self._lock:
            while True:
                now_ms = monotonic_ms()
                heartbeat = self._membership.next_heartbeat(now_ms)
                if heartbeat is not None or self._membership.state is State.ENDED:
                    return heartbeat
                self._sleeps_until_ms = self._membership.wake_at_ms
                self._due.wait(seconds_until(self._membership.wake_at_ms, now_ms))
                self._sleeps_until_ms = -1

    def _carry(self, heartbeat: Heartbeat) -> None:
        told = drive(beat(self._group_id, heartbeat), self._client.try_once)
        with self._lock:
            self._membership.complete(heartbeat, told, monotonic_ms(), chance())
            self._follow()
            self._changed.notify_all()
