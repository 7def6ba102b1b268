"""Counts the calls that leave for S3 and DynamoDB, repeats included."""

import threading
from collections import Counter
from typing import Any


class StorageCalls:
    """A running count by `service.Operation`, fed by botocore's `before-send` event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def watch(self, client: Any) -> None:
        """Counts every call that `client` (boto3) sends from now on."""
        client.meta.events.register("before-send", self._count)

    def snapshot(self) -> Counter[str]:
        """The counts up to now."""
        with self._lock:
            return self._counts.copy()

    def since(self, earlier: Counter[str]) -> dict[str, int]:
        """The calls that left since the snapshot `earlier`, sorted by name."""
        return dict(sorted((self.snapshot() - earlier).items()))

    def _count(self, event_name: str, **_arguments: Any) -> None:
        _event, service, operation = event_name.split(".")
        with self._lock:
            self._counts[f"{service}.{operation}"] += 1
