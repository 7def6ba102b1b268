"""The task that heartbeats for a member of a group: it drives a Membership."""

from collections.abc import Callable

from penstock.group.group_calls import HeartbeatRequest, beat
from penstock.group.membership import Membership, MemberState
from penstock.http.async_client import AsyncClient
from penstock.http.steps import drive_async
from penstock.system import monotonic_ms, random_fraction
from penstock.workers.async_workers import AsyncLock, AsyncSignal, AsyncSleep, AsyncWorkers


class AsyncHeartbeater:
    """After each heartbeat it calls `after_heartbeat` and notifies `changed`.

    It does both under `lock`, which guards the membership. Call `wake` under the lock after a change.
    """

    def __init__(
        self,
        membership: Membership,
        group_id: str,
        client: AsyncClient,
        *,
        lock: AsyncLock,
        changed: AsyncSignal,
        after_heartbeat: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._group_id = group_id
        self._client = client
        self._lock = lock
        self._changed = changed
        self._after_heartbeat = after_heartbeat
        self._sleep = AsyncSleep()  # sync: self._sleep = Sleep(lock)
        self._workers = AsyncWorkers("penstock-heartbeat", 1, self._next_heartbeat, self._carry)

    def start(self) -> None:
        """Start the task, once."""
        self._workers.start()

    def wake(self) -> None:
        """Wake the task, if it would sleep past the next heartbeat."""
        if self._membership.wake_at_ms < self._sleep.ends_at_ms or self._membership.state is MemberState.ENDED:
            self._sleep.end()

    async def join(self) -> None:
        """Wait until the task ends: the membership must be closed.

        The task still tells the group that the member leaves, if it does. If this is cancelled,
        the task is cancelled too.
        """
        await self._workers.join()

    async def _next_heartbeat(self) -> HeartbeatRequest | None:
        with self._lock:
            while True:
                heartbeat = self._membership.next_heartbeat(monotonic_ms())
                if heartbeat is not None or self._membership.state is MemberState.ENDED:
                    return heartbeat
                await self._sleep.until(self._membership.wake_at_ms)

    async def _carry(self, heartbeat: HeartbeatRequest) -> None:
        answer = await drive_async(beat(self._group_id, heartbeat), self._client.try_once)
        with self._lock:
            self._membership.complete(heartbeat, answer, monotonic_ms(), random_fraction())
            self._after_heartbeat()
            self._changed.notify_all()
