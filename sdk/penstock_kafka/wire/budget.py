"""Bytes that all connections may hold together. A connection that finds none left waits, and reads no further.

| who                                       | what it may take                                             |
|-------------------------------------------|--------------------------------------------------------------|
| a connection that holds nothing           | `KAFKA_SMALL_BYTES_MAX` at once, past all that wait          |
| a connection                              | a quarter of the budget                                      |
| all connections of a user                 | half of it                                                   |
| the first that waits, one at a time       | all that it needs, also beyond the budget                    |

So heartbeats and small requests do not wait behind large ones. The last row keeps requests that have come in part from
waiting for each other: one of them comes whole, is handled, and makes room.

While somebody waits, the budget ends connections that keep bytes and do not move: clients that stopped in the middle of
a request, or that do not take their answer. It also ends large requests that rest: they wait for records, or for other
members of a group. The largest go first, until three quarters of the budget are free.
"""

import asyncio
from collections import Counter, deque
from typing import TypeVar

from penstock.system import monotonic_ms
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, KAFKA_SMALL_BYTES_MAX, KAFKA_STALL_MS_MAX
from penstock_kafka.dispatch.api import Peer

Key = TypeVar("Key", int, str)

_LOOK_S = KAFKA_STALL_MS_MAX / 4_000


class Hold:
    """The bytes of one request or one answer. Close it when they are gone."""

    def __init__(self, budget: "ByteBudget", peer: Peer) -> None:
        self.peer = peer
        self.user = peer.principal  # a login changes it
        self.size = 0
        self.rests_since_ms: int | None = None
        self._budget = budget

    async def take(self, size: int) -> None:
        """Hold `size` bytes more, as soon as that is allowed. Close the hold also if this is cancelled."""
        await self._budget.take(self, size)

    async def take_part(self, bytes_max: int) -> int:
        """Take what a fetch of this client may answer, and return it.

        It is a quarter of what is free, but what the client's last fetch had at least, and `bytes_max` at most.
        """
        last = BATCH_BYTES_DEFAULT_MAX if self.peer.fetched_bytes is None else self.peer.fetched_bytes
        size = min(bytes_max, max(last, KAFKA_SMALL_BYTES_MAX, self._budget.free // 4))
        await self.take(size)
        return size

    def stalled_ms(self, now_ms: int) -> int:
        """The time for which the client has not moved, or for which its large request rests."""
        rests = 0
        if self.rests_since_ms is not None and self.size > KAFKA_SMALL_BYTES_MAX:
            rests = now_ms - self.rests_since_ms
        return max(rests, self.peer.stalled_ms(now_ms))

    def resize(self, size: int) -> None:
        """Hold `size` bytes from now on. More than before counts also beyond the budget: they are there already."""
        self._budget.add(self, size - self.size)

    def close(self) -> None:
        """Hold nothing any more. A second call does nothing."""
        self.resize(0)


class ByteBudget:
    """A semaphore over bytes, first come, first served, within the rules of the module."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0
        self._by_connection: Counter[int] = Counter()
        self._by_user: Counter[str] = Counter()
        self._holds: dict[Hold, None] = {}
        self._waiting: deque[tuple[Hold, int, asyncio.Future[None]]] = deque()
        self._beyond: Hold | None = None  # the one that needs no room
        self._looking: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        return self._held

    @property
    def free(self) -> int:
        """The bytes that no one holds or waits for."""
        return 0 if self._waiting else max(0, self._bytes_max - self._held)

    def open(self, peer: Peer) -> Hold:
        """A hold of nothing yet."""
        return Hold(self, peer)

    async def take(self, hold: Hold, size: int) -> None:
        """As `Hold.take`."""
        if hold is self._beyond or self._is_small(hold, size) or (not self._waiting and self._fits(hold, size)):
            self.add(hold, size)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((hold, size, future))
        self._serve()
        try:
            await future
        finally:
            if future.cancelled():  # those behind it may go
                self._serve()

    def add(self, hold: Hold, size: int) -> None:
        """Count `size` bytes more for this hold, or fewer."""
        hold.size += size
        self._held += size
        self._count(self._by_connection, hold.peer.number, size)
        if hold.user is not None:
            self._count(self._by_user, hold.user, size)
        if hold.size:
            self._holds[hold] = None
        else:
            self._holds.pop(hold, None)
            if self._beyond is hold:
                self._beyond = None
        if size < 0 and self._waiting:
            self._serve()

    def _serve(self) -> None:
        """Give to all that may have, in order. One whose own share is used up does not hold up the others."""
        stay: deque[tuple[Hold, int, asyncio.Future[None]]] = deque()
        while self._waiting:
            hold, size, future = self._waiting.popleft()
            if future.done():  # its taker was cancelled
                continue
            if not self._fits(hold, size):
                if self._beyond is not None:
                    stay.append((hold, size, future))
                    if self._has_share(hold, size):
                        break  # the budget has no room: those behind it wait as well
                    continue
                self._beyond = hold
            future.set_result(None)
            self.add(hold, size)
        self._waiting = stay + self._waiting
        if self._waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(0, self._look)

    def _fits(self, hold: Hold, size: int) -> bool:
        return hold is self._beyond or (self._has_share(hold, size) and self._has_room(size))

    def _has_room(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._bytes_max

    def _has_share(self, hold: Hold, size: int) -> bool:
        if self._by_connection[hold.peer.number] + size > self._bytes_max // 4:
            return False
        return hold.user is None or self._by_user[hold.user] + size <= self._bytes_max // 2

    def _is_small(self, hold: Hold, size: int) -> bool:
        is_first = not self._by_connection[hold.peer.number]
        return is_first and size <= KAFKA_SMALL_BYTES_MAX and self._held < 2 * self._bytes_max

    def _look(self) -> None:
        """End connections that do not move, while somebody waits."""
        self._looking = None
        if not self._waiting:
            return
        now_ms = monotonic_ms()
        excess = self._held - self._bytes_max // 4
        for hold in sorted(self._holds, key=lambda each: each.size, reverse=True):
            if excess <= 0:
                break
            if hold.stalled_ms(now_ms) >= KAFKA_STALL_MS_MAX:
                excess -= hold.size
                hold.peer.cut()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    @staticmethod
    def _count(counts: Counter[Key], key: Key, size: int) -> None:
        counts[key] += size
        if not counts[key]:
            del counts[key]
