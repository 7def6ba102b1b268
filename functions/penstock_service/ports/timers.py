"""The ports of delayed records. `penstock_service.ports` says what all methods raise."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock_core.ids import PartitionKey
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.ref import Ref
from penstock_core.log.timer import DueMinute, DueSecond, PlaceRange, Timer, TimerPlace


class TimerStore(Protocol):
    """Timers of partitions, and the index of the minutes in which they are due. Reads are consistent."""

    def reserve(self, minute: DueMinute, count: int) -> int:
        """Notes the minute in the index, with room for `count` timers more. Gives how many have room now.

        It may count twice, so the sum is an upper bound. One update.
        """

    def put(self, timer: Timer) -> Timer:
        """Puts the timer if its key is free, and returns the one that is there now: this one, or an earlier one.

        The caller has reserved room in its minute. One conditional put, repeated if it may have been applied.
        """

    def get(self, key: PartitionKey, place: TimerPlace) -> Timer | None:
        """The timer or its mark, None if there is none. One read."""

    def waiting(self, key: PartitionKey, shard: int, places: PlaceRange, limit: int) -> Sequence[Timer]:
        """The timers of one shard that wait in that range, in order, `limit` at most.

        One query. If it meets marks, one more for each megabyte of marks and timers.
        """

    def promote(self, delivery: Delivery) -> DeliveryOutcome:
        """Appends the refs of the timers to the head, in order, and marks the timers delivered: all or nothing.

        `TIMERS_PROMOTED_MAX` timers of the partition at most. Leaves the reader's waiter in the head. Raises
        UNKNOWN_PARTITION for a plain delivery if there is no head. One transaction, repeated if it may have been
        applied, because its conditions refuse a second one.
        """

    def cancel(self, key: PartitionKey, place: TimerPlace, now_ms: int) -> Timer | None:
        """Cancels the timer if it waits, and returns it as it is now. None if there is none. One conditional update."""

    def note_told(self, timer: Timer) -> None:
        """Notes that a mirror may be told of the timer: a push of its ref names it from then on. One put."""

    def find_told(self, key: PartitionKey, refs: Sequence[Ref]) -> Mapping[Ref, TimerPlace]:
        """The places of the timers with these refs that were noted. One read for each 100, consistent."""

    def delete(self, key: PartitionKey, place: TimerPlace) -> None:
        """Removes a timer of a partition that is gone. One delete."""

    def due_minutes(self, end_minute: int) -> Sequence[DueMinute]:
        """The minutes below `end_minute` that the index names, by minute. 16 queries."""

    def forget_minute(self, minute: DueMinute) -> None:
        """Removes the minute from the index. One delete."""

    def switched_on_ms(self) -> int | None:
        """When the triggers were noted as switched on, None if they never were. One read."""

    def note_switched_on(self, now_ms: int) -> None:
        """Notes that the triggers are switched on. One put."""


class TimerTriggers(Protocol):
    """What starts promotions. A message may be lost, late or doubled: a run each minute finds what is overdue."""

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        """Starts a promotion of that second `delay_ms` from now, or up to a second later. One message."""

    def switch_on(self) -> None:
        """Lets the run each minute begin, which opens the queue. One call. It may be repeated at any time."""

    def run_at_once(self) -> None:
        """Starts a run that looks each second while its time lasts: it delivers until messages are taken. One call."""

    def open_queue(self) -> None:
        """Lets messages be taken, if they are not. One call, and one more if they were not."""
