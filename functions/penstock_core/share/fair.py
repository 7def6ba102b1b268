"""The plan of an acquire with sharing=fair: records of the tenants that have the least in flight.

```
 in flight  noisy 6, a 1        waits  noisy noisy        fresh  noisy noisy a noisy b b ...
 an acquire of 3 takes          b (0 in flight), a (1), b (1); the noisy records before them become a wait
```
Each further record goes to the tenant that has the fewest under locks and in this acquire. That is max-min fairness:
a tenant takes all that is left over, and gives way once another one has records. Between equals the nonce decides, so
that each of them gets its turn, and among those without a backlog the age of their records. Records that an acquire
passes over are kept in a wait that is due at once, as with order by key.

- **Nothing waits for ever.** One acquire in `SHARE_FAIR_OLDEST_EACH` takes the oldest records, whatever their tenant.
- **The item has a bound.** With `SHARE_FAIR_BYTES`, or without room in flight, acquires take fresh records in order.
- **Tenants alone pay nothing.** If the next fresh records are those that fairness chooses, the update is that of any
  other group: it relies on no position, and disturbs no other acquire.

The update expects the position if it passes over something, and each wait that it takes. So an old view of the state is
safe. A wrong tenant changes an order and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import (
    SHARE_FAIR_BYTES,
    SHARE_FAIR_OLDEST_EACH,
    SHARE_FAIR_RANGE_BYTES,
    SHARE_FAIR_WAIT_RANGES,
    SHARE_FAIR_WAITS_MAX,
    SHARE_LOCKS_ALL_MAX,
    SHARE_LOCKS_MAX,
    SHARE_RANGES_MAX,
    SHARE_READ_BYTES_MAX,
    SHARE_WAITS_BLIND_MAX,
)
from penstock_core.share.acknowledge import Acknowledgement, acknowledge
from penstock_core.share.acquire import (
    AcquirePlan,
    AcquireRequest,
    HandOut,
    LogBounds,
    drop_expired,
    fresh_room,
    suspects,
)
from penstock_core.share.draft import Draft
from penstock_core.share.record_set import EMPTY, Ranges, RecordSet, normalized
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, locks_of
from penstock_core.share.tenants import FINISHED, NO_TENANT, KnownTenants
from penstock_core.share.waits import add_wait, merge_waits, tends

_ENTRIES_PER_WAIT = 2  # an entry that is taken from, and the rest of it
_TENANTS_MORE = 64  # without records in flight, that an acquire chooses among, in addition to those that it takes
_RECORDS_MORE = 8  # of a tenant that an acquire looks for: one with so many more than it takes has a backlog
_SCATTER = 2_654_435_761  # Knuth's multiplier
_ENTRIES_KEPT = 3  # the lock of fresh records, and the wait of those that are passed over, with one that it joins


def plan_fair(
    state: ShareState,
    config: ShareGroupConfig,
    log: LogBounds,
    request: AcquireRequest,
    known: KnownTenants,
    acknowledgements: Sequence[Acknowledgement] = (),
    bytes_max: int = SHARE_READ_BYTES_MAX,
) -> AcquirePlan:
    """The acknowledgements, and then the acquire, on the state as it was read, with the tenants that are known.

    It takes fresh records up to the first one whose tenant is unknown. Their batches have about `bytes_max` at
    most, but for the first one.
    """
    draft = Draft(state)
    answers, planned = acknowledge(draft, config, acknowledgements, request.now_ms)
    if locks_of(state, request.nonce):
        return AcquirePlan(update=draft.update(), answers=answers, planned=planned, is_repeat=True)
    hand_out = _FairHandOut(draft, config, log, request, known, bytes_max)
    is_blocked = hand_out.take()
    if tends(request.nonce, 0):
        merge_waits(draft, config, request.now_ms)
    return AcquirePlan(
        update=draft.update(),
        answers=answers,
        planned=planned,
        is_blocked=is_blocked,
        is_alone=hand_out.is_alone,
        passed_over=hand_out.passed_over,
    )


@dataclass(slots=True)
class _Queue:
    """The records of one tenant that this acquire may take, in order, each with the first offset of its wait.

    A fresh record has None. `next` is the place of the next record.
    """

    records: list[tuple[int, Offset | None]] = field(default_factory=list)
    next: int = 0


class _FairHandOut(HandOut):
    """The records that one acquire takes, on a draft."""

    def __init__(
        self,
        draft: Draft,
        config: ShareGroupConfig,
        log: LogBounds,
        request: AcquireRequest,
        known: KnownTenants,
        bytes_max: int,
    ) -> None:
        super().__init__(draft, config, log, request)
        self._known = known
        self._bytes_left = bytes_max
        self._is_oldest_first = (self._turn >> 4) % SHARE_FAIR_OLDEST_EACH == 0
        held = [lock.held.ranges for lock in draft.locks.values() if lock.until_ms > request.now_ms]
        self._in_flight = known.count(tuple(span for ranges in held for span in ranges))
        self.passed_over = 0
        self._queues: dict[int, _Queue] = {}
        self._queued = 0  # records in the queues
        self._idle = 0  # tenants with a queue, and with nothing in flight
        self._spent: dict[Offset, Sequence[int]] = {}  # by wait: what a new filter does not take, or compaction removed
        self._full = {FINISHED}  # and tenants with more records than the acquire may take
        self._most = request.records_max + _RECORDS_MORE
        self._ranks: dict[int, int] = {}
        self._start = log.first_fresh(draft.position)
        self._end = min(known.end_from(self._start), log.next_offset)

    def take(self) -> bool:
        """Take a part of a suspect, or records by the shares of their tenants. True if fresh ones have no room."""
        drop_expired(self._draft, self._config, self._log, self._request.now_ms)
        self._remove_spent()
        waits = self._available_waits()
        for first, wait in sorted(waits, key=_first_of) if self._is_oldest_first else self._in_turn(waits):
            self._add(wait.records.minus(((0, self._log.log_start),)).ranges, first)
        room = fresh_room(self._draft, self._config) if self._draft.room() >= _ENTRIES_KEPT else 0
        if room:
            self._add(((self._start, self._end),), None)
        if self._turn % 2 or not self._queues:
            self._suspect_part(self._suspects())
        if self.is_alone or self._left <= 0:
            return False
        by_wait, fresh = self._chosen()
        by_count = self._take_from(by_wait)
        if fresh:
            taken = self._fresh_within(fresh, room)
            if not by_count and self._is_next(taken):
                self._take_next(taken.count)
            else:
                by_count[0] = by_count.get(0, EMPTY).plus(taken)
                self._pass_to(taken)
        elif room and self._end > self._start and not self._live(self._end).ranges:
            self._draft.pass_over(self._end - self._draft.position)
        for deliveries, records in sorted(by_count.items()):
            self._lock(records, deliveries)
        self._split_waits()
        return not room and self._left > 0 and self._fresh_count() > 0

    def _remove_spent(self) -> None:
        """Take out waits whose records are gone, or are finished because there is no dead-letter topic."""
        for first, wait in self._available_waits():
            is_spent = wait.is_rejected or wait.records.end <= self._log.log_start
            if is_spent and self._draft.room() > _ENTRIES_KEPT + _ENTRIES_PER_WAIT:
                self._draft.remove_wait(first)

    def _suspects(self) -> list[tuple[LockId | None, Lock | Wait]]:
        """The suspects of tenants that have no more in flight than those of the other records."""
        found = suspects(self._draft, self._config, self._request.now_ms)
        if self._is_oldest_first or not self._queues:
            return found
        lowest = min(self._in_flight[tenant] for tenant in self._queues)
        return [each for each in found if self._in_flight_beside(each[1]) <= lowest]

    def _in_flight_beside(self, entry: Lock | Wait) -> int:
        records = entry.held if isinstance(entry, Lock) else entry.records
        [tenant] = self._known.count(records.first(1).ranges) or [NO_TENANT]
        return self._in_flight[tenant]

    def _add(self, ranges: Ranges, wait: Offset | None) -> None:
        """Queue the first records of each tenant. Of fresh ones only until no later one could be chosen."""
        if wait is not None:
            for tenant, offsets in self._known.first_of(ranges, self._most).items():
                if tenant == FINISHED:
                    self._spent[wait] = offsets
                elif tenant not in self._full:
                    self._queue(tenant, offsets, wait)
            return
        for start, end in ranges:
            for batch, low, high in self._known.parts(start, end):
                for tenant, offsets in batch.of_others(low, high, self._full):
                    self._queue(tenant, offsets, wait)
                if self._has_enough():
                    return

    def _queue(self, tenant: int, offsets: Sequence[int], wait: Offset | None) -> None:
        if not offsets:
            return
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = _Queue()
            self._idle += tenant not in self._in_flight
        more = offsets[: self._most - len(queue.records)]
        queue.records += [(offset, wait) for offset in more]
        self._queued += len(more)
        if len(queue.records) >= self._most:
            self._full.add(tenant)

    def _has_enough(self) -> bool:
        if self._is_oldest_first:
            return self._queued >= self._left
        return self._idle >= self._left + _TENANTS_MORE

    def _chosen(self) -> tuple[dict[Offset, list[int]], list[int]]:
        """The offsets to take of each wait, by its first offset, and the fresh ones."""
        by_wait: dict[Offset, list[int]] = {}
        fresh: list[int] = []
        counts = {0}  # of deliveries: each has a lock
        batches: set[int] = set()
        self._rank()
        heap = [self._place(tenant, self._in_flight[tenant]) for tenant in self._queues]
        heapify(heap)
        while heap and len(fresh) + sum(map(len, by_wait.values())) < self._left:
            _, level, tenant = heap[0]
            queue = self._queues[tenant]
            offset, wait = queue.records[queue.next]
            if self._has_place(by_wait, counts, wait) and self._fits(batches, offset):
                level += 1
                (fresh if wait is None else by_wait.setdefault(wait, [])).append(offset)
                if wait is not None:
                    counts.add(self._draft.waits[wait].deliveries)
            queue.next += 1
            if queue.next < len(queue.records):
                heapreplace(heap, self._place(tenant, level))
            else:
                heappop(heap)
        return by_wait, fresh

    def _place(self, tenant: int, level: int) -> tuple[int, int, int]:
        """Sorts a tenant with that many records in flight among the others, and equals by their rank."""
        if self._is_oldest_first:
            queue = self._queues[tenant]
            return queue.records[queue.next][0], level, tenant
        return level << 32 | self._ranks[tenant], level, tenant

    def _rank(self) -> None:
        """Draw a rank for each tenant by the nonce. Those with few records swap theirs: the oldest one is first.

        So a tenant with many records wins against the others as often as each of them, however old its records are.
        """
        self._ranks = {tenant: (tenant ^ self._turn) * _SCATTER & 0xFFFFFFFF for tenant in self._queues}
        few = sorted(self._queues.keys() - self._full, key=lambda tenant: self._queues[tenant].records[0][0])
        self._ranks |= zip(few, sorted(self._ranks[tenant] for tenant in few), strict=True)

    def _has_place(self, by_wait: Mapping[Offset, object], counts: set[int], wait: Offset | None) -> bool:
        """True if the update may touch the wait, too, and its records' lock has a place."""
        if wait is None or wait in by_wait:
            return True
        locks = len(counts | {self._draft.waits[wait].deliveries})
        entries = _ENTRIES_PER_WAIT * (len(by_wait) + 1) + locks + _ENTRIES_KEPT
        return entries <= self._draft.room() and len(self._draft.locks) + locks <= SHARE_LOCKS_ALL_MAX

    def _fits(self, batches: set[int], offset: int) -> bool:
        """True if the answer has the batch of the record, or takes it, too."""
        batch = self._known.batch_at(offset)
        if batch is None or batch.base_offset in batches:
            return True
        if batches and batch.length > self._bytes_left:
            return False
        batches.add(batch.base_offset)
        self._bytes_left -= batch.length
        return True

    def _take_from(self, by_wait: Mapping[Offset, Sequence[int]]) -> dict[int, RecordSet]:
        """Take the records out of their waits. Returns them by the number of their deliveries.

        Records that are spent are taken out, too, of other waits while the update may touch more.
        """
        by_count: dict[int, RecordSet] = {}
        for first in [*by_wait, *(each for each in self._spent if each not in by_wait)]:
            if first not in by_wait and self._draft.room() < _ENTRIES_PER_WAIT + len(by_count) + _ENTRIES_KEPT:
                break
            wait = self._draft.waits[first]
            live = wait.records.minus(((0, self._log.log_start),))
            taken = live.only(_ranges_of(by_wait.get(first, ())))
            left = live.minus(taken.ranges).minus(_ranges_of(self._spent.get(first, ())))
            self._draft.remove_wait(first)
            if left.ranges:
                self._draft.put_wait(replace(wait, records=left))
            if taken.ranges:
                by_count[wait.deliveries] = by_count.get(wait.deliveries, EMPTY).plus(taken)
        return by_count

    def _fresh_within(self, chosen: Sequence[int], room: int) -> RecordSet:
        """The chosen fresh records, while the item has room for those before them; then the first ones in order."""
        wanted = _ranges_of(chosen)
        end = wanted[-1][1]
        passed = self._live(end).minus(wanted).ranges
        bound = self._passed_ranges_max()
        if len(passed) > bound:
            end = passed[bound][0]
        taken = self._live(end).first(room).only(wanted)
        missing = len(chosen) - taken.count
        if missing:
            taken = taken.plus(self._live(self._end).minus(taken.ranges).first(missing))
        return taken.first(room)

    def _passed_ranges_max(self) -> int:
        bytes_left = SHARE_FAIR_BYTES - entries_bytes(self._draft.locks, self._draft.waits)
        if len(self._draft.waits) >= SHARE_FAIR_WAITS_MAX:
            return 0
        return min(SHARE_RANGES_MAX, max(0, bytes_left // SHARE_FAIR_RANGE_BYTES))

    def _live(self, end: int) -> RecordSet:
        """The fresh records before `end`."""
        return RecordSet(((self._start, end),)).minus(self._known.finished(self._start, end))

    def _is_next(self, taken: RecordSet) -> bool:
        return taken.ranges == ((self._start, self._start + taken.count),)

    def _take_next(self, count: int) -> None:
        """Lock the next fresh records, wherever the position is."""
        position, log_start = self._draft.position, self._log.log_start
        lock = self._new_lock(Offset(0), 1, RecordSet(((0, count),)))
        start = self._start if self._start > position else log_start
        self._draft.hand_out_fresh(self._next_id(), lock, start, self._log.next_offset)
        self._draft.bound(SHARE_LOCKS_MAX, self._config.in_flight_max)
        self._left -= count

    def _pass_to(self, taken: RecordSet) -> None:
        """Move the position behind the taken records, and keep those before them."""
        if not taken.ranges:
            return
        live = self._live(self._end)
        kept = live.only(((self._start, taken.end),)).minus(taken.ranges)
        is_all = live.end == taken.end
        self._draft.pass_over((self._end if is_all else taken.end) - self._draft.position)
        self.passed_over = kept.count
        if kept.ranges:
            add_wait(self._draft, self._config, self._request.now_ms, Wait(0, 0, kept))

    def _split_waits(self) -> None:
        """Split the waits that the update changes anyway, so that acquires at the same time take of different ones."""
        for wait in self._draft.changed_waits():
            ranges, room = wait.records.ranges, SHARE_WAITS_BLIND_MAX - len(self._draft.waits)
            parts = min(-(-len(ranges) // (SHARE_FAIR_WAIT_RANGES // 2)), self._draft.room(), room)
            if len(ranges) > SHARE_FAIR_WAIT_RANGES and parts > 1 and not wait.records.hashes:
                size = -(-len(ranges) // parts)
                for at in range(0, len(ranges), size):
                    self._draft.put_wait(replace(wait, records=RecordSet(ranges[at : at + size])))


def _first_of(entry: tuple[Offset, Wait]) -> Offset:
    return entry[0]


def _ranges_of(offsets: Iterable[int]) -> Ranges:
    return normalized((offset, offset + 1) for offset in offsets)
