"""Simulated time, the latencies of AWS, and the share items with what their updates cost.

Each read shows the item as it was then, and each update meets the item as it is by then. An update costs the write
units of the item's size, also if its condition refuses it. A partition key has 1,000 units a second.
"""

import heapq
import math
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from penstock_core.ids import Offset, Partition, ShareGroupId, TopicId
from penstock_core.limits import KIB
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.share.share_update import ShareUpdate, apply
from penstock_core.storage.item import item_bytes
from penstock_core.storage.share.share_state_item import share_item

# Medians in milliseconds, and the sigma of their lognormal distributions.
API_MS = (22.0, 0.35)  # API Gateway, the signature, the invocation and the handler's CPU
READ_MS, WRITE_MS = (4.0, 0.35), (5.0, 0.35)  # DynamoDB; p99 of an update is about 12 ms
GET_MS = (6.0, 0.3)  # a range of S3 Express One Zone
UNITS_PER_S = 1_000.0  # of one partition key of DynamoDB
BURST_MS = 1_000.0  # of units that a key may use ahead; DynamoDB allows minutes where a table is provisioned
THROTTLED_MS = 50.0  # until the driver tries a throttled update again

Process = Generator[float, None, None]
"""Something that goes on beside others. It yields the milliseconds until it goes on."""


@dataclass(slots=True)
class ModelItem:
    """The share item of one partition, and the write units that its key has used up."""

    key: ShareKey
    state: ShareState = field(default_factory=lambda: ShareState(position=Offset(0)))
    paid_until_ms: float = 0.0
    bytes_max: int = 0


class World:
    """The time, the chance and the items of one run. `counts` are since the last time that they were cleared."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0.0
        self.counts: Counter[str] = Counter()
        keys = [ShareKey(ShareGroupId("g" * 20), TopicId("0f" * 10), Partition(each)) for each in range(partitions)]
        self.items = [ModelItem(key) for key in keys]
        self._queue: list[tuple[float, int, Process]] = []
        self._order = count()

    def start(self, process: Process, delay_ms: float = 0.0) -> None:
        """Let the process run after `delay_ms`."""
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), process))

    def run_until(self, end_ms: float) -> None:
        """Run all processes up to that time."""
        while self._queue and self._queue[0][0] < end_ms:
            self.now_ms, _, process = heapq.heappop(self._queue)
            pause_ms = next(process, None)
            if pause_ms is not None:
                self.start(process, pause_ms)
        self.now_ms = end_ms

    def latency(self, of: tuple[float, float]) -> float:
        """Draw a latency."""
        return of[0] * math.exp(self.random.gauss(0.0, of[1]))

    def update(self, item: ModelItem, update: ShareUpdate) -> Generator[float, None, ShareState | None]:
        """Make the update, and return the state after it, None if it was refused."""
        latency_ms = self.latency(WRITE_MS)
        yield latency_ms / 2
        while item.paid_until_ms > self.now_ms + BURST_MS:
            self.counts["throttled"] += 1
            yield THROTTLED_MS * self.random.random()
        size = item_bytes(share_item(item.key, item.state))
        item.bytes_max = max(item.bytes_max, size)
        units = math.ceil(size / KIB)
        item.paid_until_ms = max(item.paid_until_ms, self.now_ms) + units * 1_000.0 / UNITS_PER_S
        self.counts["updates"] += 1
        self.counts["units"] += units
        after = apply(item.state, update)
        if after is None:
            self.counts["refused"] += 1
        else:
            item.state = after
        yield latency_ms / 2
        return after
