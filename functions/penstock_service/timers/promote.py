"""Promote: append the refs of due timers to their partition's head, in one transaction with the timers' marks.

A promoter may die anywhere, be frozen, run twice, and meet cancels. The transaction's conditions decide
(docs/adr/0039). Timers go in the order of their due times, and a promoter stops at the first failure. So it never
passes over a timer that it has read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import (
    APPEND_MS_MAX,
    PROMOTE_ATTEMPTS_MAX,
    PROMOTE_BACKOFF_MS_MAX,
    PROMOTE_TAIL_REFS_MAX,
    TIMER_EARLY_MS_MAX,
    TIMERS_PROMOTED_MAX,
    TIMERS_READ_MAX,
)
from penstock_core.log.delivery import Delivery, DeliveryOutcome, rolling
from penstock_core.log.index import Head, unknown_partition
from penstock_core.log.timer import DueSecond, PlaceRange, Timer, TimerPlace
from penstock_service.index.heads import waiting_timers
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.timer_room import send_messages
from penstock_service.records.wake_readers import wake_beside, wake_blindly, wake_ups_of_heads

_BACKOFF_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """The counts of one promotion. `is_finished`: no timer that was due at its end waits any more.

    `late_ms` is the largest time from a due time to its transaction. `refused` counts transactions that another
    promoter or a cancel has overtaken.
    """

    timers: int = 0
    records: int = 0
    refused: int = 0
    late_ms: int = 0
    is_finished: bool = True

    def plus(self, other: "Promotion") -> "Promotion":
        """The sum of both; finished if both are."""
        return Promotion(
            timers=self.timers + other.timers,
            records=self.records + other.records,
            refused=self.refused + other.refused,
            late_ms=max(self.late_ms, other.late_ms),
            is_finished=self.is_finished and other.is_finished,
        )


def promote_second(instance: Instance, second: DueSecond, deadline_ms: float) -> Promotion:
    """Promotes the timers of that second, and all behind it that are due by now.

    A message that comes too early waits here for a moment, or sends another one. So does one whose work is not done at
    `deadline_ms` of the monotonic clock. Costs what `promote_partition` costs. A partition that is gone has nothing to
    promote.
    """
    if not await_second(instance, second):
        return Promotion()
    try:
        done = promote_partition(instance, second.key, second.start_ms, deadline_ms)
    except PenstockError as error:
        if error.code not in (ErrorCode.UNKNOWN_PARTITION, ErrorCode.MOVED, ErrorCode.MIRRORED):
            raise
        return Promotion()
    if not done.is_finished:
        send_messages(instance, [second])
    return done


def await_second(instance: Instance, second: DueSecond) -> bool:
    """Waits for a moment if the message comes too early. False if it comes much too early: then it is sent again."""
    early_ms = second.end_ms - instance.clock.now_ms()
    if early_ms > TIMER_EARLY_MS_MAX:
        send_messages(instance, [second])
        return False
    if early_ms > 0:
        instance.clock.sleep_ms(early_ms)
    return True


def promote_partition(instance: Instance, key: PartitionKey, start_ms: int, deadline_ms: float) -> Promotion:
    """Promotes the timers of a partition that were due between `start_ms` and now, in order.

    One read of the head; for each 900 timers, and once in the end, a query of each shard and a read of the head; for
    each 90 timers a transaction. Where appends come between, each 90 timers also cost a read, and the rolls that are
    due. Raises UNKNOWN_PARTITION if there is no head, MOVED for a log that was moved away, MIRRORED for one that only
    pushes of its mirror write, CONCURRENT_UPDATE if
    `PROMOTE_ATTEMPTS_MAX` transactions in a row were refused and the same timer still waits, and what storage raises.
    """
    promoter = _Promoter(instance, key)
    try:
        return promoter.run(start_ms, deadline_ms)
    except PenstockError as error:
        if error.maybe_applied or not promoter.has_told:
            wake_blindly(instance, [key])
        raise


class _Promoter:
    """One run over a partition. It carries the head from one transaction to the next, as long as nobody else writes it.

    Several promoters may be at work, because each writer sends its own message. The one that is overtaken steps back:
    it waits, and looks again. So the other one meets few conflicts.
    """

    def __init__(self, instance: Instance, key: PartitionKey) -> None:
        self._instance = instance
        self._key = key
        self._head = _head(instance, key)
        self._is_alone = True  # no append has come between so far
        self.has_told = True  # readers know of all transactions so far
        self._total = Promotion()
        self._refused_at: TimerPlace | None = None
        self._refusals = 0

    def run(self, start_ms: int, deadline_ms: float) -> Promotion:
        """What `promote_partition` does."""
        instance, after = self._instance, None
        while instance.clock.monotonic_ms() < deadline_ms:
            window = UpdateWindow.open(instance.clock)
            places = PlaceRange(start_ms, instance.clock.now_ms() + 1, after)
            found = waiting_timers(instance, self._key, places, TIMERS_READ_MAX)
            if not found:
                return self._total
            for chunk in _chunks(found):
                if window.age_ms > APPEND_MS_MAX or instance.clock.monotonic_ms() >= deadline_ms:
                    break  # frozen since the read, perhaps: read again
                if not self._deliver(window, chunk):
                    break
                after = chunk[-1].place
            self._tell()
        return self._total.plus(Promotion(is_finished=False))

    def _deliver(self, window: UpdateWindow, chunk: Sequence[Timer]) -> bool:
        """One transaction. False if it was refused, or the window is over: then the timers must be read again."""
        now_ms = max(self._instance.clock.now_ms(), chunk[-1].place.due_ms)
        delivery = Delivery(key=self._key, timers=chunk, now_ms=now_ms)
        if self._is_alone:
            delivery = rolling(delivery, self._head)
        if delivery.roll is None:
            self._head = _with_room(self._instance, self._key, self._head)
        if window.age_ms > APPEND_MS_MAX:
            return False  # retention would count from the time before the sleep
        outcome = self._instance.stores.timers.promote(delivery)
        if outcome is not DeliveryOutcome.DONE:
            self._refuse(outcome, chunk[0].place)
            return False
        self._refusals = 0
        self._total = self._total.plus(
            Promotion(
                timers=len(chunk),
                records=sum(timer.ref.record_count for timer in chunk),
                late_ms=now_ms - chunk[0].place.due_ms,
            )
        )
        self.has_told = False
        if delivery.roll is None:
            self._tell(added_refs=len(chunk))
        else:
            self._head = delivery.roll.after
        return True

    def _refuse(self, outcome: DeliveryOutcome, first: TimerPlace) -> None:
        """Counts a refusal, and steps back if another promoter or a cancel has made it."""
        self._total = self._total.plus(Promotion(refused=1))
        self._head = _head(self._instance, self._key)
        if outcome is DeliveryOutcome.MOVED:
            self._is_alone = False  # a refused transaction costs as much as an applied one: do not try that again
            return
        if outcome is DeliveryOutcome.SETTLED:
            self.has_told = False  # it may be our own delivery, whose answer was lost
        self._refusals = self._refusals + 1 if first == self._refused_at else 1
        self._refused_at = first
        if self._refusals == PROMOTE_ATTEMPTS_MAX:
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE,
                f"{self._refusals} transactions in a row were refused for the first timers of partition {self._key}",
            )
        chance = int.from_bytes(self._instance.entropy.random_bytes(2), "big") / 2**16
        overtaken = self._total.refused - 1
        self._instance.clock.sleep_ms(full_jitter_ms(overtaken, _BACKOFF_MS, PROMOTE_BACKOFF_MS_MAX, chance))

    def _tell(self, added_refs: int = 0) -> None:
        """Wakes the readers that wait, because transactions have left the waiter there. Rolls what is due.

        One read of the head, and the rolls. Nothing if readers know already.
        """
        if self.has_told:
            return
        window = UpdateWindow.open(self._instance.clock)
        self._head = _head(self._instance, self._key)
        self.has_told = True
        grown = [GrownHead(key=self._key, head=self._head, added_refs=added_refs)] if added_refs else []
        wake_ups = wake_ups_of_heads({self._key: self._head})
        wake_beside(self._instance, wake_ups, lambda: shorten_heads(self._instance, window, grown))


def _with_room(instance: Instance, key: PartitionKey, head: Head) -> Head:
    """The head once more if its tail was long. Raises THROTTLED if it stays long: rolls must get it shorter first."""
    if len(head.tail) <= PROMOTE_TAIL_REFS_MAX:
        return head
    window = UpdateWindow.open(instance.clock)
    head = _head(instance, key)
    shorten_heads(instance, window, [GrownHead(key=key, head=head, added_refs=len(head.tail))])
    head = _head(instance, key)
    if len(head.tail) > PROMOTE_TAIL_REFS_MAX:
        raise PenstockError(
            ErrorCode.THROTTLED, f"the tail of partition {key} has {len(head.tail)} refs: its rolls must come first"
        )
    return head


def _head(instance: Instance, key: PartitionKey) -> Head:
    head = instance.stores.log.heads([key]).get(key)
    if head is None:
        raise unknown_partition(key)
    if head.move:
        raise PenstockError(ErrorCode.MOVED, f"partition {key} was moved to its mirror: its timers wait")
    if head.mirror:
        raise PenstockError(ErrorCode.MIRRORED, f"partition {key} is mirrored: its timers wait for the promotion")
    return head


def _chunks(timers: Sequence[Timer]) -> list[Sequence[Timer]]:
    return [timers[at : at + TIMERS_PROMOTED_MAX] for at in range(0, len(timers), TIMERS_PROMOTED_MAX)]
