"""Acknowledge records of a share group: accept, release, reject, renew.

Each partition of the group is one item, and all acknowledgements for it are one update. The lock id that a client got
tells the lock as it was handed out. So the update usually needs no read: its condition is that the lock is unchanged.
If it is refused, the refusal shows the item, and the next update goes by that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicName
from penstock_core.limits import SHARE_ATTEMPTS_MAX, SHARE_BURIALS_MAX
from penstock_core.outcomes import as_maybe_applied, errors_maybe_applied
from penstock_core.share.acknowledge import (
    AckAnswer,
    Acknowledgement,
    AckPlan,
    AckResult,
    AckType,
    plan_acknowledge,
    plan_blind,
)
from penstock_core.share.acquire import Grant
from penstock_core.share.bury import has_burials
from penstock_core.share.record_set import Ranges
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.instance.instance import Instance
from penstock_service.share.dead_letters.bury import bury
from penstock_service.share.share_partitions import SharePartition, count_expired, mark_of, marked_lock_id, wake_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class AckEntry:
    """An acknowledgement as a client sent it. `client_lock_id` is the lock id as sent, `mark` the end of it or ""."""

    topic: str
    partition: int
    client_lock_id: str
    mark: str = ""
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True, kw_only=True)
class AckOutcome:
    """The result for some ranges of an entry; None: for all that the entry is for.

    `next_lock_id` tells the lock as it is now. With it, one write acknowledges the rest of the lock without a read.
    None: the lock is gone, or `client_lock_id` tells it already.
    """

    entry: AckEntry
    ranges: Ranges | None
    result: AckResult
    next_lock_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAcks:
    """The answers of one partition's acknowledgements, by their places, and the state after them, None if unknown.

    `has_begun`: an update was applied, or may have been.
    """

    answers: Sequence[AckAnswer]
    state: ShareState | None
    must_wake: bool
    has_begun: bool


def acknowledge(instance: Instance, group_name: str, entries: Sequence[AckEntry]) -> list[AckOutcome]:
    """The results of all entries, in order; several for an entry whose ranges have different ones.

    One update for each partition, and one more for each time that it is refused. An update that makes records
    available, while a consumer waits for them, sends a wake-up. If it leaves dead letters, `bury` moves some.

    Raises INVALID_NAME and UNKNOWN_SHARE_GROUP, and for a partition that other writers change all the time THROTTLED:
    partitions before it may be acknowledged then.
    """
    return acknowledge_entries(instance, group_of(instance, group_name, entries), entries)


def group_of(instance: Instance, group_name: str, entries: Sequence[AckEntry]) -> ShareGroup:
    """The group that the entries are for.

    A remembered group may have been deleted and made anew. By it, the locks of the new one would be lost, and a client
    would be told so of records that it has accepted. So a lock of another group reads the group. Raises INVALID_NAME
    and UNKNOWN_SHARE_GROUP.
    """
    group = instance.share_group_cache.get(group_name)
    is_foreign = None in by_partition(group, entries)
    return instance.share_group_cache.read_through(group_name) if is_foreign else group


def acknowledge_entries(instance: Instance, group: ShareGroup, entries: Sequence[AckEntry]) -> list[AckOutcome]:
    """As `acknowledge`, for a group that was found."""
    places = by_partition(group, entries)
    keys = [key for key in places if key is not None]
    results = instance.executor.map(
        lambda key: acknowledge_partition(
            instance, group.config, key, [entries[place].acknowledgement for place in places[key]]
        ),
        keys,
    )
    wake_workers(instance, [key for key, result in zip(keys, results, strict=True) if _must_wake(result)])
    has_begun = any(each.maybe_applied if isinstance(each, PenstockError) else each.has_begun for each in results)
    with errors_maybe_applied(has_begun=has_begun):  # in other partitions than that of the error
        found = dict(zip(keys, results.all_ok(), strict=True))
    outcomes = unknown_outcomes(entries, places)
    for key, result in found.items():
        outcomes += answered(entries, places[key], result.answers, LocksNow(key, result.state))
    outcomes.sort(key=lambda each: each[0])
    with errors_maybe_applied(has_begun=has_begun):
        _bury_some(instance, group, {key: (entries[places[key][0]].topic, result) for key, result in found.items()})
    count_outcomes(instance, [outcome for _, outcome in outcomes])
    return [outcome for _, outcome in outcomes]


def acknowledge_partition(
    instance: Instance,
    config: ShareGroupConfig,
    key: ShareKey,
    acknowledgements: Sequence[Acknowledgement],
    state: ShareState | None = None,
) -> PartitionAcks:
    """The acknowledgements of one partition; `state` is the item as it was read, None if it was not.

    The caller sends the wake-up. Raises THROTTLED after `SHARE_ATTEMPTS_MAX` refused updates.
    """
    share, now_ms = instance.stores.share, instance.clock.now_ms()
    answers: list[AckAnswer] = []
    must_wake, has_begun, done, refused = False, False, 0, 0
    plan = _sure_blind_plan(config, acknowledgements, now_ms) if state is None else None
    while True:
        if plan is None:
            state = share.find_states([key]).get(key) if state is None else state
            if state is None:
                answers += [_lost(index) for index in range(done, len(acknowledgements))]
                return PartitionAcks(answers=answers, state=None, must_wake=must_wake, has_begun=has_begun)
            plan = plan_acknowledge(state, config, acknowledgements[done:], now_ms)
        if plan.update is not None:
            with errors_maybe_applied(has_begun=has_begun):
                outcome = share.update(key, plan.update)
            has_begun |= outcome.is_applied or outcome.maybe_applied
            if not outcome.is_applied:
                refused += 1
                if refused == SHARE_ATTEMPTS_MAX:
                    raise as_maybe_applied(busy(key)) if has_begun else busy(key)
                plan, state = None, outcome.before
                continue
            state = outcome.after
            must_wake |= outcome.took_waiter
        new = [replace(each, index=each.index + done) for each in plan.answers]
        answers += new
        must_wake |= any(_repeats_release(acknowledgements[each.index], each) for each in new)
        done += plan.planned
        if done == len(acknowledgements):
            return PartitionAcks(answers=answers, state=state, must_wake=must_wake, has_begun=has_begun)
        plan = None


def by_partition(group: ShareGroup, entries: Sequence[AckEntry]) -> dict[ShareKey | None, list[int]]:
    """The places of the entries by partition.

    Those of topics that the group does not read, and of a group or topic before it was made anew, are under None.
    """
    places: dict[ShareKey | None, list[int]] = {}
    for index, entry in enumerate(entries):
        topic_id = group.topics.get(TopicName(entry.topic))
        key = None if topic_id is None else ShareKey(group.share_group_id, topic_id, Partition(entry.partition))
        if key is not None and entry.mark not in ("", mark_of(key)):
            key = None
        places.setdefault(key, []).append(index)
    return places


@dataclass(frozen=True, slots=True)
class LocksNow:
    """The locks of a partition as an update has left them; state None: there are none."""

    key: ShareKey
    state: ShareState | None

    def next_lock_id(self, entry: AckEntry) -> str | None:
        """The lock id to go on with, None if it is as the client sent it or the lock is gone."""
        name = entry.acknowledgement.lock_id
        lock = None if self.state is None else self.state.locks.get(name)
        if self.state is None or lock is None:
            return None
        found = marked_lock_id(Grant(lock_id=name, lock=lock, generation=self.state.generation), self.key)
        return None if found == entry.client_lock_id else found


def answered(
    entries: Sequence[AckEntry], places: Sequence[int], answers: Iterable[AckAnswer], now: LocksNow
) -> list[tuple[int, AckOutcome]]:
    """The outcomes of one partition's entries, which have these places, each with its place."""
    return [
        (
            places[each.index],
            AckOutcome(
                entry=entries[places[each.index]],
                ranges=each.ranges or None,
                result=each.result,
                next_lock_id=now.next_lock_id(entries[places[each.index]]),
            ),
        )
        for each in answers
    ]


