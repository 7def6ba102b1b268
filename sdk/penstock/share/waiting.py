"""A share consumer waits while its group has nothing for it: in a rhythm, asleep until a wake-up, or by long polls.

| the last acquire found nothing, and                 | the next one goes                                           |
|-----------------------------------------------------|-------------------------------------------------------------|
| records come often (wake_ups/rhythm.py)             | with the next beat, or at `next_available_ms`               |
| all channels are covered, and nothing is armed yet  | at once, with `arm`                                         |
| all is armed under the subscriptions that cover it  | when a wake-up comes, at `next_available_ms`, or by the net |
| the connection is being opened                      | when it is there, at the latest at the end of the hold      |
| there is no connection                              | at once, as a long poll                                     |

The channels are those of the partitions that the service has looked at, and the one of the share group: a release, or
room for more records in flight, comes there. A wake-up is a hint, as in penstock.consumer.waiting
(docs/protocol/wake-ups).

The number of records that a consumer acquires, and the time to acquire ahead.

A worker that takes more than it can handle keeps records from the other workers. A worker that takes one at a time
waits for the service after each. So it measures how long the application has a record, without the time in which the
application waits for one:

- It asks for about `SDK_SHARE_WORK_MS` of work, or for the `work_ms` of an answer: in a group with priorities or fair
  sharing a record that comes is to meet a worker soon.
- It asks for the next records while it still has work for one call to the service.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.rhythm import Rhythm
from penstock.wake_ups.watch import Watch
from penstock_core.limits import (
    SDK_SAFETY_NET_MS,
    SDK_SHARE_FIRST_RECORDS,
    SDK_SHARE_WORK_MS,
    SDK_WAIT_FIRST_MS,
    SDK_WAKE_UP_FRUITLESS_MS,
    SDK_WAKE_UP_FRUITLESS_MS_MAX,
    SDK_WAKE_UP_HOLD_MS,
)

_AGAIN_MS_MIN = 10  # between two looks at a group that has no records at once
_SPREAD = 0.1  # on top of a wait: consumers that began it together do not come back together
_APART_MS = 250  # consumers that wait for the same record look for it so far apart: one of them gets it
_LIVELY_MS = 2 * SDK_WAIT_FIRST_MS  # records that came closer together than this come again soon
_AHEAD = 1.5  # calls to the service vary: so many of them fit into the work that is at hand
_WEIGHT = 0.5  # of the newest measurement


class ShareWaiting:
    """Decides when an acquire goes out, and how it waits. `watch` is None if the consumer only polls."""

    def __init__(self, poll_wait_ms: int, fetch_interval_ms: int = 0, *, is_woken: bool) -> None:
        self.watch = Watch() if is_woken else None
        self._rhythm = Rhythm(fetch_interval_ms if is_woken else 0)
        self._poll_wait_ms = poll_wait_ms
        self._partitions: frozenset[tuple[str, int]] = frozenset()
        self._channel: str | None = None  # the share group's id
        self._is_quiet = False  # the last acquire found nothing
        self._is_woken = False
        self._was_woken = False
        self._asked_under = 0
        self._armed_under = 0
        self._asleep_until_ms = 0
        self._again_ms = 0  # after wake-ups that were none
        self._cut_ms = 0  # after a wait that the service has cut short
        self._unarmed_ms = 0  # after an acquire that could not arm all of it
        self._fruitless = 0
        self._records_ms = 0
        self._is_lively = False

    def woken(self, wake_up: WakeUp) -> None:
        """Take a wake-up of a partition, or of the share group."""
        if (wake_up.topic_id, wake_up.partition) in self._partitions:
            self._is_woken = True

    def due_ms(self) -> int:
        """The time from which the next acquire may go out."""
        watch = self.watch
        if watch is None or not self._is_quiet:
            return self._cut_ms
        if self._is_woken:
            return self._again_ms
        if self._is_awake:
            return max(self._again_ms, self._cut_ms, min(self._rhythm.next_ms, self._asleep_until_ms))
        coverage = self._coverage()
        if not coverage:
            return max(self._again_ms, self._cut_ms, min(watch.hold_until_ms, self._asleep_until_ms))
        if coverage == self._armed_under:
            return max(self._again_ms, self._asleep_until_ms)
        return max(self._again_ms, self._unarmed_ms, self._rhythm.arms_ms(max(1, len(self._partitions))))

    def ask(self, now_ms: int) -> Mapping[str, Any]:
        """The fields of an acquire that say how the service is to wait."""
        watch = self.watch
        if watch is None:
            return {"wait_ms": self._poll_wait_ms, "arm": False}
        is_awake = self._is_awake
        self._asked_under = 0 if is_awake else self._coverage()
        self._rhythm.asked(now_ms)
        self._was_woken = self._is_quiet and self._is_woken
        self._is_woken = False
        self._armed_under = 0
        wait_ms = 0
        if self._asked_under:
            if self._is_lively and not self._is_quiet and now_ms - self._records_ms <= _LIVELY_MS:
                wait_ms = min(self._poll_wait_ms, SDK_WAIT_FIRST_MS)
        elif not is_awake and watch.is_polling(now_ms):
            wait_ms = self._poll_wait_ms
        return {"wait_ms": wait_ms, "arm": self._asked_under != 0}

    def answered(self, answer: Mapping[str, Any], *, has_records: bool, now_ms: int, chance: float) -> None:
        """Take an acquire's answer: what to watch, and when something of it may become available."""
        again_ms = 0 if has_records else int(answer.get("retry_after_ms", 0))
        self._cut_ms = now_ms + int(again_ms * (1 + _SPREAD * chance)) if again_ms else 0
        if self.watch is None:
            return
        watched: Sequence[Mapping[str, Any]] = answer.get("watch") or ()
        self._look(watched, answer.get("share_group_id"), now_ms, has_records=has_records)
        if has_records or not self._asked_under:
            partitions = max(1, len(self._partitions))
            self._rhythm.answered(partitions, int(has_records), now_ms=now_ms, chance=chance)
        if has_records:
            self._is_quiet, self._fruitless, self._again_ms = False, 0, 0
            self._is_lively = not self._rhythm.interval_ms and now_ms - self._records_ms <= _LIVELY_MS
            self._records_ms = now_ms
            return
        self._is_quiet = True
        is_armed = bool(watched) and all(each.get("armed") is True for each in watched)
        if self._asked_under and is_armed:
            self._armed_under = self._asked_under
        self._asleep_until_ms = now_ms + int(SDK_SAFETY_NET_MS * (1 + _SPREAD * chance))
        available_ms = answer.get("next_available_ms")
        if available_ms is not None:
            available_ms = max(_AGAIN_MS_MIN, int(available_ms))
            available_ms += int(min(_APART_MS, available_ms) * chance)
            self._asleep_until_ms = min(self._asleep_until_ms, now_ms + available_ms)
        self._again_ms = self._unarmed_ms = 0
        is_refused = self._asked_under != 0 and not is_armed
        if is_refused or self._was_woken:
            self._fruitless += 1
            wait_ms = SDK_WAKE_UP_FRUITLESS_MS * 2 ** min(self._fruitless - 1, 30)
            again_ms = now_ms + min(wait_ms, SDK_WAKE_UP_FRUITLESS_MS_MAX)
            if self._was_woken:
                self._again_ms = again_ms
            if is_refused:  # if the service could not arm all of it, it says when to look again
                self._unarmed_ms = again_ms if available_ms is None else self._asleep_until_ms

    def _look(
        self, watched: Sequence[Mapping[str, Any]], share_group_id: object, now_ms: int, *, has_records: bool
    ) -> None:
        """Watch what the service has looked at, from the time on when it had nothing."""
        assert self.watch is not None
        if has_records and not self.watch.is_active:
            return
        partitions = frozenset((str(each["topic_id"]), int(each["partition"])) for each in watched)
        self._channel = str(share_group_id) if share_group_id else None
        self._partitions = partitions or self._partitions
        channels = [] if self._channel is None else [(self._channel, "share")]
        self.watch.want(self._partitions, now_ms + SDK_WAKE_UP_HOLD_MS, channels)

    @property
    def _is_awake(self) -> bool:
        """The group has had records lately: it is asked for more in a rhythm, as in penstock.consumer.waiting."""
        watch = self.watch
        is_awake = self._rhythm.is_awake(max(1, len(self._partitions)))
        return watch is not None and not watch.is_absent and is_awake

    def _coverage(self) -> int:
        """A number that changes with each subscription that covers what is watched; 0 if some of it is not covered."""
        watch = self.watch
        if watch is None or not self._partitions:
            return 0
        numbers = [watch.coverage(topic_id, partition) for topic_id, partition in self._partitions]
        if self._channel is not None:
            numbers.append(watch.channel_coverage((self._channel, "share")))
        return max(numbers) if all(numbers) else 0


