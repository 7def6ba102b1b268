"""Transactions that take time, and the conflicts with them, for the adapters in memory.

While DynamoDB carries out a TransactWriteItems, it refuses other writes of the same items with a transaction conflict.
The client tries them again (adapters/dynamodb/client.py). Without a contention, a transaction takes no time here.
"""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import STORAGE_ATTEMPTS_MAX, STORAGE_BACKOFF_MS_MAX, TRANSACT_ATTEMPTS_MAX
from penstock_service.ports.runtime import Clock, Entropy

_BACKOFF_MS = 10.0


class Contention:
    """The items that transactions hold. Each transaction takes up to `transaction_ms` of the clock."""

    def __init__(self, clock: Clock, entropy: Entropy, transaction_ms: float) -> None:
        self._clock = clock
        self._entropy = entropy
        self._transaction_ms = transaction_ms
        self._lock = threading.Lock()
        self._held: set[Hashable] = set()
        self.conflicts = 0

    def write(self, item: Hashable) -> None:
        """Waits while a transaction holds the item. Raises STORAGE_UNAVAILABLE after as many tries as the client's."""
        for attempt in range(STORAGE_ATTEMPTS_MAX):
            with self._lock:
                if item not in self._held:
                    return
                self.conflicts += 1
            self._back_off(attempt)
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "a transaction holds the item: nothing was changed")

    @contextmanager
    def transaction(self, items: Sequence[Hashable]) -> Iterator[None]:
        """Holds the items for the time of a transaction, and then for the `with` block.

        Raises THROTTLED after as many tries as the client's.
        """
        for attempt in range(TRANSACT_ATTEMPTS_MAX):
            with self._lock:
                if not self._held.intersection(items):
                    self._held.update(items)
                    break
                self.conflicts += 1
            self._back_off(attempt)
        else:
            raise PenstockError(ErrorCode.THROTTLED, "other writers hold the items of the transaction all the time")
        try:
            self._clock.sleep_ms(self._transaction_ms * self._chance())
            yield
        finally:
            with self._lock:
                self._held.difference_update(items)

    def _back_off(self, attempt: int) -> None:
        self._clock.sleep_ms(full_jitter_ms(attempt, _BACKOFF_MS, STORAGE_BACKOFF_MS_MAX, self._chance()))

    def _chance(self) -> float:
        return int.from_bytes(self._entropy.random_bytes(2), "big") / 2**16


def held_items(contention: Contention | None, items: Sequence[Hashable]) -> AbstractContextManager[None]:
    """A context in which a transaction holds the items, for its time; without a contention, at once."""
    return nullcontext() if contention is None else contention.transaction(items)