def unknown_outcomes(
    entries: Sequence[AckEntry], places: Mapping[ShareKey | None, Sequence[int]]
) -> list[tuple[int, AckOutcome]]:
    """The outcomes of the entries without a partition of the group, each with its place: their locks are lost."""
    return [
        (
            place,
            AckOutcome(entry=entries[place], ranges=entries[place].acknowledgement.offsets, result=AckResult.LOST),
        )
        for place in places.get(None, ())
    ]


def count_outcomes(instance: Instance, outcomes: Iterable[AckOutcome]) -> None:
    """Count the records by what happened to them."""
    for each in outcomes:
        count = sum(end - start for start, end in each.ranges or ())
        if each.result is AckResult.LOST:
            instance.telemetry.count("share_locks_lost")
        elif each.result is AckResult.OK and each.entry.acknowledgement.is_expired:
            count_expired(instance, count)
        elif each.result is AckResult.OK and each.entry.acknowledgement.type in _COUNTED:
            instance.telemetry.count(_COUNTED[each.entry.acknowledgement.type], count)


def busy(key: ShareKey) -> PenstockError:
    """The error for a partition that other writers change all the time."""
    return PenstockError(
        ErrorCode.THROTTLED,
        f"partition {key.partition_key} changes too often in share group {key.share_group_id}: "
        f"{SHARE_ATTEMPTS_MAX} updates were refused. Try again",
    )


