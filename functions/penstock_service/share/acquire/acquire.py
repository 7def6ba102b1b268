"""Acquire records of a share group: lock them, read them, and wait for them if there are none.

An acquire may carry acknowledgements. Where they are for the partition that it takes records of, one update does both.
So a busy worker costs two reads, one update and the ranged gets for each batch of records.

Acquire within the fetch quotas of the caller and of the topics.

A quota never holds up an acknowledgement: its lock would end meanwhile, and the record would come again, and spend
the quota once more.

| the quota that is spent  | what the call does                                                          |
|--------------------------|-----------------------------------------------------------------------------|
| that of some topics      | hands out records of the others, and says when to come back                 |
| the caller's, or of all  | acknowledges, hands out nothing, and says when to come back                 |
| the same, in a call      | answers THROTTLED                                                           |
| without acknowledgements |                                                                             |
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import LockNonce, PartitionKey, ShareGroupId
from penstock_core.limits import (
    READ_DECODED_BYTES_MAX,
    SHARE_FILTER_REACH_MAX,
    SHARE_KEY_RECORDS_MAX,
    SHARE_LOOK_MS_MAX,
    SHARE_ROOM_RETRY_MS,
    SHARE_UNREAD_PAUSE_MS,
    SHARE_WATCHED_MAX,
)
from penstock_core.log.topic import MoveState, check_own
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acquire import AcquireRequest, next_available_ms
from penstock_core.share.bury import has_burials
from penstock_core.share.draft import arming
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import RANDOM_BYTES, ShareKey, named_nonce
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import allow_fetch
from penstock_service.quotas.wait import Wait
from penstock_service.records.count_traffic import count_sent
from penstock_service.share.acknowledge import (
    AckEntry,
    AckOutcome,
    acknowledge_entries,
    bury_due,
    count_outcomes,
    group_of,
)
from penstock_service.share.acquire.fresh_window import Look, strays
from penstock_service.share.acquire.hand_over import AnswerBounds, HandedPartition, hand_over
from penstock_service.share.acquire.look_through import look_through
from penstock_service.share.share_partitions import SharePartition, wake_workers

_REACH_GROWTH = 4
_LOOKS_MAX = 3  # of a call that finds something each time that it arms


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireWish:
    """A wish for records as a client sent it.

    - `nonce` is None for a client that never repeats an acquire. Then its locks get the name in `consumer_id`.
      `is_repeat`: the client has sent the acquire before, and got no answer.
    - `lock_ms` None is the group's. `topics` None are all topics of the group.
    - `may_take` are the topics that the caller's rights and quotas leave of these, None if they leave all. It may have
      names that the group has not.
    - `wait_ms` is how long to wait for a record. With `must_arm`, an acquire that finds none arms the partitions.
    """

    nonce: LockNonce | None = None
    is_repeat: bool = False
    records_max: int
    bytes_max: int
    lock_ms: int | None = None
    wait_ms: int = 0
    must_arm: bool = False
    topics: frozenset[str] | None = None
    may_take: frozenset[str] | None = None
    acknowledgements: Sequence[AckEntry] = ()
    consumer_id: str = ""

    @property
    def taken_topics(self) -> frozenset[str] | None:
        """The topics whose records the call takes, None for all of the group."""
        if self.topics is None or self.may_take is None:
            return self.may_take if self.topics is None else self.topics
        return self.topics & self.may_take


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPartition:
    """A partition that had nothing. `is_armed`: what makes records of it available sends a wake-up."""

    key: ShareKey
    is_armed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The answer of an acquire.

    - `next_available_ms` is the time until a record may come back without a wake-up, None if none will.
    - `blocked` are the partitions that have fresh records, and no room for them in flight. `returns_in_ms` is as
      `next_available_ms`, without the retry that looks for such room.
    - `again_ms`: the stage has cut the wait short, and the caller should come again after that time. Else None.
    - `passed_bytes` are those of the batches, by topic, that were read for records which are finished unseen: the
      filter does not take them, or they have expired.
    - `watched` is empty if there are records, and for a group with more than `SHARE_WATCHED_MAX` partitions.
    """

    group: ShareGroup
    nonce: LockNonce
    lock_ms: int
    now_ms: int
    partitions: Sequence[HandedPartition]
    acknowledged: Sequence[AckOutcome]
    next_available_ms: int | None
    returns_in_ms: int | None
    blocked: frozenset[PartitionKey]
    watched: Sequence[WatchedPartition]
    again_ms: int | None = None
    passed_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def share_group_id(self) -> ShareGroupId:
        """The group's id, which names the channel of its wake-ups."""
        return self.group.share_group_id


