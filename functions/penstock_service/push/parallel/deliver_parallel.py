"""Deliver in parallel: the lanes of a subscription take records of all its partitions from a hidden share group.

The share group locks records, counts their deliveries, and moves dead letters. So no order is kept, and a record that
fails holds nothing back. A lane that leaves records starts another one: as many work as there is work for.

```
acquire ─▶ invoke, in smaller batches what has failed before ─▶ acknowledge ─▶ acquire …
   │          └─ the target is not well: rest. Another lane goes on, if records wait and one is free
   ├─ no room in the share items: rest for longer and longer, but for 5 s at least
   └─ nothing: rest until a record may come back, or end; then the heads are armed
```
Each round costs a read of all heads and what an acquire costs, and one update for each batch and partition that it has
records of. The lane's state is written for a failure, and each `PUSH_SUCCESS_NOTE_MS` for a success. A lane that begins
to rest reads all states.
"""

from collections.abc import Mapping, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import (
    PUSH_EVIDENCE_MARGIN_MS,
    PUSH_LOCK_MS,
    PUSH_READ_AHEAD_BYTES,
    PUSH_TARGET_MS,
    SHARE_RECORDS_MAX,
)
from penstock_core.log.index import Head
from penstock_core.push.batch import Answered, Failed, Failure, PushBatch, reason_of
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.lane import FREE
from penstock_core.push.parallel_attempt import (
    Fate,
    ParallelFacts,
    blocked_pause_ms,
    end_parallel,
    fail_parallel,
    failures_in_row,
    is_last,
    needs_evidence,
    note_deaths,
    succeed_parallel,
)
from penstock_service.push.lane_work import LaneResult, LaneWork, overtaken
from penstock_service.push.parallel.held_records import HeldRecord, HeldRecords
from penstock_service.push.parallel.parallel_group import (
    free_lane,
    lane_delivery_key,
    next_lane,
    parallel_group,
    partition_with_records,
    start_lane,
)
from penstock_service.push.subscriptions import partitions_of
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire_of

Heads = Mapping[PartitionKey, Head]


def deliver_parallel(work: LaneWork) -> LaneResult:
    """Acquires and invokes until nothing is available, the target is not well, or the slice is over."""
    return _ParallelLane(work).run()