class Appetite:
    """Counts for one consumer. `workers` handle records at the same time."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._workers = 1
        self._work_ms = SDK_SHARE_WORK_MS
        self._record_ms: float | None = None  # between two records that the application takes
        self._call_ms = 0.0
        self._begun = 0  # records since `_since_ms`
        self._since_ms = 0
        self._hungry_ms: int | None = None  # the application waits since then
        self._idle_ms = 0  # and has waited so long since `_since_ms`

    def employ(self, workers: int) -> None:
        """So many records are handled at once from now on."""
        self._workers = workers
        self._record_ms = None

    def waits(self, now_ms: int) -> None:
        """The application waits for a record."""
        if self._hungry_ms is None:
            self._hungry_ms = now_ms

    def begins(self, records: int, now_ms: int) -> None:
        """The application takes records."""
        if self._hungry_ms is not None:
            self._idle_ms += now_ms - self._hungry_ms
            self._hungry_ms = None
        self._begun += records

    def ask(self, now_ms: int) -> int:
        """The number of records to acquire now."""
        self._measure(now_ms)
        if self._record_ms is None:
            return min(self._max_records, max(SDK_SHARE_FIRST_RECORDS, 2 * self._workers))
        wanted = self._max_records
        if self._record_ms * self._max_records > self._work_ms:
            wanted = int(self._work_ms / self._record_ms)
        return min(self._max_records, max(wanted, self._workers))

    def answered(self, call_ms: int) -> None:
        """An acquire took so long."""
        self._call_ms = call_ms if not self._call_ms else _mean(self._call_ms, call_ms)

    def bound(self, work_ms: int | None) -> None:
        """The service says how much work the group's consumers hold."""
        self._work_ms = SDK_SHARE_WORK_MS if work_ms is None else min(SDK_SHARE_WORK_MS, max(0, work_ms))

    @property
    def low_water(self) -> int:
        """Acquire ahead when fewer records than this are at hand. 0 while the application takes none."""
        if self._record_ms is None or not self._begun:
            return 0
        if self._record_ms * self._max_records <= _AHEAD * self._call_ms:
            return self._max_records
        return int(_AHEAD * self._call_ms / self._record_ms)

    def _measure(self, now_ms: int) -> None:
        hungry_ms = 0 if self._hungry_ms is None else now_ms - self._hungry_ms
        busy_ms = now_ms - self._since_ms - self._idle_ms - hungry_ms
        if self._begun:
            record_ms = max(busy_ms, 0) / self._begun
            self._record_ms = record_ms if self._record_ms is None else _mean(self._record_ms, record_ms)
        self._begun, self._idle_ms, self._since_ms = 0, 0, now_ms
        if self._hungry_ms is not None:
            self._hungry_ms = now_ms


def _mean(old: float, new: float) -> float:
    return (1 - _WEIGHT) * old + _WEIGHT * new