def acquire(instance: Instance, group_name: str, wish: AcquireWish) -> Acquired:
    """Records under locks, `records_max` and about `bytes_max` at most, and the results of the acknowledgements.

    A repeat with the same nonce gets the locks of the first try that it still has. Two reads, one update
    and the ranged gets for 100 records at the tail of a partition; `look_through` and `hand_over` say what more may
    cost. While it waits, it looks again at intervals that grow up to 1 s, while `Wait` lets it.
    Arming costs one update for each head without a waiter, and one for each partition with records in flight.

    Raises INVALID_NAME, UNKNOWN_SHARE_GROUP and INVALID_REQUEST. Raises MOVED if all topics have moved to a mirror, and
    all their records are finished. If records were locked and cannot be handed over, it raises the error of storage:
    repeat the call with its nonce.
    """
    group = group_of(instance, group_name, wish.acknowledgements)
    acquired = acquire_of(instance, group, wish)
    is_over = not (acquired.partitions or acquired.acknowledged or acquired.blocked or acquired.passed_bytes)
    if is_over and acquired.next_available_ms is None:
        _check_moved(instance, wish.taken_topics or group.topics.keys())
    return acquired


def _check_moved(instance: Instance, names: Collection[str]) -> None:
    """A read for each topic that is not remembered. One that stays keeps the group's consumers here."""
    topics = [instance.topic_cache.find(name) for name in names]
    moved = [each for each in topics if each and each.move is not None and each.move.state is MoveState.MOVED]
    if moved and len(moved) == len(topics):
        check_own(moved[0])


def acquire_of(instance: Instance, group: ShareGroup, wish: AcquireWish) -> Acquired:
    """As `acquire`, for a group that was found."""
    _check(group, wish)
    nonce = wish.nonce or named_nonce(wish.consumer_id, instance.entropy.random_bytes(RANDOM_BYTES))
    entries = wish.acknowledgements
    outcomes: list[AckOutcome] = []
    if entries and strays(nonce):
        outcomes, entries = acknowledge_entries(instance, group, entries), ()
    request = AcquireRequest(
        nonce=nonce,
        records_max=wish.records_max,
        lock_ms=group.config.lock_ms if wish.lock_ms is None else wish.lock_ms,
        now_ms=instance.clock.now_ms(),
        is_repeat=wish.is_repeat,
    )
    call = _Call(instance, group, wish)
    with errors_maybe_applied(has_begun=bool(outcomes)):  # they are made
        look = call.look(request, entries)
    outcomes += [outcome for _, outcome in sorted(look.outcomes, key=lambda each: each[0])]
    with errors_maybe_applied(has_begun=bool(wish.acknowledgements or look.taken)):
        look, watched, handed = call.records(request, look)
    for lock in (lock for each in handed for lock in each.locks):
        for batch in lock.batches:
            count_sent(instance, lock.partition.topic, batch.data)
    now_ms = instance.clock.now_ms()
    return Acquired(
        group=group,
        nonce=nonce,
        lock_ms=request.lock_ms,
        now_ms=now_ms,
        partitions=handed,
        acknowledged=outcomes,
        next_available_ms=_next_available_ms(look),
        returns_in_ms=look.available_ms,
        blocked=frozenset(look.blocked),
        watched=watched,
        again_ms=None if look.taken else call.again_ms,
        passed_bytes=call.passed_bytes,
    )