_COUNTED = {
    AckType.ACCEPT: "share_records_accepted",
    AckType.RELEASE: "share_records_released",
    AckType.REJECT: "share_records_rejected",
}


def _sure_blind_plan(
    config: ShareGroupConfig, acknowledgements: Sequence[Acknowledgement], now_ms: int
) -> AckPlan | None:
    """The plan without a read, if it answers only for offsets that the locks themselves hold."""
    plan = plan_blind(config, acknowledgements, now_ms)
    if plan is None or plan.update is None or any(each.result is not AckResult.OK for each in plan.answers):
        return None
    return plan


def _bury_some(
    instance: Instance, group: ShareGroup, acknowledged: Mapping[ShareKey, tuple[str, PartitionAcks]]
) -> None:
    """Move dead letters of one partition in which the acknowledgements have left some."""
    now_ms = instance.clock.now_ms()
    for key, (topic, result) in acknowledged.items():
        if result.state is not None and has_burials(result.state, group.config, now_ms):
            head = instance.stores.log.heads([key.partition_key]).get(key.partition_key)
            if head is not None:
                bury_due(
                    instance, group, SharePartition(topic=TopicName(topic), key=key, head=head, state=result.state)
                )
            return


def bury_due(instance: Instance, group: ShareGroup, partition: SharePartition) -> bool:
    """Move the dead letters of the partition, `SHARE_BURIALS_MAX` times what one transaction takes. As `bury`."""
    is_done = bury(instance, group, partition)
    for _ in range(SHARE_BURIALS_MAX - 1):
        state = instance.stores.share.find_states([partition.key]).get(partition.key) if is_done else None
        if state is None or not has_burials(state, group.config, instance.clock.now_ms()):
            break
        if not bury(instance, group, replace(partition, state=state)):
            break
    return is_done


def _must_wake(result: PartitionAcks | PenstockError) -> bool:
    return result.maybe_applied if isinstance(result, PenstockError) else result.must_wake


def _repeats_release(acknowledgement: Acknowledgement, answer: AckAnswer) -> bool:
    """True for a repeat of a release: the first try may have died before its wake-up."""
    return acknowledgement.type is AckType.RELEASE and answer.result is AckResult.DONE


def _lost(index: int) -> AckAnswer:
    return AckAnswer(index=index, ranges=(), result=AckResult.LOST)
