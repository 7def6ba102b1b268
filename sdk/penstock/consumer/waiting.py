"""A consumer waits at the end of its partitions: in a rhythm, asleep until a wake-up, or by long polls.

While the consumer is awake (rhythm.py), one fetch an interval asks for all partitions that do not sleep. It does not
wait in the service. A partition that was empty for long is armed alone, and left out. Once the consumer may sleep, or
if it has no interval (docs/protocol/wake-ups):

| a quiet partition is                        | and is fetched                                                |
|---------------------------------------------|---------------------------------------------------------------|
| covered by a subscription, not armed        | at once, with `arm`                                           |
| covered, and armed under that subscription  | when a wake-up comes, at the latest by the safety net (1)     |
| not covered, while the connection is opened | when it is covered, at the latest at the end of the hold      |
| not covered                                 | by long polls                                                 |

(1) A heartbeat of a group's member may find that the head is still armed, and at the partition's position. Then the
safety net begins anew, without a fetch.

Invariants:

- A partition sleeps only if the service armed it after the subscription that now covers it had begun. So an append
  either finds the waiter and publishes a wake-up that comes here, or was there for the fetch to see.
- A wake-up is a hint. It makes a partition due, once; the fetch tells the truth. If fetches after wake-ups find
  nothing, the next ones wait, longer each time. So doubled, late, foreign and false wake-ups cost a bounded number of
  fetches.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.consumer.partition_cursor import PartitionCursor
from penstock.consumer.shared_reads import Kept, Place, Wanted
from penstock.group.group_calls import Look
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.rhythm import Rhythm
from penstock.wake_ups.watch import Watch
from penstock_core.limits import (
    OFFSET_MAX,
    REQUEST_PARTITIONS_MAX,
    SDK_EMPTY_FETCHES_MAX,
    SDK_SAFETY_NET_MS,
    SDK_WAIT_FIRST_MS,
    SDK_WAKE_UP_FRUITLESS_MS,
    SDK_WAKE_UP_FRUITLESS_MS_MAX,
    SDK_WAKE_UP_HOLD_MS,
)

_SPREAD = 0.1  # on top of a wait: consumers that began it together do not come back together
# Records that came closer together than this come again soon: waiting for them costs less than being woken.
_LIVELY_MS = 2 * SDK_WAIT_FIRST_MS


class Waiting:
    """Decides when quiet partitions are fetched, and how. `watch` is None if the consumer only polls."""

    def __init__(self, fetch_wait_ms: int, fetch_interval_ms: int, *, is_woken: bool) -> None:
        self.watch = Watch() if is_woken else None
        self._rhythm = Rhythm(fetch_interval_ms if is_woken else 0)
        self._awake_partitions = 0
        self.is_stale = True  # partitions came, went, or changed since `look`
        self._fetch_wait_ms = fetch_wait_ms
        self._watched: dict[tuple[str, int], PartitionCursor] = {}

    def look(self, cursors: Collection[PartitionCursor], now_ms: int) -> None:
        """Watch the partitions that are read, from the time on when one of them is quiet."""
        self._awake_partitions = sum(not self._is_asleep(each) for each in cursors)
        watch = self.watch
        if watch is None or not self.is_stale or not (watch.is_active or any(each.is_quiet for each in cursors)):
            return
        self.is_stale = False
        self._watched = {
            (each.topic_id, each.partition.partition): each
            for each in cursors
            if each.topic_id is not None and each.position is not None and not each.is_paused and not each.is_replaced
        }
        watch.want(self._watched, now_ms + SDK_WAKE_UP_HOLD_MS)

    def woken(self, wake_up: WakeUp) -> None:
        """Take a wake-up of any partition."""
        cursor = self._watched.get((wake_up.topic_id, wake_up.partition))
        if cursor is not None:
            reached = OFFSET_MAX if wake_up.next_offset is None else wake_up.next_offset
            cursor.woken_to = max(cursor.woken_to, reached)

    def due_ms(self, cursor: PartitionCursor) -> int:
        """When the partition may be fetched."""
        watch = self.watch
        if watch is None:
            return cursor.retry_at_ms
        if self.is_paced(cursor):
            return max(cursor.retry_at_ms, self._rhythm.next_ms)
        if not cursor.is_quiet or cursor.is_woken:
            return cursor.retry_at_ms
        coverage = self._coverage(cursor)
        if not coverage:
            return max(cursor.retry_at_ms, watch.hold_until_ms)
        if cursor.armed_under == coverage:
            return max(cursor.retry_at_ms, cursor.asleep_until_ms)
        return max(cursor.retry_at_ms, self._rhythm.arms_ms(self._awake_partitions))

    def due(self, wanted: Sequence[PartitionCursor], now_ms: int) -> list[PartitionCursor]:
        """The partitions to fetch now.

        Quiet partitions that are to be armed go alone: the service arms none if another one of the request has records.
        If a partition has slept enough, all that slept long come along.
        """
        due = [each for each in wanted if self.due_ms(each) <= now_ms]
        unarmed = [each for each in due if self.is_brief(each)]
        if unarmed:
            due = unarmed
        if not any(self._is_asleep(each) for each in due):
            return due
        soon_ms = now_ms + SDK_SAFETY_NET_MS // 2
        return [
            each
            for each in wanted
            if self.due_ms(each) <= now_ms or (self._is_asleep(each) and self.due_ms(each) <= soon_ms)
        ]

    def is_brief(self, cursor: PartitionCursor) -> bool:
        """Its next fetch finds nothing, by what the consumer knows, and arms it without a wait."""
        is_ripe = not self._is_awake or cursor.empty_fetches >= SDK_EMPTY_FETCHES_MAX
        return is_ripe and cursor.is_quiet and not cursor.is_woken and self._coverage(cursor) != 0

    def ask(self, cursors: Iterable[PartitionCursor], now_ms: int) -> Mapping[str, Any]:
        """The fields of a fetch of these that say how the service is to wait."""
        watch = self.watch
        if watch is None:
            for cursor in cursors:
                cursor.asked_ms = now_ms
            return {"wait_ms": self._fetch_wait_ms}
        is_covered = is_exposed = is_lively = False
        cursors = [*cursors]
        is_brief, is_awake = all(map(self.is_brief, cursors)), self._is_awake
        is_beat = self._rhythm.next_ms <= now_ms or any(map(self.is_paced, cursors))
        if is_beat and not is_brief:  # those that are behind, or woken, do not delay the others
            self._rhythm.asked(now_ms)
        for cursor in cursors:
            cursor.asked_ms = now_ms
            cursor.asked_under = self._coverage(cursor)
            cursor.armed_under = 0
            cursor.was_woken = cursor.is_quiet and cursor.is_woken
            cursor.woken_to = 0
            is_covered |= bool(cursor.asked_under)
            is_exposed |= not cursor.asked_under
            if not (cursor.is_quiet or self._rhythm.interval_ms):
                is_lively |= max(cursor.records_gap_ms, now_ms - cursor.records_at_ms) <= _LIVELY_MS
        if is_awake and not is_brief:
            for cursor in cursors:
                cursor.asked_under = 0
            return {"wait_ms": 0}
        wait_ms = min(self._fetch_wait_ms, SDK_WAIT_FIRST_MS) if is_lively else 0
        if is_exposed and watch.is_polling(now_ms):
            wait_ms = self._fetch_wait_ms
        return {"wait_ms": wait_ms, "arm": True} if is_covered else {"wait_ms": wait_ms}

    def wanted(self, cursor: PartitionCursor, filter_text: str | None, now_ms: int) -> Wanted:
        """The answers to other readers that may stand in for the cursor's next fetch (shared_reads.py).

        A partition that is to be armed takes an answer that has armed it, if the subscription had begun before that was
        asked for. Then an append after it wakes this consumer, too, and a wake-up that has come meanwhile is noted in
        the cursor, and makes it due. A partition that is woken takes records only.

        A cursor that has asked for nothing since its assignment, a seek or a pause has its first question now: an end
        that others had found before says nothing of what was written since.
        """
        if cursor.asked_ms < 0:
            cursor.asked_ms = now_ms - 1
        place = Place(cursor.topic_id or "", cursor.partition.partition, filter_text)
        coverage = self._coverage(cursor)
        if cursor.covered_under != coverage:
            cursor.covered_under, cursor.covered_ms = coverage, now_ms
        if cursor.is_woken:
            return Wanted(place, cursor.fetch_offset)
        if self.is_brief(cursor):
            after_ms = max(cursor.asked_ms, cursor.covered_ms)
            return Wanted(place, cursor.fetch_offset, after_ms, joins_after_ms=cursor.covered_ms, is_arming=True)
        return Wanted(place, cursor.fetch_offset, cursor.asked_ms)

    def share(self, taken: Mapping[PartitionCursor, Kept]) -> Mapping[str, Any]:
        """Note that these take the answers to other readers. Returns the fields that the fetch would have had.

        The beat of the rhythm counts from the fetch that another reader made: so readers come to ask at the same time.
        """
        is_arming = all(map(self.is_brief, taken))
        asked_ms = max(kept.asked_ms for kept in taken.values())
        if self.watch is not None and not is_arming and any(map(self.is_paced, taken)):
            self._rhythm.asked(asked_ms)
        for cursor, kept in taken.items():
            cursor.asked_ms = max(cursor.asked_ms, kept.asked_ms)
            cursor.asked_under = self._coverage(cursor) if is_arming else 0
            cursor.armed_under = 0
            cursor.was_woken = False
        return {"arm": True} if is_arming else {}

    def answered(
        self,
        cursor: PartitionCursor,
        *,
        is_armed: bool,
        has_records: bool,
        has_moved: bool,
        has_others: bool,
        now_ms: int,
        chance: float,
    ) -> None:
        """Take a partition's answer without an error.

        `has_moved`: the fetch has passed over records, which no filter took. `has_others`: other partitions of it had
        records.
        """
        if self.watch is None:
            return
        cursor.empty_fetches = 0 if has_records or cursor.asked_under else cursor.empty_fetches + 1
        if has_records:
            cursor.fruitless = 0
            cursor.records_gap_ms = now_ms - cursor.records_at_ms
            cursor.records_at_ms = now_ms
        elif cursor.is_quiet:
            if is_armed:
                cursor.armed_under = cursor.asked_under
                cursor.asleep_until_ms = _net_end_ms(min(now_ms, cursor.asked_ms), chance)
            if has_moved:
                cursor.fruitless = 0  # the wake-up told the truth
            elif cursor.was_woken or (cursor.asked_under and not is_armed and not has_others):
                cursor.fruitless += 1
                wait_ms = SDK_WAKE_UP_FRUITLESS_MS * 2 ** min(cursor.fruitless - 1, 30)
                cursor.retry_at_ms = now_ms + min(wait_ms, SDK_WAKE_UP_FRUITLESS_MS_MAX)

    def answered_all(self, found: int, *, was_arming: bool, now_ms: int, chance: float) -> None:
        """Take the answer to a whole fetch, with something in `found` partitions, be it what no filter takes."""
        if found or not was_arming:
            self._rhythm.answered(self._awake_partitions, found, now_ms=now_ms, chance=chance)

    def cut_short(self, cursors: Iterable[PartitionCursor], again_ms: int, now_ms: int, chance: float) -> None:
        """Take an answer before the end of a wait: quiet partitions without wake-ups are fetched after `again_ms`."""
        for cursor in cursors if again_ms else ():
            if cursor.is_quiet and not (cursor.is_in_flight or cursor.is_woken or self._coverage(cursor)):
                cursor.retry_at_ms = max(cursor.retry_at_ms, now_ms + int(again_ms * (1 + _SPREAD * chance)))

    def to_look_at(self, until_ms: int) -> list[Look]:
        """The partitions that sleep, and whose safety net ends by then: as many as one request takes."""
        looks = [
            Look(topic_id=topic_id, partition=partition, offset=cursor.fetch_offset, coverage=cursor.armed_under)
            for (topic_id, partition), cursor in self._watched.items()
            if self._is_asleep(cursor) and not cursor.is_in_flight and cursor.asleep_until_ms <= until_ms
        ]
        return looks[:REQUEST_PARTITIONS_MAX]

    def looked(self, looks: Iterable[Look], armed: Collection[tuple[str, int]], now_ms: int, chance: float) -> None:
        """Take the answer of a look: those that are `armed` sleep on, the others are fetched.

        A partition that was fetched meanwhile, moved, or lost the subscription of that time is left alone.
        """
        for look in looks:
            where = (look.topic_id, look.partition)
            cursor = self._watched.get(where)
            if cursor is None or cursor.is_in_flight or not self._is_asleep(cursor):
                continue
            if (cursor.fetch_offset, cursor.armed_under) != (look.offset, look.coverage):
                continue
            if where in armed:
                cursor.asleep_until_ms = _net_end_ms(now_ms, chance)
            else:
                cursor.armed_under = 0

    @property
    def _is_awake(self) -> bool:
        """The consumer asks in a rhythm. It does not on a stage without wake-ups, as in tests."""
        watch = self.watch
        return watch is not None and not watch.is_absent and self._rhythm.is_awake(self._awake_partitions)

    def is_paced(self, cursor: PartitionCursor) -> bool:
        """The consumer has read to the end of the partition, and asks for more with the next beat of its rhythm.

        A partition that sleeps is fetched at once when it is woken. One that is awake waits for the beat all the same:
        another reader has armed it.
        """
        is_at_end = cursor.high_watermark is not None and not cursor.is_behind and not cursor.armed_under
        return is_at_end and self._is_awake and not self.is_brief(cursor)

    def _is_asleep(self, cursor: PartitionCursor) -> bool:
        is_quiet = cursor.is_quiet and not cursor.is_woken
        return is_quiet and cursor.armed_under != 0 and cursor.armed_under == self._coverage(cursor)

    def _coverage(self, cursor: PartitionCursor) -> int:
        return 0 if self.watch is None else self.watch.coverage(cursor.topic_id, cursor.partition.partition)


def _net_end_ms(now_ms: int, chance: float) -> int:
    return now_ms + int(SDK_SAFETY_NET_MS * (1 + _SPREAD * chance))
