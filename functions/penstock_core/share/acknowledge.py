"""The plan of an acknowledgement: accept, release, reject or renew what a lock holds.

| type    | its records                                                                                   |
|---------|-----------------------------------------------------------------------------------------------|
| accept  | are finished                                                                                  |
| release | wait for the backoff, or for `delay_ms`; `uncounted` takes back the delivery                  |
| reject  | wait for the dead-letter topic; without one they are finished                                 |
| renew   | stay locked, with the rest of their lock, for `lock_ms` from now                              |

Only the entry decides whether a client still has its lock. An acknowledgement that comes after the lock's time counts
as long as no other acquire has taken the records.

An acknowledgement may come twice, because an answer was lost. So records that are as the client wants them answer DONE:
finished ones; for a release, those that wait; for a reject, those that wait for the dead-letter topic. A renewal has
no such answer: only a lock that is there is renewed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_REASON_BYTES_MAX, SHARE_WAITS_BLIND_MAX
from penstock_core.share.bury import BurialCause
from penstock_core.share.draft import Draft, ShareUpdate
from penstock_core.share.record_set import EMPTY, Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait
from penstock_core.share.waits import add_wait, backoff_ms, is_last_delivery

_ENTRIES_AT_ONCE = 3  # that one acknowledgement touches at most: the lock, and two waits


class AckType(Enum):
    """The verb of an acknowledgement."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"


class AckResult(Enum):
    """The result for some of the offsets of an acknowledgement."""

    OK = "ok"
    DONE = "done"  # an earlier acknowledgement has brought it about
    LOST = "LOCK_LOST"  # another acquire has taken the records, or the lock never had them


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One acknowledgement.

    - `offsets` are the ranges that it is for; None: all that `handed_out` has, or else all that the lock still has.
    - `delay_ms` (release) is the pause; None: the backoff. `is_uncounted`: the records never reached a handler.
      `is_spared`: they come again even if this delivery was to be their last.
    - `is_expired` (accept) counts the records as expired.
    - `reason` (reject, release) goes with the record to the dead-letter topic. Of a release that was not the last one,
      the share item keeps a part (`reasons`), for a record whose last lock ends without a word.
    - `lock_ms` (renew) is the time from now; None: the group's.
    - `generation` and `handed_out` are what the client's lock id tells (`share_codec.parse_client_lock_id`).
    """

    lock_id: LockId
    type: AckType
    offsets: Ranges | None = None
    delay_ms: int | None = None
    reason: str = ""
    lock_ms: int | None = None
    is_uncounted: bool = False
    is_spared: bool = False
    is_expired: bool = False
    generation: int = 0
    handed_out: Lock | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckAnswer:
    """The result for some ranges of the acknowledgement at this place of the call."""

    index: int
    ranges: Ranges
    result: AckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPlan:
    """The update, None if nothing changes, and the answers once it is applied.

    The plan covers the first `planned` acknowledgements. Plan the rest on the state after it.
    """

    update: ShareUpdate | None
    answers: Sequence[AckAnswer]
    planned: int


def plan_acknowledge(
    state: ShareState, config: ShareGroupConfig, acknowledgements: Sequence[Acknowledgement], now_ms: int
) -> AckPlan:
    """The acknowledgements on the state as it was read."""
    draft = Draft(state)
    answers, planned = acknowledge(draft, config, acknowledgements, now_ms)
    return AckPlan(update=draft.update(), answers=answers, planned=planned)


def plan_blind(config: ShareGroupConfig, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> AckPlan | None:
    """The acknowledgements without a read, as if their locks were as they were handed out.

    None if one of them does not tell its lock, if they are of several generations, if nothing would be written, or if a
    release may give back more than its lock has: read the state then. The update is for an item with few waits. If it
    is refused, plan on the state that the refusal tells.
    """
    locks = {each.lock_id: each.handed_out for each in acknowledgements if each.handed_out is not None}
    generations = {each.generation for each in acknowledgements}
    if len(generations) != 1 or any(each.handed_out is None for each in acknowledgements):
        return None
    if config.key_batch_max > 1 and any(each.type is AckType.RELEASE for each in acknowledgements):
        return None  # what follows the records may be in other locks of their acquire
    state = ShareState(
        generation=generations.pop(),
        position=Offset(max(lock.held.end for lock in locks.values())),
        open=sum(lock.records.count for lock in locks.values()),
        locks=locks,
    )
    draft = Draft(state)
    draft.waits_max = SHARE_WAITS_BLIND_MAX
    answers, planned = acknowledge(draft, config, acknowledgements, now_ms)
    update = draft.update()
    return None if update is None else AckPlan(update=update, answers=answers, planned=planned)


def acknowledge(
    draft: Draft, config: ShareGroupConfig, acknowledgements: Iterable[Acknowledgement], now_ms: int
) -> tuple[list[AckAnswer], int]:
    """Do the acknowledgements on the draft, in order, while it has room. The answers, and how many were done."""
    answers: list[AckAnswer] = []
    planned = 0
    for index, each in enumerate(acknowledgements):
        siblings = _siblings(draft, each)
        if draft.room() < _ENTRIES_AT_ONCE + 2 * len(siblings):
            break
        planned += 1
        lock = _named(draft, each)
        wanted = _wanted(each, lock)
        if each.handed_out is not None and each.generation != draft.generation:
            # A reset has taken the lock. Offsets below the new position are skipped, which is not what the client did.
            answers.append(AckAnswer(index=index, ranges=wanted, result=AckResult.LOST))
            continue
        mine = EMPTY if lock is None else lock.held.only(wanted)
        if lock is not None and mine.ranges:
            _acknowledge_lock(draft, config, each, lock, mine, now_ms)
            for name in siblings:
                take_behind(draft, name, mine)
            answers.append(AckAnswer(index=index, ranges=mine.ranges, result=AckResult.OK))
        answers += _answers_of_others(draft, each, index, RecordSet(wanted).minus(mine.ranges))
    return answers, planned


def _named(draft: Draft, each: Acknowledgement) -> Lock | None:
    """The lock that the acknowledgement is for: by its id, and by its base where the acknowledgement tells it.

    A repeated acquire uses its lock ids again. So another lock may have the id once its first one is finished.
    """
    lock = draft.locks.get(each.lock_id)
    is_other = lock is not None and each.handed_out is not None and lock.base != each.handed_out.base
    return None if is_other else lock


def _wanted(each: Acknowledgement, lock: Lock | None) -> Ranges:
    if each.offsets is not None:
        return normalized(each.offsets)
    source = each.handed_out or lock
    return source.held.ranges if source is not None else ()


def _acknowledge_lock(
    draft: Draft, config: ShareGroupConfig, each: Acknowledgement, lock: Lock, mine: RecordSet, now_ms: int
) -> None:
    """Do the acknowledgement for those records of the lock."""
    if each.type is AckType.RENEW:
        until_ms = now_ms + (config.lock_ms if each.lock_ms is None else each.lock_ms)
        draft.put_lock(each.lock_id, replace(lock, until_ms=until_ms))
        return
    behind = EMPTY
    if each.type is AckType.RELEASE:
        behind = _behind(lock.held, mine)
    left = lock.held.minus(mine.ranges).minus(behind.ranges)
    draft.put_lock(each.lock_id, replace(lock, records=left.shifted(-lock.base)))
    if each.type is AckType.RELEASE:
        wait = released(config, each, lock, mine, now_ms)
        add_wait(draft, config, now_ms, wait)
        if each.reason and not wait.is_terminal:
            draft.note_reason(each.reason, mine.ranges)
        if behind.ranges:
            draft.put_wait(Wait(0, max(lock.deliveries - 1, 0), behind))
    elif each.type is AckType.REJECT and config.dead_letter_topic is not None:
        rejected = Wait(0, lock.deliveries, mine, is_rejected=True, reason=_short(each.reason))
        add_wait(draft, config, now_ms, rejected)
    draft.expired += mine.count if each.is_expired else 0
    draft.takes_waiter |= config.is_by_key or each.type is AckType.RELEASE


def released(config: ShareGroupConfig, each: Acknowledgement, lock: Lock, mine: RecordSet, now_ms: int) -> Wait:
    """The wait of records that a release takes out of the lock."""
    if each.is_uncounted:
        return Wait(now_ms + (each.delay_ms or 0), max(lock.deliveries - 1, 0), mine)
    if is_last_delivery(config, lock.deliveries) and not each.is_spared:
        reason = _short(f"{BurialCause.DELIVERIES.value}: {each.reason}") if each.reason else ""
        return Wait(0, lock.deliveries, mine, reason=reason, is_dead=True)
    delay_ms = backoff_ms(config, lock.deliveries, each.lock_id) if each.delay_ms is None else each.delay_ms
    return Wait(now_ms + delay_ms, lock.deliveries, mine)


def _behind(held: RecordSet, mine: RecordSet) -> RecordSet:
    """With order by key: the lock's records that follow one of `mine` with the same key. They go back with it."""
    if not held.hashes:
        return EMPTY
    first: dict[int, int] = {}
    for offset, key_hash in mine.hash_by_offset().items():
        first.setdefault(key_hash, offset)
    ours = {*mine.offsets()}
    later = [
        (offset, offset + 1)
        for offset, key_hash in held.hash_by_offset().items()
        if key_hash and offset not in ours and offset > first.get(key_hash, offset)
    ]
    return held.only(normalized(later))


