"""Promote: append the refs of due timers to their partition's head, in one transaction with the timers' marks.

A promoter may die anywhere, be frozen, run twice, and meet cancels. The transaction's conditions decide
(docs/adr/0039). Timers go in the order of their due times, and a promoter stops at the first failure. So it never
passes over a timer that it has read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import (
    APPEND_MS_MAX,
    PROMOTE_ATTEMPTS_MAX,
    PROMOTE_TAIL_REFS_MAX,
    TIMER_EARLY_MS_MAX,
    TIMERS_PROMOTED_MAX,
    TIMERS_READ_MAX,
)
from penstock_core.log.index import Head, unknown_partition
from penstock_core.log.timer import DueSecond, Timer, TimerPlace
from penstock_service.instance.instance import Instance
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.timer_messages import send_messages
from penstock_service.records.wake_readers import wake_beside, wake_blindly, wake_ups_of_heads
from penstock_service.segments.update_window import UpdateWindow


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
    early_ms = second.end_ms - instance.clock.now_ms()
    if early_ms > TIMER_EARLY_MS_MAX:
        send_messages(instance, [second])
        return Promotion()
    if early_ms > 0:
        instance.clock.sleep_ms(early_ms)
    try:
        done = promote_partition(instance, second.key, second.start_ms, deadline_ms)
    except PenstockError as error:
        if error.code is not ErrorCode.UNKNOWN_PARTITION:
            raise
        return Promotion()
    if not done.is_finished:
        send_messages(instance, [second])
    return done


def promote_partition(instance: Instance, key: PartitionKey, start_ms: int, deadline_ms: float) -> Promotion:
    """Promotes the timers of a partition that were due between `start_ms` and now, in order.

    One read of the head; a query for each 900 timers, and one in the end; for each 90 timers a transaction, a read, and
    the rolls that are due. Raises UNKNOWN_PARTITION if there is no head, CONCURRENT_UPDATE if others were faster
    `PROMOTE_ATTEMPTS_MAX` times in a row, and what storage raises.
    """
    head = _head(instance, key)
    total, refusals, after = Promotion(), 0, None
    while instance.clock.monotonic_ms() < deadline_ms:
        window = UpdateWindow.open(instance.clock)
        found = instance.stores.timers.waiting(key, start_ms, instance.clock.now_ms() + 1, TIMERS_READ_MAX, after)
        if not found:
            return total
        for chunk in _chunks(found):
            if window.age_ms > APPEND_MS_MAX or instance.clock.monotonic_ms() >= deadline_ms:
                break  # frozen since the read, perhaps: read again
            head = _with_room(instance, key, head)
            now_ms = max(instance.clock.now_ms(), chunk[-1].place.due_ms)
            if not _promote(instance, key, chunk, now_ms):
                total, refusals = total.plus(Promotion(refused=1)), refusals + 1
                if refusals == PROMOTE_ATTEMPTS_MAX:
                    raise PenstockError(
                        ErrorCode.CONCURRENT_UPDATE,
                        f"other promoters of partition {key} were faster {refusals} times: leave the rest to them",
                    )
                break
            refusals, after = 0, _place(chunk)
            head = _settle(instance, key, len(chunk))
            total = total.plus(
                Promotion(
                    timers=len(chunk),
                    records=sum(timer.ref.record_count for timer in chunk),
                    late_ms=now_ms - chunk[0].place.due_ms,
                )
            )
    return total.plus(Promotion(is_finished=False))


def _promote(instance: Instance, key: PartitionKey, chunk: Sequence[Timer], now_ms: int) -> bool:
    try:
        return instance.stores.timers.promote(key, chunk, now_ms)
    except PenstockError as error:
        if error.maybe_applied:
            wake_blindly(instance, [key])
        raise


def _settle(instance: Instance, key: PartitionKey, added_refs: int) -> Head:
    """Rolls what the transaction has made due, and wakes the readers that wait: it has left the waiter there."""
    window = UpdateWindow.open(instance.clock)
    head = _head(instance, key)
    grown = GrownHead(key=key, head=head, added_refs=added_refs)
    wake_beside(instance, wake_ups_of_heads({key: head}), lambda: shorten_heads(instance, window, [grown]))
    return head


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
    return head


def _chunks(timers: Sequence[Timer]) -> list[Sequence[Timer]]:
    return [timers[at : at + TIMERS_PROMOTED_MAX] for at in range(0, len(timers), TIMERS_PROMOTED_MAX)]


def _place(chunk: Sequence[Timer]) -> TimerPlace:
    return chunk[-1].place
