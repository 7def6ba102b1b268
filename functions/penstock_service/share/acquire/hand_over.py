"""Read the records of an acquire's locks, and give back what cannot be handed over.

| the records                                  | what happens to them                                         |
|----------------------------------------------|---------------------------------------------------------------|
| were read, and fit into the answer           | are handed over                                               |
| do not fit into the answer                   | go back at once, uncounted                                    |
| were removed by retention or truncation      | are finished: they have expired                               |
| do not match the group's filter              | are finished                                                  |
| are over by the header of their expiry       | are finished, and are counted                                 |
| cannot be read for a moment                  | go back for the first pause, uncounted                        |
| are damaged or missing in every zone         | go back for the longest pause, uncounted, and are counted     |

One update does all of it for one partition, before the answer: a client must know each record that is locked for it.

A repeat of an acquire gives back nothing that it cannot read: its client may have the records from another try, and
work on them. It fails instead. The locks end by themselves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import Filter
from penstock_core.ids import LockNonce
from penstock_core.limits import SHARE_ATTEMPTS_MAX, SHARE_UNREAD_PAUSE_MS
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge
from penstock_core.share.acquire import AcquireRequest, Grant, grants
from penstock_core.share.dead_letter import UNDECODABLE
from penstock_core.share.draft import apply
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig
from penstock_core.share.share_state import ShareState, locks_of
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import acknowledge_partition, busy
from penstock_service.share.acquire.fresh_window import Taken
from penstock_service.share.batches.decode_batches import filter_of, sift
from penstock_service.share.batches.read_batches import FoundBatches, StoredBatch, WantedRecords, read_batches
from penstock_service.share.share_partitions import SharePartition, count_expired, marked_lock_id, wake_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedLock:
    """One lock of an acquire, and the batches that hold its records. They may hold others, too."""

    partition: SharePartition
    grant: Grant
    batches: Sequence[StoredBatch]

    @property
    def client_lock_id(self) -> str:
        """The lock id that the client gets."""
        return marked_lock_id(self.grant, self.partition.key)

    @property
    def ranges(self) -> Ranges:
        """The records under the lock."""
        return self.grant.records.ranges

    @property
    def length(self) -> int:
        """The bytes of the batches."""
        return sum(len(batch.data) for batch in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedPartition:
    """The locks of an acquire in one partition, and the state that shows them.

    `passed_bytes` are those of the batches that were read for records which are finished: the filter did not take them,
    or they have expired. `has_expired`: some have.
    """

    partition: SharePartition
    state: ShareState
    locks: Sequence[HandedLock]
    passed_bytes: int = 0
    has_expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBounds:
    """The bytes of batches that an answer takes, and those that the call may decode for a filter, or for expiries."""

    bytes_max: int
    decoded: DecodeBudget


def hand_over(
    instance: Instance, group: ShareGroup, taken: Sequence[Taken], request: AcquireRequest, bounds: AnswerBounds
) -> list[HandedPartition]:
    """The locks with their batches, `bytes_max` at most, except that the first batch of all is always there.

    Costs what `read_batches` costs, and one update for each partition of which something goes back or is finished. With
    a filter, and in batches that may expire, records are decoded until the budget is spent, and the rest goes back;
    `records_max` of the request bounds those that match. Raises STORAGE_UNAVAILABLE for records that a repeat cannot
    read.
    """
    config, wanted, bytes_max = group.config, filter_of(group.config), bounds.bytes_max
    taken = _with_new_heads(instance, taken)
    asked = [
        WantedRecords(
            key=each.partition.key.partition_key,
            head=each.partition.head,
            ranges=_unread(each),
            wanted=wanted,
        )
        for each in taken
    ]
    handed: list[HandedPartition] = []
    records_left = request.records_max
    for seen, read in zip(taken, read_batches(instance, asked), strict=True):
        if seen.is_repeat and read.unreadable:
            raise _unread_again(seen, read)
        each = _renewed(instance, config, seen, request) if seen.is_repeat else seen
        found = replace(read, batches=_joined(each.batches, read.batches))
        sorted_out = _sift(found, each, wanted, records_left, (bounds.decoded, instance.clock.now_ms()))
        records_left -= sorted_out.matching
        kept, too_many = _within(sorted_out.found, sorted_out.ranges, bytes_max, is_first=not handed)
        bytes_max -= sum(len(batch.data) for batch in kept)
        left_out = normalized((*sorted_out.found.left_out, *too_many))
        found = replace(sorted_out.found, batches=kept, left_out=left_out)
        back = [*_given_back(instance, config, each, found, sorted_out)]
        done = give_back(instance, config, each.partition, each.state, back, request.nonce)
        given = with_batches(each.partition, done, each.grants, request.nonce, kept)
        has_expired = bool(sorted_out.expired)
        handed.append(replace(given, passed_bytes=sorted_out.passed_bytes, has_expired=has_expired))
    return handed


def _renewed(instance: Instance, config: ShareGroupConfig, taken: Taken, request: AcquireRequest) -> Taken:
    """The locks of a repeated acquire last from now on, if it still has them.

    That changes each lock, so a slower try of the same acquire cannot give back what this one hands over. The slower
    try may have finished a lock and locked other records under its id: this call has not read them, and leaves them.
    """
    renewals = [
        Acknowledgement(
            lock_id=each.lock_id,
            type=AckType.RENEW,
            generation=each.generation,
            handed_out=each.lock,
            lock_ms=max(request.lock_ms, each.lock.until_ms - request.now_ms + 1),
        )
        for each in taken.grants
    ]
    state = acknowledge_partition(instance, config, taken.partition.key, renewals, taken.state).state
    if state is None:  # the group was deleted
        return replace(taken, state=_without(taken.state, request.nonce), grants=())
    return replace(taken, state=state, grants=_among(grants(state, request.nonce), _ranges(taken.grants)))


def _unread_again(taken: Taken, found: FoundBatches) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"partition {taken.partition.key.partition} of topic {taken.partition.topic!r}: the records from offset "
        f"{found.unreadable[0][0]} on, which an earlier try of this acquire has locked, cannot be read now: "
        f"{found.error}",
        maybe_applied=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedOut:
    """What was found, with all that the filter does not take among the removed; and the ranges that are left.

    The records of `expired` are in neither.
    """

    found: FoundBatches
    ranges: Ranges
    matching: int
    undecodable: Ranges = ()
    expired: Ranges = ()
    passed_bytes: int = 0


def _sift(
    found: FoundBatches, taken: Taken, wanted: Filter | None, records_max: int, left: tuple[DecodeBudget, int]
) -> _SortedOut:
    """Apply the filter, if there is one, and look for records whose time is over, with the budget and the time `left`.

    What matches beyond `records_max` is left out, with all behind it.
    """
    ranges = _ranges(taken.grants)
    if wanted is None and not any(batch.may_expire for batch in found.batches):
        return _SortedOut(found=found, ranges=ranges, matching=RecordSet(ranges).count)
    sifted = sift(found.batches, ranges, wanted, *left)
    beyond: Ranges = sifted.left_out
    if len(sifted.matching) > records_max:
        beyond = normalized((*beyond, *RecordSet(ranges).minus(((0, sifted.matching[records_max]),)).ranges))
    gone = RecordSet(normalized((*found.removed, *found.passed, *sifted.finished))).minus(beyond).ranges
    expired = RecordSet(sifted.expired).minus(beyond).ranges
    kept = RecordSet(ranges).minus(gone).minus(expired).minus(beyond).minus(sifted.undecodable)
    open_ranges = RecordSet(normalized((*kept.ranges, *beyond)))
    return _SortedOut(
        found=replace(
            found,
            batches=[batch for batch in found.batches if kept.only((span_of(batch),)).ranges],
            removed=gone,
            left_out=normalized((*found.left_out, *beyond)),
            unreadable=RecordSet(found.unreadable).minus(beyond).ranges,
            lost=RecordSet(found.lost).minus(beyond).ranges,
        ),
        ranges=kept.ranges,
        matching=min(len(sifted.matching), records_max),
        undecodable=RecordSet(sifted.undecodable).minus(beyond).ranges,
        expired=expired,
        passed_bytes=sum(len(batch.data) for batch in found.batches if not open_ranges.only((span_of(batch),)).ranges),
    )


def _joined(some: Sequence[StoredBatch], others: Sequence[StoredBatch]) -> list[StoredBatch]:
    found = {batch.base_offset: batch for batch in (*some, *others)}
    return [found[base_offset] for base_offset in sorted(found)]


def _unread(taken: Taken) -> Ranges:
    """The records that no batch has which the look has read."""
    return RecordSet(_ranges(taken.grants)).minus(normalized(map(span_of, taken.batches))).ranges


def give_back(
    instance: Instance,
    config: ShareGroupConfig,
    partition: SharePartition,
    state: ShareState,
    acknowledgements: Sequence[Acknowledgement],
    nonce: LockNonce,
) -> ShareState:
    """The state after these records have left the locks of the acquire; `state` if there are none.

    The locks must be as `state` has them. If they are not, a repeat of the acquire hands them over, or they are gone:
    the state that it returns has none of them. Sends a wake-up if a consumer has armed meanwhile: what goes back is
    available to it. Raises THROTTLED after `SHARE_ATTEMPTS_MAX` refused updates.
    """
    left, must_wake, refused = [*acknowledgements], False, 0
    while left:
        plan = plan_acknowledge(state, config, left, instance.clock.now_ms())
        if plan.update is not None:
            outcome = instance.stores.share.update(partition.key, plan.update)
            before, wanted = outcome.before, apply(state, plan.update)
            if outcome.after is not None:
                state, must_wake = outcome.after, must_wake or outcome.took_waiter
                count_expired(instance, plan.update.expired)
            elif before is None or wanted is None:
                return _without(state, nonce)
            elif locks_of(before, nonce) == locks_of(wanted, nonce):
                state, must_wake = before, True  # it is done: the answer of its first try was lost
            elif locks_of(before, nonce) != locks_of(state, nonce):
                return _without(state, nonce)
            else:
                refused += 1
                if refused == SHARE_ATTEMPTS_MAX:
                    raise busy(partition.key)
                state = before
                continue
        left = left[plan.planned :]
    if must_wake:
        wake_workers(instance, [partition.key])
    return state


def _without(state: ShareState, nonce: LockNonce) -> ShareState:
    gone = locks_of(state, nonce)
    return replace(state, locks={name: lock for name, lock in state.locks.items() if name not in gone})


def with_batches(
    partition: SharePartition,
    state: ShareState,
    read: Sequence[Grant],
    nonce: LockNonce,
    batches: Sequence[StoredBatch],
) -> HandedPartition:
    """The locks of the acquire in the state whose records were `read` and lie in the batches, each with its batches.

    A repeat of the acquire that runs at the same time may have locked other records. They are not in the batches, so
    a client would take them for removed, and finish them. The call that has read them hands them over.
    """
    known = RecordSet(_ranges(read)).only(normalized(map(span_of, batches))).ranges
    return HandedPartition(
        partition=partition,
        state=state,
        locks=[
            HandedLock(
                partition=partition,
                grant=grant,
                batches=[batch for batch in batches if grant.records.only((span_of(batch),)).ranges],
            )
            for grant in _among(grants(state, nonce), known)
        ],
    )


def _among(found: Sequence[Grant], known: Ranges) -> list[Grant]:
    """The grants all of whose records are known."""
    return [each for each in found if not each.records.minus(known).ranges]


def span_of(batch: StoredBatch) -> Range:
    """The offsets that the batch covers."""
    return batch.base_offset, batch.next_offset


def _with_new_heads(instance: Instance, taken: Sequence[Taken]) -> list[Taken]:
    """A head is read together with its state, and may be older: then it does not cover records that come again."""
    stale = [each.partition.key.partition_key for each in taken if _end(each) > each.partition.head.next_offset]
    heads = instance.stores.log.heads(stale) if stale else {}
    return [
        replace(each, partition=replace(each.partition, head=heads[each.partition.key.partition_key]))
        if each.partition.key.partition_key in heads
        else each
        for each in taken
    ]


def _end(taken: Taken) -> int:
    return max(each.records.end for each in taken.grants)


def _ranges(found: Sequence[Grant]) -> Ranges:
    return normalized(span for each in found for span in each.records.ranges)


def _within(found: FoundBatches, ranges: Ranges, bytes_max: int, *, is_first: bool) -> tuple[list[StoredBatch], Ranges]:
    """The batches that fit, and the records of the others."""
    kept: list[StoredBatch] = []
    for batch in found.batches:
        bytes_max -= len(batch.data)
        if bytes_max < 0 and not (is_first and not kept):
            break
        kept.append(batch)
    others = normalized(map(span_of, found.batches[len(kept) :]))
    return kept, RecordSet(ranges).only(others).ranges


def _given_back(
    instance: Instance, config: ShareGroupConfig, taken: Taken, found: FoundBatches, sorted_out: _SortedOut
) -> Iterator[Acknowledgement]:
    """The acknowledgements for records that are not handed over, in the order of the locks."""
    undecodable = sorted_out.undecodable
    for name, ranges in (("share_records_unreadable", found.unreadable), ("share_records_undecodable", undecodable)):
        if ranges:
            place = str(taken.partition.key.partition_key)
            instance.telemetry.log(name, partition=place, offset=ranges[0][0], error=str(found.error))
    # A zone that does not answer may do so soon. Bytes that are lost or damaged stay so until an operator acts.
    readable_later = RecordSet(found.unreadable).minus(found.lost).ranges
    kinds = [
        (found.removed, Fate(AckType.ACCEPT)),
        (sorted_out.expired, Fate(AckType.ACCEPT, is_expired=True)),
        (found.left_out, Fate(AckType.RELEASE, delay_ms=0)),
        (readable_later, Fate(AckType.RELEASE, delay_ms=max(config.retry_backoff_ms_min, SHARE_UNREAD_PAUSE_MS))),
        (found.lost, Fate(AckType.RELEASE, delay_ms=max(config.retry_backoff_ms_max, SHARE_UNREAD_PAUSE_MS))),
        (undecodable, undecodable_fate(config)),
    ]
    for each in taken.grants:
        for ranges, fate in kinds:
            mine = each.records.only(ranges).ranges
            if mine:
                yield fate.of(each, mine)


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to records that are not handed over."""

    type: AckType
    delay_ms: int | None = None
    reason: str = ""
    is_expired: bool = False

    def of(self, grant: Grant, ranges: Ranges) -> Acknowledgement:
        """The acknowledgement of these records."""
        return Acknowledgement(
            lock_id=grant.lock_id,
            type=self.type,
            generation=grant.generation,
            handed_out=grant.lock,
            offsets=ranges,
            delay_ms=self.delay_ms,
            reason=self.reason,
            is_uncounted=self.type is AckType.RELEASE,
            is_expired=self.is_expired,
        )


def undecodable_fate(config: ShareGroupConfig) -> Fate:
    """Records that cannot be decoded go to the dead-letter topic. Without one they wait for the longest pause."""
    if config.dead_letter_topic is not None:
        return Fate(AckType.REJECT, reason=UNDECODABLE)
    return Fate(AckType.RELEASE, delay_ms=config.retry_backoff_ms_max)
