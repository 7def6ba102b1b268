# Generated from async_heartbeater.py by `python -m tools.unasync`: change that file.
"""The thread that heartbeats for a member of a group: it drives a Membership."""

from collections.abc import Callable

from penstock.group.group_calls import HeartbeatRequest, beat
from penstock.group.membership import Membership, MemberState
from penstock.http.client import Client
from penstock.http.steps import drive
from penstock.system import monotonic_ms, random_fraction
from penstock.workers.workers import Lock, Signal, Sleep, Workers


class Heartbeater:
    """After each heartbeat it calls `after_heartbeat` and notifies `changed`.

    It does both under `lock`, which guards the membership. Call `wake` under the lock after a change.
    """

    def __init__(
        self,
        membership: Membership,
        group_id: str,
        client: Client,
        *,
        lock: Lock,
        changed: Signal,
        after_heartbeat: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._group_id = group_id
        self._client = client
        self._lock = lock
        self._changed = changed
        self._after_heartbeat = after_heartbeat
        self._sleep = Sleep(lock)
        self._workers = Workers("penstock-heartbeat", 1, self._next_heartbeat, self._carry)

    def start(self) -> None:
        """Start the thread, once."""
        self._workers.start()

    def wake(self) -> None:
        """Wake the thread, if it would sleep past the next heartbeat."""
        if self._membership.wake_at_ms < self._sleep.ends_at_ms or self._membership.state is MemberState.ENDED:
            self._sleep.end()

    def join(self) -> None:
        """Wait until the thread ends: the membership must be closed.

        The thread still tells the group that the member leaves, if it does.
        """
        self._workers.join()

    def _next_heartbeat(self) -> HeartbeatRequest | None:
        with self._lock:
            while True:
                heartbeat = self._membership.next_heartbeat(monotonic_ms())
                if heartbeat is not None or self._membership.state is MemberState.ENDED:
                    return heartbeat
                self._sleep.until(self._membership.wake_at_ms)

    def _carry(self, heartbeat: HeartbeatRequest) -> None:
        answer = drive(beat(self._group_id, heartbeat), self._client.try_once)
        with self._lock:
            self._membership.complete(heartbeat, answer, monotonic_ms(), random_fraction())
            self._after_heartbeat()
            self._changed.notify_all()