class _ParallelLane:
    def __init__(self, work: LaneWork) -> None:
        self._work = work
        self._instance = work.instance
        self._subscription = work.subscription
        self._config = work.subscription.config
        self._group = parallel_group(work.subscription)
        self._records_max = min(self._config.batch_records, SHARE_RECORDS_MAX)
        self._key = lane_delivery_key(work.subscription.subscription_id, work.number)
        stored = self._instance.stores.push.find_deliveries([self._key]).get(self._key)
        self._state = stored or DeliveryState(offset=Offset(0), version=0)
        if work.lane.deaths and not work.has_worked:
            self._put(note_deaths(self._state, work.lane.deaths, self._instance.clock.now_ms()))
        self._has_started_next = False

    def run(self) -> LaneResult:
        """Does what `deliver_parallel` says."""
        instance = self._instance
        keys = [key.partition_key for _, key in partitions_of(instance, self._subscription)]
        if not keys or self._work.number >= self._config.concurrency:
            return LaneResult(is_unfinished=False)
        before: Heads = {}
        while self._work.has_time():
            heads = instance.stores.log.heads(keys)  # before the acquire: a later append is refused when it is armed
            if self._is_resting():
                return self._rest(heads)
            acquired = acquire_of(instance, self._group, self._wish())
            if acquired.partitions:
                self._deliver(acquired, before)
            elif acquired.next_available_ms != 0:
                return self._end(acquired, heads)
            before = heads
        return LaneResult(is_unfinished=True)

    def _is_resting(self) -> bool:
        return self._state.next_try_ms > self._instance.clock.now_ms()

    def _rest(self, heads: Heads) -> LaneResult:
        """Rests until the next try. If a lane is free, it gets the records that wait, and those that come.

        If none is free, the heads stay without push waiters: an append could start no lane that delivers it.
        """
        due_ms = self._state.next_try_ms
        other = free_lane(self._work)
        if other is None:
            return LaneResult(is_unfinished=False, due_ms=due_ms)
        waiting = partition_with_records(self._work, self._group, heads)
        if waiting is None:
            return LaneResult(is_unfinished=False, due_ms=due_ms, ends=heads)
        start_lane(self._work, other, waiting)
        return LaneResult(is_unfinished=False, due_ms=due_ms)

    def _end(self, acquired: Acquired, heads: Heads) -> LaneResult:
        """Nothing can be taken now. A partition without room is not armed: its records wait for this lane."""
        now_ms, again_ms = self._instance.clock.now_ms(), acquired.next_available_ms
        if acquired.blocked:
            again_ms = blocked_pause_ms(self._state, now_ms, acquired.returns_in_ms)
            heads = {key: head for key, head in heads.items() if key not in acquired.blocked}
        if again_ms is None:
            self._put(end_parallel(self._state))
        due_ms = None if again_ms is None else now_ms + again_ms
        return LaneResult(is_unfinished=False, due_ms=due_ms, ends=heads)

    def _wish(self) -> AcquireWish:
        return AcquireWish(records_max=self._records_max, bytes_max=PUSH_READ_AHEAD_BYTES, lock_ms=PUSH_LOCK_MS)

    def _deliver(self, acquired: Acquired, before: Heads) -> None:
        """Invokes the target with all records of the acquire, and acknowledges them."""
        held = HeldRecords(self._work, self._group, acquired)
        if self._leaves_records(acquired, held, before):
            self._start_next()
        try:
            for chosen in held.batches(self._config):
                if not self._work.has_time() or self._is_resting():
                    held.release_uncounted(chosen, 0)
                else:
                    live = held.pass_expired(chosen, self._instance.clock.now_ms())
                    if live:
                        self._invoke(live, held)
                    held.acknowledge()
        finally:  # an answered batch is acknowledged, whatever fails behind it
            held.acknowledge()

    def _leaves_records(self, acquired: Acquired, held: HeldRecords, before: Heads) -> bool:
        """True if there are more records than this lane takes at once, of these partitions or of others.

        Of others, if it now has records that were there already when it took other ones.
        """
        if len(held.records) >= self._records_max:
            return True
        if any(each.partition.head.count_from(each.state.position) for each in acquired.partitions):
            return True
        return any(
            each.deliveries == 1
            and each.record.key in before
            and each.record.record.offset < before[each.record.key].next_offset
            for each in held.records
        )

    def _start_next(self) -> None:
        """Starts the next lane, once."""
        number = next_lane(self._work)
        if number is not None and not self._has_started_next:
            self._has_started_next = True
            start_lane(self._work, number, self._work.hint)

    def _invoke(self, chosen: Sequence[HeldRecord], held: HeldRecords) -> None:
        """Call the target, and note what its answer acknowledges."""
        deliveries = chosen[0].deliveries
        batch = PushBatch(
            subscription=self._subscription.name,
            subscription_id=self._subscription.subscription_id,
            records=[each.record for each in chosen],
            attempt=deliveries,
        )
        began_ms = self._instance.clock.now_ms()
        answer = self._instance.stores.targets.deliver(self._subscription.target, batch, PUSH_TARGET_MS)
        if isinstance(answer, Answered) and len(answer.failed) < len(chosen):
            self._succeed(chosen, answer, held, began_ms)
            return
        failed = answer if isinstance(answer, Failed) else Failed(failure=Failure.REFUSAL, error=answer.error)
        self._fail(chosen, failed, held)

    def _succeed(self, chosen: Sequence[HeldRecord], answer: Answered, held: HeldRecords, began_ms: int) -> None:
        """The target has handled the records, but perhaps some. It got them at `began_ms`."""
        good = [each for each in chosen if each.record.place not in answer.failed]
        bad = [each for each in chosen if each.record.place in answer.failed]
        self._instance.telemetry.count("records_pushed", len(good))
        held.accept(good)
        if bad:
            self._log(bad, "record", answer.error)
            self._count(bad, reason_of(Failed(failure=Failure.REFUSAL, error=answer.error)), held)
        self._put(succeed_parallel(self._state, began_ms, self._instance.clock.now_ms()))

    def _fail(self, chosen: Sequence[HeldRecord], failed: Failed, held: HeldRecords) -> None:
        """The target has handled none of the records."""
        now_ms, deliveries = self._instance.clock.now_ms(), chosen[0].deliveries
        self._log(chosen, failed.failure.value, failed.error)
        facts = ParallelFacts(now_ms=now_ms)
        if needs_evidence(self._config, failed, deliveries):
            facts = self._evidence(now_ms)
        done = fail_parallel(self._state, self._config, failed, deliveries, facts)
        old, young = self._by_age(chosen, now_ms)
        try:
            self._put(done.state)
        except PenstockError:  # a failure that is not noted must not count, or it passes for a success between
            held.release_uncounted(chosen, 0)
            raise
        held.reject(old, reason_of(failed))
        match done.fate:
            case Fate.RETRY:
                held.release(young)
            case Fate.GIVE_BACK:
                held.release_uncounted(young, done.delay_ms)
            case Fate.SPARE:
                held.spare(young, done.delay_ms)
            case Fate.BURY:
                held.reject(young, reason_of(failed))

    def _count(self, failing: Sequence[HeldRecord], reason: str, held: HeldRecords) -> None:
        """Records that the target has named come again, or go to the dead letters: its answer proves that it works."""
        if is_last(self._config, failing[0].deliveries):
            held.reject(failing, reason)
        else:
            held.release(failing)

    def _by_age(self, chosen: Sequence[HeldRecord], now_ms: int) -> tuple[list[HeldRecord], list[HeldRecord]]:
        """The records that are older than `age_ms_max`, and the others. Without dead letters there is no such bound.

        A record without a time has no age.
        """
        age_ms_max = self._config.age_ms_max
        if age_ms_max is None or self._config.dead_letter_topic is None:
            return [], [*chosen]
        old = [each for each in chosen if 0 <= each.record.record.timestamp < now_ms - age_ms_max]
        return old, [each for each in chosen if each not in old]

    def _evidence(self, now_ms: int) -> ParallelFacts:
        """One query of the states of all lanes. A lane whose lock is over has died, and has not noted it yet."""
        states = self._instance.stores.push.states_of(self._subscription.subscription_id)
        noted = [failures_in_row(each) for key, each in states.deliveries.items() if key != self._key]
        over_ms = now_ms + PUSH_EVIDENCE_MARGIN_MS
        died = [FREE < lane.locked_until_ms <= over_ms for at, lane in states.lanes.items() if at != self._work.number]
        return ParallelFacts(
            now_ms=now_ms,
            proof_ms=max((each.proof_ms for each in states.deliveries.values()), default=0),
            failures_elsewhere=sum(noted) + sum(died),
        )

    def _log(self, chosen: Sequence[HeldRecord], kind: str, error: str) -> None:
        first = chosen[0].record
        self._instance.telemetry.log(
            "push_failed",
            subscription=self._subscription.name,
            partition=str(first.key),
            offset=first.record.offset,
            kind=kind,
            error=error,
        )

    def _put(self, new: DeliveryState) -> None:
        if new == self._state:
            return
        self._work.check_first(self._key, new)
        if self._instance.stores.push.put_delivery(self._key, new) != new:
            raise overtaken(self._key)
        self._state = new
