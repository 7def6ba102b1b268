"""Bytes that all connections may hold together. A connection that finds none left waits, and reads no further."""

import asyncio
from collections import deque


class ByteBudget:
    """A semaphore over bytes, first come, first served. A single request may exceed it when nothing else is held."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        return self._held

    async def take(self, size: int) -> None:
        """Wait until `size` bytes may be held."""
        if not self._waiting and self._fits(size):
            self._held += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Hold `size` bytes less."""
        self._held -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if future.done():  # its taker was cancelled
                self._waiting.popleft()
            elif self._fits(wanted):
                self._waiting.popleft()
                self._held += wanted
                future.set_result(None)
            else:
                return

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._bytes_max
