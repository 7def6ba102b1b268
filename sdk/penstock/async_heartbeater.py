"""The task that heartbeats for a member of a group: heartbeater.py for an event loop, which needs no lock."""

from collections.abc import Callable

from penstock.async_client import AsyncClient
from penstock.group_calls import beat
from penstock.heartbeat import Heartbeat
from penstock.membership import Membership, State
from penstock.steps import drive_async
from penstock.system import chance, monotonic_ms
from penstock.worker_tasks import Change, WorkerTasks


class AsyncHeartbeater:
    """`changed` is told, and `follow` called, after each heartbeat; call `wake` after a change."""

    def __init__(
        self,
        membership: Membership,
        group_id: str,
        client: AsyncClient,
        *,
        changed: Change,
        follow: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._group_id = group_id
        self._client = client
        self._changed = changed
        self._follow = follow
        self._due = Change()
        self._sleeps_until_ms = -1
        self._tasks = WorkerTasks("penstock-heartbeat", 1, self._next_heartbeat, self._carry)

    def start(self) -> None:
        """Start the task, once."""
        self._tasks.start()

    def wake(self) -> None:
        """Let the task look, if it would sleep past what there is to do."""
        if self._membership.wake_at_ms < self._sleeps_until_ms or self._membership.state is State.ENDED:
            self._sleeps_until_ms = -1
            self._due.tell()

    async def join(self) -> None:
        """Wait for the task to end: the membership is closed by now, and it leaves the group if it is to. Where this
        is cancelled, the task is too."""
        try:
            await self._tasks.join()
        finally:
            self._tasks.cancel()

    async def _next_heartbeat(self) -> Heartbeat | None:
        while True:
            heartbeat = self._membership.next_heartbeat(monotonic_ms())
            if heartbeat is not None or self._membership.state is State.ENDED:
                return heartbeat
            self._sleeps_until_ms = self._membership.wake_at_ms
            await self._due.wait(self._membership.wake_at_ms)
            self._sleeps_until_ms = -1

    async def _carry(self, heartbeat: Heartbeat) -> None:
        told = await drive_async(beat(self._group_id, heartbeat), self._client.try_once)
        self._membership.complete(heartbeat, told, monotonic_ms(), chance())
        self._follow()
        self._changed.tell()