def locks_beside(draft: Draft, lock_id: LockId) -> list[LockId]:
    """The other locks of the same acquire."""
    nonce = lock_id.rpartition(".")[0]
    return [name for name in draft.locks if name != lock_id and name.rpartition(".")[0] == nonce]


def take_behind(draft: Draft, name: LockId, gone: RecordSet) -> None:
    """Take out of the lock what follows one of the records that are gone, and has the same key."""
    lock = draft.locks[name]
    behind = _behind(lock.held, gone)
    if behind.ranges:
        draft.put_lock(name, replace(lock, records=lock.held.minus(behind.ranges).shifted(-lock.base)))
        draft.put_wait(Wait(0, max(lock.deliveries - 1, 0), behind))


def _siblings(draft: Draft, each: Acknowledgement) -> list[LockId]:
    """With order by key: the locks other than the one that a release is for."""
    lock = _named(draft, each)
    if each.type is not AckType.RELEASE or lock is None or not lock.records.hashes:
        return []
    return locks_beside(draft, each.lock_id)


def _answers_of_others(draft: Draft, each: Acknowledgement, index: int, rest: RecordSet) -> list[AckAnswer]:
    """The answers for offsets that the lock does not hold any more, or never did."""
    done = EMPTY if each.type is AckType.RENEW else rest.only(((0, draft.position),))
    for lock in draft.locks.values():
        done = done.minus(lock.held.ranges)
    for wait in draft.waits.values():
        is_as_wanted = each.type is AckType.RELEASE or (each.type is AckType.REJECT and wait.is_terminal)
        if not is_as_wanted:
            done = done.minus(wait.records.ranges)
    lost = rest.minus(done.ranges)
    found = ((done, AckResult.DONE), (lost, AckResult.LOST))
    return [AckAnswer(index=index, ranges=records.ranges, result=result) for records, result in found if records.ranges]


def _short(reason: str) -> str:
    return reason.encode()[:SHARE_REASON_BYTES_MAX].decode(errors="ignore")
