"""The state of one partition of a subscription, and how its offset moves. Pure.

The lane of the partition is locked while a delivery works (lane.py). Each change makes a whole new state with the next
`version`, and an adapter puts it on condition of the version before it. So a delivery that was frozen for long, or a
write that comes late, changes nothing.

A range that fails begins at `offset`, because what succeeds before it is committed:

```
 offset        try_end       failing_end            range_end
   │─── tried ───│               │                      │
   │─── holds a record that fails│── was in its batch ──│
```
`attempt.py` decides what is tried, and notes attempts and failures.

The window in which a batch that is not full waits for more records. Pure.

The head is armed meanwhile, so an append wakes the lane, which looks whether the batch is full. Each look is noted. The
next one follows when the batch may be full, by the rate at which it was filled. It comes after twice the time at most:

```
 began ──look──▶ quiet ──look──────▶ quiet ──look──────────────▶ … ──▶ end: the batch goes as it is
           └─ full: the batch goes at once
```
So a batch is looked at `PUSH_WINDOW_LOOKS_MAX` times at most, however many appends come. A quiet time with new records
ends by a message, and one without them by the next append. A delivery that comes in a quiet time reads no records, but
it sees by the head if there are enough of them.

Decides whether a lane needs a message from the look that runs each five minutes. Pure.

A message that is lost, or an event that never came, leaves records that nothing will deliver. A lane that is held, or
whose message sleeps, has its message (lane.py), unless that one is overdue. The look must not add to a queue that is
merely slow: it gives each message twice the time in which SQS shows it again.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, TopicId
from penstock_core.limits import MIRROR_OFFSETS_REST_MS, PUSH_VISIBILITY_MS, PUSH_WINDOW_LOOK_MS, PUSH_WINDOW_LOOKS_MAX
from penstock_core.push.lane import FREE, NO_MESSAGE, LaneState
from penstock_core.push.subscription import SubscriptionConfig

_SLOW_MS = 2 * PUSH_VISIBILITY_MS
NEVER_ASKED = -1
UNTOLD = "-"  # no digest: the mirror may have any copies of the partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Records that were tried in vain.

    - `[offset, range_end)` was in the batch that failed first.
    - `[offset, failing_end)` holds a record that fails. None if only a larger range is known to.
    - `[offset, try_end)` is tried; `attempts` counts its attempts, each before it is made. None if another range is to
      be chosen.
    - `first_failed_ms` is the time of the first attempt that failed, at these records or at a larger range of them.
    - `is_split`: the batch had all its attempts.
    - `is_broken`: the last attempt met a target that is broken, which may be the fault of the records.
    - `is_well`: since then the target has worked for other records, or the patience is over.
    - `outages` counts the outages in a row.
    - `reads` counts the reads in a row whose delivery died with them, each before it is made.
    """

    first_failed_ms: int
    range_end: Offset
    failing_end: Offset | None = None
    try_end: Offset | None = None
    attempts: int = 0
    is_split: bool = False
    is_broken: bool = False
    is_well: bool = False
    outages: int = 0
    reads: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A batch that waits for more records, since `began_ms` (window.py).

    The last look has seen the records below `seen_offset`. The next one is not before `quiet_until_ms`. `looks` counts
    them.
    """

    began_ms: int
    seen_offset: Offset
    quiet_until_ms: int
    looks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsNote:
    """The source's note of its last telling: the mirror's `number` of it, and the digest of what it told.

    The next one is not before `next_ms`, unless the subscription has a newer `version`: its mirror may have begun anew.
    `is_quiet`: nothing had changed, so none follows by itself.
    """

    next_ms: int
    version: int = 0
    number: int = 0
    digest: str = ""
    is_quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersNote:
    """The source's note of what it has told of a topic's timers.

    `digests` has each partition of which the mirror may have copies: `UNTOLD`, or the digest of the places that it has
    exactly. A pass goes over the partitions from `partition` on, behind the timer `after`. `waiting` and `left` count
    what it has met so far. The last whole pass has met `told`, of which the mirror had all but `told_left`; it began
    after the move `told_move` of the topic, 0 for none. The pass that began at `compared_ms` compares all
    partitions. The other fields are those of `OffsetsNote`.
    """

    next_ms: int = 0
    version: int = 0
    is_quiet: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    partition: int = 0
    after: str = ""
    move: int = 0
    waiting: int = 0
    left: int = 0
    told: int = 0
    told_left: int = 0
    told_move: int = 0
    has_told: bool = False
    compared_ms: int = 0

    @property
    def has_begun(self) -> bool:
        """A pass is under way."""
        return bool(self.partition or self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState:
    """`offset` is the first record that the target has not answered for.

    Nothing is tried before `next_try_ms`, unless `window` says that a batch waits: then it goes as soon as it is full.
    `succeeded_ms` is the time of the last success, whose delivery began at `proof_ms`. `dead_lettered` counts the
    records that went to the dead-letter topic, and `expired` those that were passed over because their time was over.
    `version` rises with each write; it is 1 in the first state stored. `asked_version` is the subscription's version at
    the last answer of a mirror, below all versions before it. A mirror may have begun anew since an older version.
    The first partition of a mirrored topic has `offsets`, once those of groups were told, and `timers`, once the stage
    has delayed records.
    """

    offset: Offset
    version: int = 1
    next_try_ms: int = 0
    succeeded_ms: int = 0
    proof_ms: int = 0
    dead_lettered: int = 0
    expired: int = 0
    asked_version: int = NEVER_ASKED
    trouble: Trouble | None = None
    window: Window | None = None
    offsets: OffsetsNote | None = None
    timers: TimersNote | None = None


def pause(state: DeliveryState, next_try_ms: int) -> DeliveryState:
    """Nothing is tried before `next_try_ms`."""
    return changed(state, next_try_ms=next_try_ms)


def commit(state: DeliveryState, next_offset: Offset, began_ms: int, now_ms: int) -> DeliveryState:
    """The target has handled all records below `next_offset` that it was to get, in a delivery that began then.

    So it works, and what is left of the batch fails for its own sake.
    """
    trouble = _beyond(state, next_offset)
    if trouble is not None:
        trouble = replace(trouble, try_end=None, attempts=0, outages=0, is_well=True)
    return changed(state, offset=next_offset, next_try_ms=0, succeeded_ms=now_ms, proof_ms=began_ms, trouble=trouble)


def skip(state: DeliveryState, next_offset: Offset) -> DeliveryState:
    """The records below `next_offset` are not for the target: filtered out, removed, or moved to the dead letters.

    That is no success: it tells nothing of the target.
    """
    return changed(state, offset=next_offset, next_try_ms=0, trouble=_beyond(state, next_offset))


def move(state: DeliveryState, next_offset: Offset, records: int) -> DeliveryState:
    """The records below `next_offset`, so many, are in the dead-letter topic. That is no success, as in `skip`."""
    return replace(skip(state, next_offset), dead_lettered=state.dead_lettered + records)


def pass_expired(state: DeliveryState, next_offset: Offset, records: int) -> DeliveryState:
    """As `skip`. The time of so many records was over, which may be those that failed: what is left is tried anew.

    Without that, a neighbour would inherit their attempts, and go to the dead letters untried.
    """
    skipped = replace(skip(state, next_offset), expired=state.expired + records)
    if skipped.trouble is None or not records:
        return skipped
    return replace(skipped, trouble=replace(skipped.trouble, try_end=None, attempts=0))


def begin_read(state: DeliveryState, now_ms: int) -> DeliveryState:
    """The read of the next records is counted, because deliveries have died: perhaps of these records.

    A window that is over stays so. A new one would end the delivery before its attempt, and its death be forgotten.
    """
    trouble = state.trouble or Trouble(
        first_failed_ms=now_ms, range_end=Offset(state.offset + 1), error="a delivery died while it read"
    )
    return changed(state, window=state.window, trouble=replace(trouble, reads=trouble.reads + 1))


def end_read(state: DeliveryState) -> DeliveryState:
    """The records are read. The same version: what relies on it comes with the next write."""
    trouble = state.trouble
    if trouble is None or not trouble.reads:
        return state
    has_failed = trouble.attempts or trouble.outages or trouble.is_split
    return replace(state, trouble=replace(trouble, reads=0) if has_failed or trouble.failing_end is not None else None)


def changed(state: DeliveryState, **changes: Any) -> DeliveryState:
    """The state with these fields, as the next version. A window is over, unless it is among them."""
    return replace(state, **{"window": None, **changes, "version": state.version + 1})


def _beyond(state: DeliveryState, offset: Offset) -> Trouble | None:
    """The trouble that is left at `offset`. Behind the failing range, the rest of its batch is still suspected."""
    if offset <= state.offset:
        raise ValueError(f"offset {offset} after {state.offset}")
    trouble = state.trouble
    if trouble is None or offset >= trouble.range_end:
        return None
    if trouble.failing_end is not None and offset >= trouble.failing_end:
        return Trouble(first_failed_ms=trouble.first_failed_ms, range_end=trouble.range_end, is_split=True)
    if trouble.try_end is not None and offset >= trouble.try_end:
        # An outage is what the tried records met. A failure that counts was one of the failing range, and stays.
        return replace(trouble, try_end=None, attempts=0, error="" if trouble.outages else trouble.error)
    return trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryKey:
    """The state of one partition in one subscription."""

    subscription_id: SubscriptionId
    topic_id: TopicId
    partition: Partition

    @property
    def partition_key(self) -> PartitionKey:
        """The partition."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A batch waits until `end_ms`. It is looked at before: at `look_ms`, or after the next append if that is None."""

    end_ms: int
    look_ms: int | None


