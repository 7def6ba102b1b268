"""The records that one acquire of a lane has handed over, and what is acknowledged of them.

A batch for the target is a part of a lock. Each acknowledgement changes the lock, so the next one goes by the lock as
the one before has left it (`next_lock_id`). So each costs one update for a partition, and none is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock_core.ids import PartitionKey, TopicName
from penstock_core.limits import READ_DECODED_BYTES_MAX, SHARE_REASON_BYTES_MAX
from penstock_core.push.batch import PushBatch, PushRecord
from penstock_core.push.parallel_attempt import batch_size
from penstock_core.push.subscription import SubscriptionConfig
from penstock_core.push.targets.kafka_event import fitting
from penstock_core.push.targets.target import why_too_large
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.dead_letter import UNDECODABLE
from penstock_core.share.record_set import Ranges, normalized
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import Lock
from penstock_service.push.bury import log_too_large
from penstock_service.push.lane_work import LaneWork
from penstock_service.share.acknowledge import AckEntry, acknowledge_entries
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.acquire.hand_over import HandedLock
from penstock_service.share.batches.decode_batches import decode_batches, expiry_times
from penstock_service.share.share_partitions import parse_marked_lock_id


class HeldLock:
    """A lock of an acquire, as its last acknowledgement has left it."""

    def __init__(self, handed: HandedLock) -> None:
        self.topic: TopicName = handed.partition.topic
        self.key: PartitionKey = handed.partition.key.partition_key
        self.lock_id = handed.grant.lock_id
        self.deliveries = handed.grant.lock.deliveries
        self._generation = handed.grant.generation
        self._client_lock_id = handed.client_lock_id
        self._now: Lock | None = handed.grant.lock

    def entry(
        self,
        kind: AckType,
        ranges: Ranges,
        *,
        delay_ms: int | None = None,
        is_uncounted: bool = False,
        is_spared: bool = False,
        is_expired: bool = False,
        reason: str = "",
    ) -> AckEntry:
        """The acknowledgement of some of its records."""
        acknowledgement = Acknowledgement(
            lock_id=self.lock_id,
            type=kind,
            offsets=ranges,
            delay_ms=delay_ms,
            reason=reason.encode(errors="replace")[:SHARE_REASON_BYTES_MAX].decode(errors="ignore"),
            is_uncounted=is_uncounted,
            is_spared=is_spared,
            is_expired=is_expired,
            generation=self._generation,
            handed_out=self._now,
        )
        return AckEntry(
            topic=self.topic,
            partition=self.key.partition,
            client_lock_id=self._client_lock_id,
            acknowledgement=acknowledgement,
        )

    def go_on(self, next_lock_id: str) -> None:
        """The lock is as that lock id tells. A lock that is too long for its id costs a read before each update."""
        self._client_lock_id = next_lock_id
        _, self._generation, self._now, _ = parse_marked_lock_id(next_lock_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRecord:
    """One record under a lock. `over_ms` is the time from which it is expired, None if it does not expire."""

    lock: HeldLock
    record: PushRecord
    over_ms: int | None = None

    @property
    def deliveries(self) -> int:
        """The number of times that the record was handed out, with this one."""
        return self.lock.deliveries


class HeldRecords:
    """The records of one acquire. `acknowledge` sends all verbs since its last call.

    Removed records are accepted. So are those of a batch that cannot be decoded, and those that no delivery can hold,
    unless there is a dead-letter topic.
    """

    def __init__(self, work: LaneWork, group: ShareGroup, acquired: Acquired) -> None:
        self._work = work
        self._instance = work.instance
        self._group = group
        self._entries: list[tuple[HeldLock, AckEntry]] = []
        budget = DecodeBudget(READ_DECODED_BYTES_MAX)
        self.records: Sequence[HeldRecord] = [
            each for handed in acquired.partitions for lock in handed.locks for each in self._of(lock, budget)
        ]

    def batches(self, config: SubscriptionConfig) -> Iterator[Sequence[HeldRecord]]:
        """The records by how often they were delivered, in batches that become smaller with that."""
        for deliveries in sorted({each.deliveries for each in self.records}):
            left = [each for each in self.records if each.deliveries == deliveries]
            while left:
                chosen = left[: batch_size(config, deliveries)]
                chosen = chosen[: fitting([each.record for each in chosen])]
                yield chosen
                left = left[len(chosen) :]

    def accept(self, records: Sequence[HeldRecord]) -> None:
        """The target has handled them."""
        self._entries += [(lock, lock.entry(AckType.ACCEPT, ranges)) for lock, ranges in _by_lock(records)]

    def pass_expired(self, records: Sequence[HeldRecord], now_ms: int) -> Sequence[HeldRecord]:
        """Finish the records whose time is over, and return the others."""
        over = [each for each in records if each.over_ms is not None and each.over_ms <= now_ms]
        self._entries += [
            (lock, lock.entry(AckType.ACCEPT, ranges, is_expired=True)) for lock, ranges in _by_lock(over)
        ]
        return [each for each in records if each.over_ms is None or each.over_ms > now_ms]

    def release(self, records: Sequence[HeldRecord]) -> None:
        """They come again after the backoff of their deliveries."""
        self._entries += [(lock, lock.entry(AckType.RELEASE, ranges)) for lock, ranges in _by_lock(records)]

    def release_uncounted(self, records: Sequence[HeldRecord], delay_ms: int) -> None:
        """They come again after `delay_ms`, and this delivery does not count."""
        self._entries += [
            (lock, lock.entry(AckType.RELEASE, ranges, delay_ms=delay_ms, is_uncounted=True))
            for lock, ranges in _by_lock(records)
        ]

    def spare(self, records: Sequence[HeldRecord], delay_ms: int) -> None:
        """They come again after `delay_ms`. This delivery counts, though it was to be their last."""
        self._entries += [
            (lock, lock.entry(AckType.RELEASE, ranges, delay_ms=delay_ms, is_spared=True))
            for lock, ranges in _by_lock(records)
        ]

    def reject(self, records: Sequence[HeldRecord], reason: str) -> None:
        """They go to the dead letters."""
        self._entries += [
            (lock, lock.entry(AckType.REJECT, ranges, reason=reason)) for lock, ranges in _by_lock(records)
        ]

    def acknowledge(self) -> None:
        """Send the verbs since the last call. One update for each partition. If it raises, they are not sent again."""
        if not self._entries:
            return
        sent, self._entries = self._entries, []
        locks = {id(entry): lock for lock, entry in sent}
        for outcome in acknowledge_entries(self._instance, self._group, [entry for _, entry in sent]):
            if outcome.next_lock_id is not None:
                locks[id(outcome.entry)].go_on(outcome.next_lock_id)

    def _of(self, handed: HandedLock, budget: DecodeBudget) -> Iterator[HeldRecord]:
        """The records of a lock, without those that a batch holds no more, that cannot be decoded, or come later."""
        lock = HeldLock(handed)
        found = decode_batches(handed.batches, handed.ranges, budget)
        if found.undecodable:
            start = found.undecodable[0][0]
            self._instance.telemetry.log("push_undecodable", partition=str(lock.key), start_offset=start)
            self._set_aside(lock, found.undecodable, UNDECODABLE)
        if found.removed:
            self._entries.append((lock, lock.entry(AckType.ACCEPT, found.removed)))
        if found.left_out:
            again = lock.entry(AckType.RELEASE, found.left_out, delay_ms=0, is_uncounted=True)
            self._entries.append((lock, again))
        over_ms = expiry_times(handed.batches, found.records)
        for each in found.records:
            record = PushRecord(topic=lock.topic, key=lock.key, record=each)
            held = HeldRecord(lock=lock, record=record, over_ms=over_ms.get(each.offset))
            why = self._why_too_large(held.record)
            if why:
                log_too_large(self._work, held.record, why)
                self._set_aside(lock, ((each.offset, each.offset + 1),), why)
            else:
                yield held

    def _set_aside(self, lock: HeldLock, ranges: Ranges, reason: str) -> None:
        kind = AckType.ACCEPT if self._group.config.dead_letter_topic is None else AckType.REJECT
        self._entries.append((lock, lock.entry(kind, ranges, reason=reason)))

    def _why_too_large(self, record: PushRecord) -> str:
        subscription = self._work.subscription
        batch = PushBatch(
            subscription=subscription.name, subscription_id=subscription.subscription_id, records=[record]
        )
        return why_too_large(subscription.target, batch)


def _by_lock(records: Sequence[HeldRecord]) -> Iterator[tuple[HeldLock, Ranges]]:
    """The locks of these records, each with the records' offsets."""
    found: dict[int, tuple[HeldLock, list[int]]] = {}
    for each in records:
        found.setdefault(id(each.lock), (each.lock, []))[1].append(each.record.record.offset)
    for lock, offsets in found.values():
        yield lock, normalized((offset, offset + 1) for offset in offsets)