class _Call:
    """One acquire, which may look several times."""

    def __init__(self, instance: Instance, group: ShareGroup, wish: AcquireWish) -> None:
        self._instance = instance
        self._group = group
        self._wish = wish
        self.again_ms: int | None = None
        self.passed_bytes: Counter[str] = Counter()
        self._budget = DecodeBudget(READ_DECODED_BYTES_MAX)
        self._end_ms = instance.clock.monotonic_ms() + SHARE_LOOK_MS_MAX

    def records(
        self, request: AcquireRequest, look: Look
    ) -> tuple[Look, list[WatchedPartition], list[HandedPartition]]:
        """Wait for records and read them. While the group's filter takes none of them, go on, and reach farther.

        Go on also while all have expired.
        """
        reach = 1
        while True:
            look, watched = self.wait(request, look)
            if not look.taken:
                return look, watched, []
            bounds = AnswerBounds(bytes_max=self._wish.bytes_max, decoded=self._budget)
            handed = hand_over(self._instance, self._group, look.taken, request, bounds)
            for each in handed:
                self.passed_bytes[each.partition.topic] += each.passed_bytes
            is_filtered = self._group.config.filter is not None
            may_go_on = is_filtered or any(each.has_expired for each in handed)
            if not may_go_on or any(each.locks for each in handed) or self._is_late():
                return look, watched, handed
            reach = min(reach * _REACH_GROWTH, SHARE_FILTER_REACH_MAX) if is_filtered else 1
            look = self.look(request, reach=reach)

    def _is_late(self) -> bool:
        return self._budget.is_spent or self._instance.clock.monotonic_ms() > self._end_ms

    def look(self, request: AcquireRequest, entries: Sequence[AckEntry] = (), reach: int = 1) -> Look:
        """Look through the partitions, and wake the consumers that wait for what was given back."""
        look = look_through(
            self._instance,
            self._group,
            replace(request, now_ms=self._instance.clock.now_ms()),
            topics=self._wish.taken_topics,
            bytes_max=self._wish.bytes_max,
            entries=entries,
            reach=reach,
        )
        self.passed_bytes += look.passed_bytes
        count_outcomes(self._instance, [outcome for _, outcome in look.outcomes])
        wake_workers(self._instance, look.woken)
        with errors_maybe_applied(has_begun=bool(look.outcomes or look.taken)):
            self._bury_some(look)
        return look

    def _bury_some(self, look: Look) -> None:
        """Move dead letters of one of the partitions, if there are any."""
        now_ms = self._instance.clock.now_ms()
        seen = [*look.idle, *(replace(each.partition, state=each.state) for each in look.taken)]
        for partition in seen:
            if partition.state is not None and has_burials(partition.state, self._group.config, now_ms):
                if not bury_due(self._instance, self._group, partition):
                    # It is due, and nobody can move it now: come back a little later.
                    look.available_ms = max(look.available_ms or 0, SHARE_UNREAD_PAUSE_MS)
                return

    def wait(self, request: AcquireRequest, look: Look) -> tuple[Look, list[WatchedPartition]]:
        """Look again until there are records, or the wait ends. Arm the partitions then, if the client wants that."""
        with Wait(self._instance, self._wish.wait_ms) as wait:
            while not (look.taken or look.is_spent) and ((look.has_passed and not self._is_late()) or wait.pause()):
                look = self.look(request)
        self.again_ms = wait.again_ms
        return (look, []) if look.taken else self._arm(request, look)

    def _arm(self, request: AcquireRequest, look: Look) -> tuple[Look, list[WatchedPartition]]:
        """Arm all partitions. If one of them has got records meanwhile, look again."""
        for _ in range(_LOOKS_MAX):
            may_arm = look.is_complete and not (look.blocked or look.has_passed) and len(look.idle) <= SHARE_WATCHED_MAX
            watched = [WatchedPartition(key=each.key, is_armed=False) for each in look.idle[:SHARE_WATCHED_MAX]]
            if not (self._wish.must_arm and may_arm and self._instance.stores.wake_ups.place):
                return look, watched if look.is_complete and len(look.idle) <= SHARE_WATCHED_MAX else []
            if all(self._instance.executor.map(self._arm_partition, look.idle).all_ok()):
                return look, [replace(each, is_armed=True) for each in watched]
            look = self.look(request)
            if look.taken:
                return look, []
        look.note_available(0)
        return look, []

    def _arm_partition(self, partition: SharePartition) -> bool:
        """Arm the head and the share item. False if something of the partition is available by now."""
        stores, now_ms = self._instance.stores, self._instance.clock.now_ms()
        head, state = partition.head, partition.state
        if head.waiter_ms is None:
            is_armed, _ = stores.log.arm(partition.key.partition_key, head.next_offset, now_ms)
            if not is_armed:
                return False
        if state is None or not state.open or state.waiter_ms is not None:
            return True
        outcome = stores.share.update(partition.key, arming(state, now_ms))
        if outcome.after is None:
            return False
        return next_available_ms(outcome.after, self._group.config, now_ms, partition.held) != 0