def telling_due_ms(state: DeliveryState, *, is_again: bool) -> int | None:
    """The time at which offsets of groups, or timers, are told next, without a push; None before the first telling.

    `is_again`: None also if the last one had nothing new, so that a mirror at rest costs nothing.
    """
    due: list[int] = []
    offsets, timers = state.offsets, state.timers
    if offsets is not None and not (is_again and offsets.is_quiet):
        due.append(offsets.next_ms + MIRROR_OFFSETS_REST_MS)
    if timers is not None and not (is_again and timers.is_quiet):
        due.append(timers.next_ms + (0 if timers.has_begun else MIRROR_OFFSETS_REST_MS))
    return min(due, default=None)


def is_open(state: DeliveryState) -> bool:
    """True if a batch waits. An older release moves the offset, or notes a failure, and leaves the window in place."""
    return state.window is not None and state.trouble is None and state.next_try_ms != 0


def waiting(state: DeliveryState, config: SubscriptionConfig, next_offset: Offset, now_ms: int) -> Waiting | None:
    """The wait of a batch. None if no batch waits, or it is time for a look, or for the batch.

    `next_offset` is that of the head, and `config` the settings as they are now.
    """
    window = state.window
    if window is None or not is_open(state):
        return None
    end_ms = _end_ms(state, window, config.batch_window_ms)
    if now_ms >= end_ms:
        return None
    if next_offset <= window.seen_offset:
        return Waiting(end_ms=end_ms, look_ms=None)
    has_enough = config.filter is None and next_offset - state.offset >= config.batch_records
    if has_enough and window.looks < PUSH_WINDOW_LOOKS_MAX:
        return None
    return Waiting(end_ms=end_ms, look_ms=window.quiet_until_ms) if now_ms < window.quiet_until_ms else None


