"""Timers: refs of delayed records that wait for their due time (docs/adr/0039). Pure.

```
            put                       promote: appended to the head, in the same transaction
 (none) ──────────▶ WAITING ──────────▶ DELIVERED ──▶ (none), a day later
                       └──── cancel ──▶ CANCELLED ──▶ (none), a day after the later of cancel and due time
```
A timer leaves WAITING once. Its id is the client's: a repeated put finds the first one, in whatever state.

The timers of a partition are in the order of (due time, id). Ids rise in a producer, so the order of its records of one
due time is kept. A timer's id gives it one of `TIMER_SHARDS` shards, which share the partition's load. The minutes in
which a partition has timers are noted in an index of due minutes.

Two texts start promotions: the message of one second of a partition, `{"partition": "<topic id>#<n>", "due_s": n}`,
and the event of a stage's first run, `{"goes_on": true}`.
"""

import json
import re
import zlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import TIMER_ID_BYTES, Partition, PartitionKey, TimerId, parse_partition_key
from penstock_core.limits import (
    TIMER_DELAY_MS_MAX,
    TIMER_MARK_KEPT_MS,
    TIMER_MESSAGE_MS_MAX,
    TIMER_MINUTE_KEPT_MS,
    TIMER_PAST_MS_MAX,
    TIMER_SHARDS,
    TOPIC_PARTITIONS_MAX,
)
from penstock_core.log.ref import Ref

MINUTE_MS = 60_000
_SECOND_MS = 1_000
_SCHEDULED_ID = re.compile(r"(\d{1,4})-(\d{1,15})-([0-9a-f]{32})", re.ASCII)
FIRST_RUN = {"goes_on": True}


class TimerState(Enum):
    """The state of a timer, by the name that its item stores."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class TimerPlace(NamedTuple):
    """The place of a timer among those of its partition. Places sort in the order of delivery."""

    due_ms: int
    timer_id: TimerId

    @property
    def shard(self) -> int:
        """The shard of the timer, from its id alone: a repeat of its put looks in the same one."""
        return zlib.crc32(self.timer_id) % TIMER_SHARDS


class PlaceRange(NamedTuple):
    """The places with a due time in `[start_ms, end_ms)`, behind `after` if it is given."""

    start_ms: int
    end_ms: int
    after: TimerPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A ref that waits for its due time, or the mark that it has left behind.

    `crc` is the CRC-32C of its batches: a repeat of the put must have the same. `settled_ms` is when it left WAITING.
    `is_announced`: its writer sends the message that starts its promotion. `is_copy`: it waits, or has waited, at the
    source of a mirror, too. A mirrored head delivers none (docs/protocol/mirrors).
    """

    key: PartitionKey
    place: TimerPlace
    ref: Ref
    crc: int
    is_announced: bool = False
    is_copy: bool = False
    state: TimerState = TimerState.WAITING
    settled_ms: int | None = None

    @property
    def is_waiting(self) -> bool:
        """True if the timer can still be delivered or cancelled."""
        return self.state is TimerState.WAITING

    @property
    def expires_ms(self) -> int | None:
        """When the mark may go, None while the timer waits. No put of it can come later (`check_due`)."""
        return None if self.settled_ms is None else max(self.settled_ms, self.place.due_ms) + TIMER_MARK_KEPT_MS


class DueMinute(NamedTuple):
    """A minute since 1970 in which timers of the partition may be due."""

    minute: int
    key: PartitionKey

    @property
    def start_ms(self) -> int:
        """The first due time of the minute."""
        return self.minute * MINUTE_MS

    @property
    def end_ms(self) -> int:
        """The end of the minute, exclusive."""
        return self.start_ms + MINUTE_MS


class DueSecond(NamedTuple):
    """The timers of a partition that are due in the second which ends at `second`, inclusive, in seconds since 1970."""

    second: int
    key: PartitionKey

    @property
    def start_ms(self) -> int:
        """The first due time of the second."""
        return (self.second - 1) * _SECOND_MS + 1

    @property
    def end_ms(self) -> int:
        """The last due time of the second, inclusive."""
        return self.second * _SECOND_MS