def _next_available_ms(look: Look) -> int | None:
    """0 if the look has not seen everything."""
    if look.taken or look.has_passed or look.is_spent or not look.is_complete:
        return 0
    if look.blocked:
        return min(SHARE_ROOM_RETRY_MS, SHARE_ROOM_RETRY_MS if look.available_ms is None else look.available_ms)
    return look.available_ms


def _check(group: ShareGroup, wish: AcquireWish) -> None:
    unknown = sorted((wish.topics or frozenset()) - group.topics.keys())
    if unknown:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topics has {shown(unknown[0])}, which share group {group.name!r} does not read: "
            f"name some of {', '.join(group.topics)}",
        )
    if group.config.is_by_key and wish.records_max > SHARE_KEY_RECORDS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"max_records={wish.records_max}: {SHARE_KEY_RECORDS_MAX} at most with ordering=key",
            limit=SHARE_KEY_RECORDS_MAX,
        )


def acquire_within_quotas(instance: Instance, principal: str, group_name: str, wish: AcquireWish) -> Acquired:
    """The answer of `acquire` for as much of the wish as the quotas leave.

    Costs what `take_share` costs for each quota, and what `acquire` costs. Raises THROTTLED before anything is
    acquired, and what `acquire` raises.
    """
    topics = wish.taken_topics
    if topics is None:
        topics = frozenset(instance.share_group_cache.get(group_name).topics)
    try:
        allowance = allow_fetch(instance, principal, topics, wish.bytes_max)
    except PenstockError as error:
        if "quota" not in error.facts or not wish.acknowledgements:
            raise
        return _acknowledged_only(instance, group_name, wish, int(error.facts["retry_after_ms"]))
    wish = replace(wish, bytes_max=allowance.max_bytes)
    if not allowance.refused:
        acquired = acquire(instance, group_name, wish)
    else:  # it sees not all topics, so it tells of no move
        wish = replace(wish, may_take=topics - allowance.refused.keys())
        acquired = acquire_of(instance, group_of(instance, group_name, wish.acknowledgements), wish)
    allowance.settle(instance, _sizes(acquired))
    again_ms = [int(error.facts["retry_after_ms"]) for error in allowance.refused.values()]
    return _available_in(acquired, min(again_ms)) if again_ms else acquired


def _acknowledged_only(instance: Instance, group_name: str, wish: AcquireWish, retry_after_ms: int) -> Acquired:
    group = group_of(instance, group_name, wish.acknowledgements)
    outcomes = acknowledge_entries(instance, group, wish.acknowledgements)
    return Acquired(
        group=group,
        nonce=wish.nonce or LockNonce(""),  # no lock is told
        lock_ms=group.config.lock_ms if wish.lock_ms is None else wish.lock_ms,
        now_ms=instance.clock.now_ms(),
        partitions=(),
        acknowledged=outcomes,
        next_available_ms=retry_after_ms,
        returns_in_ms=retry_after_ms,
        blocked=frozenset(),
        watched=(),
    )


def _available_in(acquired: Acquired, again_ms: int) -> Acquired:
    known_ms = acquired.next_available_ms
    return replace(acquired, next_available_ms=again_ms if known_ms is None else min(known_ms, again_ms))


def _sizes(acquired: Acquired) -> dict[str, int]:
    """The bytes of the batches that are handed out, or were read for records that the filter finished, by topic."""
    sizes: Counter[str] = Counter(acquired.passed_bytes)
    for each in acquired.partitions:
        for lock in each.locks:
            sizes[lock.partition.topic] += sum(len(batch.data) for batch in lock.batches)
    return sizes
