"""Batches that wait for a call of the service: which of them go together, and in which order. No I/O.

A lane holds the batches of one partition and one producer, oldest first. Batches without a producer id of all clients
share a lane. One call takes a run from the front of each of many lanes. A lane that is in a call waits for its end, so
a partition's batches keep their order and a producer's sequences follow each other.
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, REQUEST_PARTITIONS_MAX
from penstock_core.records.record_batch import BatchesSummary

NO_PRODUCER = -1
_RUN_BATCHES_MAX = 1_000


class LaneKey(NamedTuple):
    """A partition and one of its producers."""

    topic: str
    partition: int
    producer_id: int


Outcome = int | PenstockError  # the offset of the first record, or the error


@dataclass(slots=True, kw_only=True, eq=False)
class PendingBatch:
    """One partition's batches of one produce request.

    `is_alone`: it shares its call with no other. `maybe_applied`: the service may have stored it in an earlier try.
    `have_keys`: a compacted topic may take its records. `may_expire`: a record has the header of an expiry.
    """

    key: LaneKey
    data: bytes
    summary: BatchesSummary
    acks: str
    deadline_ms: int
    outcome: "asyncio.Future[Outcome]"
    have_keys: bool
    may_expire: bool = False
    is_alone: bool = False
    maybe_applied: bool = False

    def settle(self, outcome: Outcome) -> None:
        """Tell the request."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Batches of one lane that follow each other. They are appended together, or none of them."""

    key: LaneKey
    batches: list[PendingBatch] = field(default_factory=list)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(each.data) for each in self.batches)

    @property
    def deadline_ms(self) -> int:
        """The time at which the first of its requests is over."""
        return min(each.deadline_ms for each in self.batches)

    @property
    def is_repeatable(self) -> bool:
        """Its producer numbers its records: the service knows a repeat."""
        return self.key.producer_id != NO_PRODUCER

    @property
    def have_keys(self) -> bool:
        """No record lacks its key."""
        return all(each.have_keys for each in self.batches)

    @property
    def may_expire(self) -> bool:
        """A record has the header of an expiry."""
        return any(each.may_expire for each in self.batches)

    @property
    def maybe_applied(self) -> bool:
        """An earlier try of one of its batches may have been applied."""
        return any(each.maybe_applied for each in self.batches)

    def doubt(self) -> None:
        """This try may have been applied. The doubt stays with the batches when the run is split."""
        for each in self.batches:
            each.maybe_applied = True

    def settle(self, outcome: Outcome) -> None:
        """Tell the requests. Offsets follow each other as the batches do."""
        for each in self.batches:
            each.settle(outcome)
            if isinstance(outcome, int):
                outcome += each.summary.record_count


class Lanes:
    """All lanes. A lane is ready while it has batches and no call has one of its runs."""

    def __init__(self) -> None:
        self._queues: dict[LaneKey, deque[PendingBatch]] = {}
        self._ready: dict[LaneKey, None] = {}  # in the order in which they became ready
        self._busy: set[LaneKey] = set()
        self._bytes: Counter[LaneKey] = Counter()  # that wait

    @property
    def ready_bytes(self) -> int:
        """The bytes of all batches that a call could take now, were it large enough."""
        return sum(self._bytes[key] for key in self._ready)

    def put(self, batch: PendingBatch) -> None:
        """Add a batch at the end of its lane."""
        self._queues.setdefault(batch.key, deque()).append(batch)
        self._bytes[batch.key] += len(batch.data)
        if batch.key not in self._busy:
            self._ready[batch.key] = None

    def put_back(self, run: Run, *, is_alone: bool) -> None:
        """Add a run at the front again: nothing of it was appended, or its producer numbers its records."""
        queue = self._queues.setdefault(run.key, deque())
        for each in reversed(run.batches):
            each.is_alone |= is_alone
            queue.appendleft(each)
            self._bytes[run.key] += len(each.data)
        self.end(run.key)

    def end(self, key: LaneKey) -> None:
        """The lane's run is settled: the next one may go."""
        self._busy.discard(key)
        if self._queues.get(key):
            self._ready[key] = None
        else:
            self._queues.pop(key, None)
            self._bytes.pop(key, None)

    def take(self) -> list[Run]:
        """The runs of the next call, one per partition at most, with the same acks; none if no lane is ready."""
        runs: list[Run] = []
        taken: set[tuple[str, int]] = set()
        left = BATCH_BYTES_MAX
        acks = ""
        for key in [*self._ready]:
            head = self._queues[key][0]
            where = (key.topic, key.partition)
            if runs and (where in taken or head.acks != acks or head.is_alone or len(head.data) > left):
                continue
            acks = head.acks
            run = self._run(key, left)
            runs.append(run)
            taken.add(where)
            left -= run.size
            if head.is_alone or len(runs) == REQUEST_PARTITIONS_MAX or left <= 0:
                break
        for each in runs:
            del self._ready[each.key]
            self._bytes[each.key] -= each.size
            self._busy.add(each.key)
        return runs

    def _run(self, key: LaneKey, left: int) -> Run:
        queue = self._queues[key]
        run = Run(key=key, batches=[queue.popleft()])
        left -= run.size
        while queue and len(run.batches) < _RUN_BATCHES_MAX and _follows(run.batches[-1], queue[0], left):
            left -= len(queue[0].data)
            run.batches.append(queue.popleft())
        return run


def _follows(last: PendingBatch, following: PendingBatch, left: int) -> bool:
    if last.is_alone or following.is_alone or following.acks != last.acks or len(following.data) > left:
        return False
    before, after = last.summary.sequence, following.summary.sequence
    if before is None or after is None:
        return True
    return (after.epoch, after.first_sequence) == (before.epoch, before.last_sequence + 1)
