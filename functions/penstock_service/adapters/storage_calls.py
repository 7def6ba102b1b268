"""Counts the calls that leave for S3 and DynamoDB, repeats included: in all, and by request."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class RequestCalls:
    """The calls of one request, by `service.Operation`. Its threads carry it in their context (`ThreadExecutor`)."""

    def __init__(self, counted_by: "StorageCalls") -> None:
        self.counted_by = counted_by
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def count(self, name: str) -> None:
        """Adds one call."""
        with self._lock:
            self._counts[name] += 1

    def so_far(self) -> dict[str, int]:
        """The calls that left up to now, sorted by name."""
        with self._lock:
            return dict(sorted(self._counts.items()))


_ASKING: ContextVar[RequestCalls | None] = ContextVar("penstock_storage_calls", default=None)


class StorageCalls:
    """A running count by `service.Operation`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def watch(self, client: Any) -> None:
        """Counts every call that `client` (boto3) sends from now on, by botocore's `before-send` event."""
        client.meta.events.register("before-send", self._count)

    def count(self, service: str, operation: str) -> None:
        """Counts a call that is about to leave."""
        name = f"{service}.{operation}"
        with self._lock:
            self._counts[name] += 1
        asking = _ASKING.get()
        if asking is not None and asking.counted_by is self:
            asking.count(name)

    @contextmanager
    def of_request(self) -> Iterator[RequestCalls]:
        """The calls that the block asks for, in this thread and those of its executor.

        A call may leave after the block: it was asked for before, and Lambda froze the process meanwhile. It then
        counts for the block, which is over, and not for the one that runs.
        """
        calls = RequestCalls(self)
        token = _ASKING.set(calls)
        try:
            yield calls
        finally:
            _ASKING.reset(token)

    def snapshot(self) -> Counter[str]:
        """The counts of the process up to now."""
        with self._lock:
            return self._counts.copy()

    def since(self, earlier: Counter[str]) -> dict[str, int]:
        """The calls of the process that left since the snapshot `earlier`, sorted by name."""
        return dict(sorted((self.snapshot() - earlier).items()))

    def _count(self, event_name: str, **_arguments: Any) -> None:
        _event, service, operation = event_name.split(".")
        self.count(service, operation)