def wait_for_more(state: DeliveryState, window_ms: int, seen: Offset, fill: float, now_ms: int) -> DeliveryState | None:
    """The state that waits, after a look at a batch that is not full. None if its window is over.

    The look has seen the records below `seen`. `fill` is the part of the batch that is there, below 1.
    """
    window = state.window
    if window is None or not is_open(state):
        begun = Window(began_ms=now_ms, seen_offset=seen, quiet_until_ms=now_ms)
        return changed(state, window=begun, next_try_ms=now_ms + window_ms)
    end_ms = _end_ms(state, window, window_ms)
    if now_ms >= end_ms:
        return None
    looks = window.looks + 1
    quiet_until_ms = end_ms if looks >= PUSH_WINDOW_LOOKS_MAX else now_ms + _quiet_ms(now_ms - window.began_ms, fill)
    looked = Window(began_ms=window.began_ms, seen_offset=seen, quiet_until_ms=min(end_ms, quiet_until_ms), looks=looks)
    return changed(state, window=looked, next_try_ms=end_ms)


def _quiet_ms(elapsed_ms: int, fill: float) -> int:
    """The time until the batch may be full: at the rate so far, but no longer than it has taken so far."""
    rest_ms = elapsed_ms if fill <= 0 else elapsed_ms * (1 - fill) / fill
    return max(PUSH_WINDOW_LOOK_MS, round(min(elapsed_ms, rest_ms)))


def _end_ms(state: DeliveryState, window: Window, window_ms: int) -> int:
    return min(state.next_try_ms, window.began_ms + window_ms)


def needs_message(lane: LaneState | None, due_ms: int, now_ms: int) -> bool:
    """True if no message stands for work of the lane that may begin at `due_ms`.

    None is a lane that was never taken. A message too many finds nothing to do.
    """
    if lane is None:
        return True
    if lane.locked_until_ms != FREE:
        return now_ms >= lane.locked_until_ms + _SLOW_MS
    if lane.sleeper == NO_MESSAGE:
        return True
    is_lost = now_ms >= lane.due_ms + _SLOW_MS
    is_too_late = lane.due_ms > max(due_ms, now_ms) + _SLOW_MS
    return is_lost or is_too_late
