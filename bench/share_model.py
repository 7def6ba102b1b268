"""Models a share group on AWS: many workers, few partitions, and the latencies of AWS, in simulated time.

The plans of acquires and acknowledgements are the service's own, and so is the appetite of the SDK's share consumer.
Each read shows the item as it was then, and each update meets the item as it is by then. An update costs the write
units of the item's size, and a partition key has 1,000 units a second. The latencies are assumptions: Penstock has not
run on AWS yet.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock.share.appetite import Appetite
from penstock_core.ids import LockId, LockNonce, Offset, Partition, ShareGroupId, TopicId
from penstock_core.limits import (
    KIB,
    SDK_SHARE_LINGER_MS,
    SHARE_ACQUIRE_ATTEMPTS_MAX,
    SHARE_LOOKS_FIRST,
    SHARE_ROOM_RETRY_MS,
)
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge, plan_blind
from penstock_core.share.acquire import AcquireRequest, LogBounds, grants, plan_acquire
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.share.share_update import ShareUpdate, apply
from penstock_core.storage.dynamodb_limits import item_bytes
from penstock_core.storage.share.share_state_item import share_item
from penstock_service.share.acquire.partitions_in_turn import in_turn

# Medians in milliseconds, and the sigma of their lognormal distributions.
API_MS = (22.0, 0.35)  # API Gateway, the signature, the invocation and the handler's CPU
READ_MS, WRITE_MS = (4.0, 0.35), (5.0, 0.35)  # DynamoDB; p99 of an update is about 12 ms
GET_MS = (6.0, 0.3)  # a range of S3 Express One Zone
UNITS_PER_S = 1_000.0  # of one partition key of DynamoDB
BURST_MS = 1_000.0  # of units that a key may use ahead; DynamoDB allows minutes where a table is provisioned
THROTTLED_MS = 50.0  # until the driver tries a throttled update again
SHARE_OF_RATE_MIN, ONE_PARTITION_MIN = 0.95, 20_000  # the bars
LINGERS_MS = (500.0, 0.0)  # besides the SDK's, for which an acknowledgement waits for an acquire
WARM_UP_MS = 5_000.0
FINISHED = Offset(10**12)

Process = Generator[float, None, None]


@click.command(help=__doc__)
@reported("share_model")
@click.option("--seconds", default=20, show_default=True, type=click.IntRange(6), help="Of simulated time.")
def main(report: Report, seconds: int) -> None:
    report.conditions.append(
        "Latencies are assumed medians: 22 ms for API and function, 4 and 5 ms for DynamoDB, 6 ms for S3 Express."
    )
    rows: list[Row] = []
    for linger_ms in (SDK_SHARE_LINGER_MS, *LINGERS_MS):
        hard = Model(workers=300, partitions=6, work_ms=5.0, records_max=100, linger_ms=linger_ms)
        rows.append({"linger_ms": linger_ms, **hard.run(seconds)})
        if linger_ms == SDK_SHARE_LINGER_MS:
            report.judge(holds=hard.share_of_rate >= SHARE_OF_RATE_MIN)
    report.show("300_workers_6_partitions_5_ms_a_record", rows)
    one = Model(workers=40, partitions=1, work_ms=0.05, records_max=100)
    report.show("one_partition_batches_of_100", [one.run(seconds)])
    report.judge(holds=one.records_per_s >= ONE_PARTITION_MIN)


@dataclass(slots=True)
class _Item:
    """The share item of one partition, and the write units that its key has used up."""

    key: ShareKey
    state: ShareState = field(default_factory=lambda: ShareState(position=Offset(0)))
    paid_until_ms: float = 0.0
    bytes_max: int = 0


@dataclass(slots=True)
class _Batch:
    """Records of one lock that a worker has, and how many of them it has still to handle."""

    partition: int
    lock_id: LockId
    acknowledgement: Acknowledgement
    left: int


class Model:
    """One run. Workers handle one record after the other, `work_ms` each."""

    def __init__(
        self, *, workers: int, partitions: int, work_ms: float, records_max: int, linger_ms: float = SDK_SHARE_LINGER_MS
    ) -> None:
        self.work_ms, self.records_max, self.linger_ms = work_ms, records_max, linger_ms
        self.config = ShareGroupConfig()
        self.random = Random(workers)
        self.now_ms = 0.0
        self.counts: Counter[str] = Counter()
        keys = [ShareKey(ShareGroupId("g" * 20), TopicId("0f" * 10), Partition(each)) for each in range(partitions)]
        self.items = [_Item(key) for key in keys]
        self.workers = [_Worker(self) for _ in range(workers)]
        self.records_per_s = self.share_of_rate = 0.0
        self._queue: list[tuple[float, int, Process]] = []
        self._order = count()

    def run(self, seconds: int) -> Row:
        """Run, and return the figures of the time after the warm-up."""
        for worker in self.workers:
            self.start(worker.work(), self.random.uniform(0.0, 1_000.0))
        end_ms, is_warm = seconds * 1_000.0, False
        while self._queue and self._queue[0][0] < end_ms:
            self.now_ms, _, process = heapq.heappop(self._queue)
            if not is_warm and self.now_ms >= WARM_UP_MS:
                self.counts.clear()
                is_warm = True
            self.resume(process)
        self.records_per_s = self.counts["handled"] / (end_ms - WARM_UP_MS) * 1_000.0
        possible = len(self.workers) / self.work_ms * 1_000.0
        self.share_of_rate = self.records_per_s / possible
        updates = self.counts["updates"]
        return {
            "workers": len(self.workers),
            "partitions": len(self.items),
            "records_per_s": round(self.records_per_s),
            "possible_records_per_s": round(possible),
            "share_of_possible": round(self.share_of_rate, 3),
            "records_per_acquire": round(self.counts["granted"] / max(1, self.counts["acquires"]), 1),
            "updates_per_acquire": round(updates / max(1, self.counts["acquires"]), 3),
            "refused_share": round(self.counts["refused"] / max(1, updates), 4),
            "throttled_share": round(self.counts["throttled"] / max(1, updates), 4),
            "accepted_alone": self.counts["accepted alone"],
            "acquires_without_room": self.counts["blocked"],
            "item_bytes_max": max(item.bytes_max for item in self.items),
        }

    def start(self, process: Process, delay_ms: float = 0.0) -> None:
        """Let the process run after `delay_ms`."""
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), process))

    def resume(self, process: Process) -> None:
        """Run the process up to its next pause."""
        for pause_ms in process:
            if pause_ms >= 0.0:
                self.start(process, pause_ms)
            return

    def latency(self, of: tuple[float, float]) -> float:
        """Draw a latency."""
        return of[0] * math.exp(self.random.gauss(0.0, of[1]))

    def update(self, item: _Item, update: ShareUpdate) -> Generator[float, None, ShareState | None]:
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
        after = apply(item.state, update)
        if after is None:
            self.counts["refused"] += 1
        else:
            item.state = after
        yield latency_ms / 2
        return after


class _Worker:
    """A share consumer: it handles records, and acquires the next ones while it still has some."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._appetite = Appetite(model.records_max)
        self._appetite.employ(1)
        self._batches: deque[_Batch] = deque()
        self._done: list[_Batch] = []
        self._is_acquiring = False

    def work(self) -> Process:
        """Handle records for ever."""
        model = self._model
        while True:
            at_hand = sum(batch.left for batch in self._batches)
            if not self._is_acquiring and at_hand <= self._appetite.low_water:
                self._is_acquiring = True
                model.start(self._acquire())
            if not at_hand:
                self._appetite.waits(int(model.now_ms))
                yield 1.0
                continue
            batch = self._batches[0]
            self._appetite.begins(1, int(model.now_ms))
            yield model.work_ms
            model.counts["handled"] += 1
            batch.left -= 1
            if not batch.left:
                self._done.append(self._batches.popleft())
                model.start(self._accept_later(batch), model.linger_ms)

    def _acquire(self) -> Process:
        """One call: it accepts what is done, and takes more."""
        model, began_ms = self._model, self._model.now_ms
        wanted = self._appetite.ask(int(began_ms))
        done, self._done = self._done, []
        nonce = LockNonce(f"{model.random.randrange(16**8):08x}")
        yield model.latency(API_MS) / 2
        order = list(dict.fromkeys([batch.partition for batch in done]))
        order += [each for _, each in in_turn([len(model.items)], nonce) if each not in order]
        taken = 0
        for first in range(0, len(order), SHARE_LOOKS_FIRST):
            chosen = order[first : first + SHARE_LOOKS_FIRST]
            yield max(model.latency(READ_MS), model.latency(READ_MS))
            seen = {each: model.items[each].state for each in chosen}
            for each in chosen:
                mine = [batch.acknowledgement for batch in done if batch.partition == each]
                is_enough = taken > wanted // 2
                if mine or not is_enough:
                    taken += yield from self._take(each, seen[each], nonce, 0 if is_enough else wanted - taken, mine)
            if taken:
                break
        if taken:
            yield model.latency(GET_MS)
        yield model.latency(API_MS) / 2
        model.counts["acquires"] += 1
        model.counts["granted"] += taken
        self._appetite.answered(int(model.now_ms - began_ms))
        if not taken:
            model.counts["blocked"] += 1
            yield SHARE_ROOM_RETRY_MS * model.random.random()
        self._is_acquiring = False

    def _accept_later(self, batch: _Batch) -> Process:
        """Accept alone what no acquire has carried in time."""
        model, item = self._model, self._model.items[batch.partition]
        if batch not in self._done:
            return
        self._done.remove(batch)
        model.counts["accepted alone"] += 1
        yield model.latency(API_MS) / 2
        plan = plan_blind(model.config, [batch.acknowledgement], int(model.now_ms))
        while plan is not None and plan.update is not None:
            after = yield from model.update(item, plan.update)
            if after is not None:
                return
            plan = plan_acknowledge(item.state, model.config, [batch.acknowledgement], int(model.now_ms))

    def _take(
        self, number: int, state: ShareState, nonce: LockNonce, wanted: int, mine: Sequence[Acknowledgement]
    ) -> Generator[float, None, int]:
        model, item = self._model, self._model.items[number]
        log = LogBounds(log_start=Offset(0), next_offset=FINISHED)
        for _ in range(2 * SHARE_ACQUIRE_ATTEMPTS_MAX):
            now_ms = int(model.now_ms)
            request = AcquireRequest(nonce=nonce, records_max=wanted, lock_ms=model.config.lock_ms, now_ms=now_ms)
            plan = plan_acquire(state, model.config, log, request, mine)
            if plan.update is None:
                return 0
            after = yield from model.update(item, plan.update)
            if after is None:
                state = item.state  # the refusal shows it
                continue
            found = grants(after, nonce)
            for grant in found:
                acknowledgement = Acknowledgement(lock_id=grant.lock_id, type=AckType.ACCEPT, handed_out=grant.lock)
                self._batches.append(_Batch(number, grant.lock_id, acknowledgement, grant.records.count))
            return sum(grant.records.count for grant in found)
        return 0


if __name__ == "__main__":
    main()
