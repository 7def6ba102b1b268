"""The share group `workers` over the topic `orders` of a service in memory: what tests put in, and what is left."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport

ACQUIRE = "/v1/share-groups/workers/acquire"
ACKNOWLEDGE = "/v1/share-groups/workers/acknowledge"
BACKOFF_MS = 20


class WorkGroup:
    """Two partitions, no dead-letter topic, a backoff of `BACKOFF_MS`. `transport` records calls, and fails as told."""

    def __init__(self, service: MemoryPenstock) -> None:
        self._service = service
        self.admin = service.admin()
        self.transport = FaultyTransport(service.transport)
        service.create_topic("orders", partitions=2)
        config = {"retry_backoff_ms_min": BACKOFF_MS, "retry_backoff_ms_max": BACKOFF_MS}
        self.admin.create_share_group("workers", "orders", config)

    def append(self, *values: bytes, partition: int = 0) -> None:
        with self._service.producer() as producer:
            for value in values:
                producer.send("orders", value, partition=partition, timestamp_ms=1_000)

    def unfinished(self) -> int:
        """How many records are not finished."""
        return sum(each.lag for each in self.admin.describe_share_group("workers").partitions)

    def in_flight(self) -> int:
        """How many records are locked."""
        return sum(each.in_flight for each in self.admin.describe_share_group("workers").partitions)

    def left(self) -> dict[str, int]:
        """The records that may be acquired now, with the deliveries that they had before. This locks them."""
        found = _call(self._service.transport, "records", {"max_records": 500})["records"]
        return {each["value"]: each["delivery_count"] - 1 for each in found}

    def lose_locks(self) -> None:
        """End all locks, as a reset does."""
        self.admin.reset_share_group("workers", "orders", to="latest")

    def acknowledgements(self) -> list[dict[str, Any]]:
        """All that consumers have sent, in order."""
        bodies = [json.loads(body) for _, path, body in self.transport.calls if path in (ACQUIRE, ACKNOWLEDGE)]
        return [each for body in bodies for each in body["acknowledge"]]

    def sent(self, kind: str) -> int:
        """How many acknowledgements of this type consumers have sent."""
        return sum(each["type"] == kind for each in self.acknowledgements())


def _call(transport: Transport, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = transport.call("POST", f"/v1/share-groups/workers/{name}", {}, {}, json.dumps(body).encode())
    assert answer.status == 200, answer.body
    document: dict[str, Any] = json.loads(answer.body)
    return document
