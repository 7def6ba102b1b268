"""Deliver in parallel: the lanes of a subscription take records of all its partitions from a hidden share group.

The share group locks records, counts their deliveries, and moves dead letters. So no order is kept, and a record that
fails holds nothing back. A lane that gets a full batch starts the next lane: as many work as there is work for.

```
acquire ─▶ invoke, in smaller batches what has failed before ─▶ acknowledge ─▶ acquire …
   └─ nothing: rest until a record may come back, or end; then the heads are armed
```
Each round costs a read of all heads and what an acquire costs, and one update for each partition that it had records
of. The lane's state is written for a failure, and each `PUSH_SUCCESS_NOTE_MS` for a success.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset, TopicName
from penstock_core.limits import (
    PUSH_LOCK_MS,
    PUSH_READ_AHEAD_BYTES,
    PUSH_TARGET_MS,
    SHARE_REASON_BYTES_MAX,
    SHARE_RECORDS_MAX,
)
from penstock_core.push.batch import Answered, Failed, Failure, PushBatch, PushRecord
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.message import PushMessage
from penstock_core.push.parallel_attempt import (
    ParallelFacts,
    batch_size,
    end_parallel,
    fail_parallel,
    failures_in_row,
    is_last,
    needs_evidence,
    succeed_parallel,
)
from penstock_core.push.targets.kafka_event import fitting
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.dead_letter import UNDECODABLE
from penstock_core.share.record_set import normalized
from penstock_service.push.lane_work import LaneResult, LaneWork, overtaken
from penstock_service.push.parallel_group import lane_delivery_key, parallel_group
from penstock_service.push.subscription_partitions import partitions_of
from penstock_service.share.acknowledge import AckEntry, acknowledge_entries
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire_of
from penstock_service.share.acquire.hand_over import HandedLock
from penstock_service.share.batches.sift import decoded_among


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """One record under a lock."""

    lock: HandedLock
    record: PushRecord

    @property
    def deliveries(self) -> int:
        return self.lock.grant.lock.deliveries


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
        self._key = lane_delivery_key(work.subscription.subscription_id, work.number)
        stored = self._instance.stores.push.find_deliveries([self._key]).get(self._key)
        self._state = stored or DeliveryState(offset=Offset(0), version=0)
        self._has_started_next = False

    def run(self) -> LaneResult:
        """Does what `deliver_parallel` says."""
        instance = self._instance
        keys = [key.partition_key for _, key in partitions_of(instance, self._subscription)]
        if not keys or self._work.number >= self._config.concurrency:
            return LaneResult(is_unfinished=False)
        while self._work.has_time():
            if self._state.next_try_ms > instance.clock.now_ms():
                return LaneResult(is_unfinished=False, due_ms=self._state.next_try_ms)
            heads = instance.stores.log.heads(keys)  # before the acquire: a later append is refused when it is armed
            acquired = acquire_of(instance, self._group, self._wish())
            if acquired.partitions:
                self._deliver(acquired)
            elif acquired.next_available_ms != 0:
                if acquired.next_available_ms is None:
                    self._put(end_parallel(self._state))
                    return LaneResult(is_unfinished=False, ends=heads)
                due_ms = instance.clock.now_ms() + acquired.next_available_ms
                return LaneResult(is_unfinished=False, due_ms=due_ms, ends=heads)
        return LaneResult(is_unfinished=True)

    def _wish(self) -> AcquireWish:
        return AcquireWish(
            records_max=min(self._config.batch_records, SHARE_RECORDS_MAX),
            bytes_max=PUSH_READ_AHEAD_BYTES,
            lock_ms=PUSH_LOCK_MS,
        )

    def _deliver(self, acquired: Acquired) -> None:
        """Invokes the target with all records of the acquire, and acknowledges them."""
        entries: list[AckEntry] = []
        held = [each for handed in acquired.partitions for lock in handed.locks for each in self._held(lock, entries)]
        if len(held) == min(self._config.batch_records, SHARE_RECORDS_MAX):
            self._start_next()
        try:
            for chosen in self._batches(held):
                if not self._work.has_time() or self._state.next_try_ms > self._instance.clock.now_ms():
                    entries += self._entries(chosen, AckType.RELEASE, delay_ms=0, is_uncounted=True)
                else:
                    self._invoke(chosen, entries)
                    self._acknowledge(entries)
        finally:  # what was answered is acknowledged, whatever fails behind it
            self._acknowledge(entries)

    def _acknowledge(self, entries: list[AckEntry]) -> None:
        """Send the entries, and empty the list. One update for each partition."""
        if entries:
            sent = [*entries]
            entries.clear()
            acknowledge_entries(self._instance, self._group, sent)

    def _held(self, lock: HandedLock, entries: list[AckEntry]) -> list[_Held]:
        """The records of a lock. It acknowledges removed records, and those of a batch that cannot be decoded."""
        topic, key = lock.partition.topic, lock.partition.key.partition_key
        found: list[_Held] = []
        for batch in lock.batches:
            mine = lock.grant.records.only(((batch.base_offset, batch.next_offset),))
            records = decoded_among(batch, mine)
            if records is None:
                self._instance.telemetry.log("push_undecodable", partition=str(key), start_offset=mine.start)
                kind = AckType.ACCEPT if self._config.dead_letter_topic is None else AckType.REJECT
                entries.append(_entry(lock, kind, mine.ranges, reason=UNDECODABLE))
                continue
            found += [
                _Held(lock=lock, record=PushRecord(topic=TopicName(topic), key=key, record=each)) for each in records
            ]
            removed = mine.minus(normalized((each.offset, each.offset + 1) for each in records)).ranges
            if removed:
                entries.append(_entry(lock, AckType.ACCEPT, removed))
        return found

    def _batches(self, held: Sequence[_Held]) -> Iterator[Sequence[_Held]]:
        """The records by how often they were delivered, in batches that become smaller with that."""
        for deliveries in sorted({each.deliveries for each in held}):
            left = [each for each in held if each.deliveries == deliveries]
            while left:
                chosen = left[: batch_size(self._config, deliveries)]
                chosen = chosen[: fitting([each.record for each in chosen])]
                yield chosen
                left = left[len(chosen) :]

    def _invoke(self, chosen: Sequence[_Held], entries: list[AckEntry]) -> None:
        """Call the target, and add what its answer acknowledges before the lane's state is written."""
        deliveries = chosen[0].deliveries
        batch = PushBatch(
            subscription=self._subscription.name,
            subscription_id=self._subscription.subscription_id,
            records=[each.record for each in chosen],
            attempt=deliveries,
        )
        answer = self._instance.stores.targets.deliver(self._subscription.target, batch, PUSH_TARGET_MS)
        now_ms = self._instance.clock.now_ms()
        if isinstance(answer, Answered) and len(answer.failed) < len(chosen):
            good = [each for each in chosen if each.record.place not in answer.failed]
            bad = [each for each in chosen if each.record.place in answer.failed]
            self._instance.telemetry.count("records_pushed", len(good))
            if bad:
                self._log(bad, "record", answer.error)
            entries += [*self._entries(good, AckType.ACCEPT), *self._counted(bad, deliveries, answer.error)]
            self._put(succeed_parallel(self._state, now_ms))
            return
        failed = answer if isinstance(answer, Failed) else Failed(failure=Failure.REFUSAL, error=answer.error)
        self._log(chosen, failed.failure.value, failed.error)
        facts = ParallelFacts(now_ms=now_ms)
        if needs_evidence(self._config, failed, deliveries):
            facts = self._evidence(now_ms)
        done = fail_parallel(self._state, self._config, failed, deliveries, facts)
        old, young = self._by_age(chosen, now_ms)
        entries += self._entries(old, AckType.REJECT, reason=_reason(failed.error))
        if done.is_counted:
            entries += self._counted(young, deliveries, failed.error)
        else:
            entries += self._entries(young, AckType.RELEASE, delay_ms=done.delay_ms, is_uncounted=True)
        self._put(done.state)

    def _counted(self, failing: Sequence[_Held], deliveries: int, error: str) -> list[AckEntry]:
        """Records whose failure counts: they come again, or go to the dead letters with the reason."""
        if is_last(self._config, deliveries):
            return self._entries(failing, AckType.REJECT, reason=_reason(error))
        return self._entries(failing, AckType.RELEASE)

    def _by_age(self, chosen: Sequence[_Held], now_ms: int) -> tuple[list[_Held], list[_Held]]:
        """The records that are older than `age_ms_max`, and the others. Without dead letters there is no such bound."""
        age_ms_max = self._config.age_ms_max
        if age_ms_max is None or self._config.dead_letter_topic is None:
            return [], [*chosen]
        old = [each for each in chosen if now_ms - each.record.record.timestamp > age_ms_max]
        return old, [each for each in chosen if each not in old]

    def _evidence(self, now_ms: int) -> ParallelFacts:
        """One query of the states of all lanes."""
        states = self._instance.stores.push.states_of(self._subscription.subscription_id).deliveries
        return ParallelFacts(
            now_ms=now_ms,
            succeeded_ms=max((each.succeeded_ms for each in states.values()), default=0),
            failures_elsewhere=sum(failures_in_row(each) for key, each in states.items() if key != self._key),
        )

    def _start_next(self) -> None:
        """Starts the next lane, once, because there may be more records than this lane has taken."""
        lanes = self._config.concurrency
        if self._has_started_next or lanes == 1:
            return
        self._has_started_next = True
        message = PushMessage(
            name=self._subscription.name,
            subscription_id=self._subscription.subscription_id,
            lane=(self._work.number + 1) % lanes,
            version=self._subscription.version,
        )
        self._instance.stores.deliveries.send([message])

    def _entries(
        self,
        chosen: Sequence[_Held],
        kind: AckType,
        delay_ms: int | None = None,
        *,
        is_uncounted: bool = False,
        reason: str = "",
    ) -> list[AckEntry]:
        """One acknowledgement for each lock of these records."""
        by_lock: dict[int, tuple[HandedLock, list[int]]] = {}
        for each in chosen:
            by_lock.setdefault(id(each.lock), (each.lock, []))[1].append(each.record.record.offset)
        return [
            _entry(
                lock,
                kind,
                normalized((offset, offset + 1) for offset in offsets),
                delay_ms=delay_ms,
                is_uncounted=is_uncounted,
                reason=reason,
            )
            for lock, offsets in by_lock.values()
        ]

    def _log(self, chosen: Sequence[_Held], kind: str, error: str) -> None:
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
        if self._instance.stores.push.put_delivery(self._key, new) != new:
            raise overtaken(self._key)
        self._state = new


def _reason(error: str) -> str:
    return error.encode(errors="replace")[:SHARE_REASON_BYTES_MAX].decode(errors="ignore")


def _entry(
    lock: HandedLock,
    kind: AckType,
    ranges: Sequence[tuple[int, int]],
    *,
    delay_ms: int | None = None,
    is_uncounted: bool = False,
    reason: str = "",
) -> AckEntry:
    grant = lock.grant
    return AckEntry(
        topic=lock.partition.topic,
        partition=lock.partition.key.partition,
        client_lock_id=lock.client_lock_id,
        acknowledgement=Acknowledgement(
            lock_id=grant.lock_id,
            type=kind,
            offsets=tuple(ranges),
            delay_ms=delay_ms,
            reason=reason,
            is_uncounted=is_uncounted,
            generation=grant.generation,
            handed_out=grant.lock,
        ),
    )
