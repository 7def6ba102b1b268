"""Settings of consumers that rebalance fast, and a recorder of their callbacks. A group as its operators see it, by
which tests watch members without a look inside the consumers.
"""

from collections.abc import Callable
from typing import Any

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.support.deadlines import until

OFFSETS, BEAT = "/v1/groups/g/offsets", "/v1/groups/g/heartbeat"
FAST: dict[str, Any] = {
    "group_id": "g",
    "fetch_wait_ms": 10,
    "retry_backoff_ms": 1,
    "session_timeout_ms": 6_000,  # long enough that a slow machine heartbeats in time
    "heartbeat_interval_ms": 250,
}
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]


def send(service: MemoryPenstock, numbers: range) -> None:
    """Send each number to every partition."""
    with service.producer() as producer:
        for partition in range(4):
            for number in numbers:
                producer.send("orders", b"%d" % number, partition=partition)


def committed(service: MemoryPenstock) -> dict[int, int]:
    return {each.partition: each.offset for each in service.admin().group_offsets("g")}


class RebalanceRecorder:
    """Callbacks that record the partitions they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.then: dict[str, Callable[[], Any]] = {}

    def settings(self) -> dict[str, Any]:
        return {name: self._callback(name) for name in ("on_assigned", "on_revoked", "on_lost")}

    def partitions(self, name: str) -> list[int]:
        return sorted(number for each, numbers in self.calls for number in numbers if each == name)

    def _callback(self, name: str) -> Callable[[list[TopicPartition]], Any]:
        def tell(partitions: list[TopicPartition]) -> Any:
            self.calls.append((name, [each.partition for each in partitions]))
            return self.then.get(name, lambda: None)()

        return tell


def lease_epochs(service: MemoryPenstock, topic: str) -> dict[int, int]:
    """The lease epoch of each partition of the topic in group `g`. A partition that changes hands has a new one."""
    found = service.admin().describe_group("g").partitions
    return {each.partition: each.lease_epoch for each in found if each.topic == topic}


def moving(service: MemoryPenstock) -> list[TopicPartition]:
    """The partitions of group `g` that a member owns and that the group gives to another, sorted."""
    found = service.admin().describe_group("g").partitions
    return sorted(
        TopicPartition(each.topic, each.partition)
        for each in found
        if each.assigned_to is not None and each.owner is not None and each.owner != each.assigned_to
    )


def until_heard(faulty: FaultyTransport) -> None:
    """Wait until the members behind the transport have heard what the group says now: until two more heartbeats begin.

    The second begins after the answer to the first was taken.
    """
    beats = faulty.count(BEAT)
    until(lambda: faulty.count(BEAT) >= beats + 2)