def minute_of(due_ms: int, key: PartitionKey) -> DueMinute:
    """The minute that the index must name for a timer with that due time."""
    return DueMinute(due_ms // MINUTE_MS, key)


def second_of(due_ms: int, key: PartitionKey) -> DueSecond:
    """The second whose message delivers a timer with that due time: it ends at the due time or up to 1 s later."""
    return DueSecond(-(-due_ms // _SECOND_MS), key)


def is_announceable(due_ms: int, now_ms: int) -> bool:
    """True if a message can be delayed until the timer's second is over."""
    return due_ms + _SECOND_MS - now_ms <= TIMER_MESSAGE_MS_MAX


def is_past(due_ms: int, now_ms: int) -> bool:
    """True if no new timer may be put for that time. One that was put before may be there."""
    return due_ms < now_ms - TIMER_PAST_MS_MAX


def is_minute_over(minute: DueMinute, now_ms: int) -> bool:
    """True if no writer puts a timer of that minute any more: `is_past` has refused it for some minutes."""
    return minute.end_ms < now_ms - TIMER_MINUTE_KEPT_MS


def check_due(due_ms: int, now_ms: int) -> None:
    """Raises INVALID_REQUEST for a due time more than `TIMER_DELAY_MS_MAX` ahead."""
    if due_ms - now_ms > TIMER_DELAY_MS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"deliver_at_ms={due_ms} is {(due_ms - now_ms) // 86_400_000} days ahead: "
            f"{TIMER_DELAY_MS_MAX // 86_400_000} days at most. It is in milliseconds since 1970",
        )


def past_due(due_ms: int, now_ms: int) -> PenstockError:
    """The error for a due time that `is_past`, where no timer was put before."""
    return PenstockError(
        ErrorCode.INVALID_REQUEST,
        f"deliver_at_ms={due_ms} was {(now_ms - due_ms) // 1_000} s ago: {TIMER_PAST_MS_MAX // 60_000} minutes at "
        "most, which count as now. It is in milliseconds since 1970",
    )


def delivered(timer: Timer, now_ms: int) -> Timer:
    """The mark of a waiting timer that is delivered now."""
    return replace(timer, state=TimerState.DELIVERED, settled_ms=now_ms)


def cancelled(timer: Timer, now_ms: int) -> Timer:
    """The mark of a waiting timer that is cancelled now."""
    return replace(timer, state=TimerState.CANCELLED, settled_ms=now_ms)


def delivered_ref(timer: Timer, now_ms: int) -> Ref:
    """The ref as the head gets it. Retention counts from `now_ms`."""
    return replace(timer.ref, appended_ms=now_ms, is_delayed=True)


def is_repeat(stored: Timer, timer: Timer) -> bool:
    """True if a put of `timer` repeats that of `stored`, which has the same key."""
    return (stored.crc, stored.ref.length, stored.ref.offset_span) == (
        timer.crc,
        timer.ref.length,
        timer.ref.offset_span,
    )


def timer_exists(timer: Timer) -> PenstockError:
    """The error for a timer whose id has other records."""
    return PenstockError(
        ErrorCode.TIMER_EXISTS,
        f"timer {scheduled_id(timer.key.partition, timer.place)} was put before with other records: nothing was "
        "scheduled. Draw a new id for each timer",
    )


def scheduled_id(partition: Partition, place: TimerPlace) -> str:
    """The name of a timer in its topic: `<partition>-<due ms>-<id in hexadecimal>`."""
    return f"{partition}-{place.due_ms}-{place.timer_id.hex()}"


def parse_scheduled_id(text: str) -> tuple[Partition, TimerPlace]:
    """The inverse of `scheduled_id`. Raises INVALID_REQUEST."""
    found = _SCHEDULED_ID.fullmatch(text)
    if found is None or int(found[1]) >= TOPIC_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{shown(text)} is no id of a scheduled record: give one that produce or the list of scheduled records "
            "has answered",
        )
    return Partition(int(found[1])), TimerPlace(int(found[2]), TimerId(bytes.fromhex(found[3])))


def parse_timer_id(text: str) -> TimerId:
    """The id that 32 lower-case hexadecimal digits spell. Raises INVALID_REQUEST."""
    if not re.fullmatch(f"[0-9a-f]{{{2 * TIMER_ID_BYTES}}}", text):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"timer_id={shown(text)}: must be {2 * TIMER_ID_BYTES} lower-case hexadecimal digits, that rise in a "
            "producer",
        )
    return TimerId(bytes.fromhex(text))


def new_timer_id(now_ms: int, number: int, entropy: bytes) -> TimerId:
    """An id of 48 bits of time, 32 bits of a count that rises in its process, and 6 random bytes.

    Ids of one process rise if it never passes a `now_ms` that is lower than before.
    """
    return TimerId(now_ms.to_bytes(6, "big") + (number % 2**32).to_bytes(4, "big") + entropy[:6])


def encode_due_second(second: DueSecond) -> str:
    """The message above."""
    return json.dumps({"partition": str(second.key), "due_s": second.second})


def decode_due_second(text: str) -> DueSecond:
    """The inverse of `encode_due_second`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(text)
        return DueSecond(int(fields["due_s"]), parse_partition_key(fields["partition"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{text!r:.200} is no message about timers: see timer.py"
        ) from error
