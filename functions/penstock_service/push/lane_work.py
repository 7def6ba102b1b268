"""One delivery's work on a lane that it holds, and what it found at its end.

A lane that pushes to a mirror has a short lock, which its holder renews together with its message's rest in the queue.
So a death costs seconds there. Elsewhere no lock is renewed, and each outlasts its function.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, TopicName
from penstock_core.limits import MIRROR_RENEW_MS, PUSH_LOCK_MS, PUSH_SLICE_MS
from penstock_core.log.index import Head
from penstock_core.push.batch import PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import LaneKey, LaneState, renew
from penstock_core.push.subscription import Subscription
from penstock_core.transaction import DeliveryCommit
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment, UpdateWindow
from penstock_service.share.dead_letters.move_records import MovedRecords, move_records

_FIRST = 1  # the version of a state that was not there


class LaneHold:
    """A delivery's hold of its lane, and of its message, which the queue hides meanwhile.

    `is_lost`: another delivery has taken the lane, because the lock was over. `hidden_until_ms` is 0 for a message that
    comes when its receipt is over.
    """

    def __init__(self, instance: Instance, key: LaneKey, handle: str) -> None:
        self._instance = instance
        self._key = key
        self._handle = handle
        self.hidden_until_ms = 0
        self._hidden: Moment | None = None  # when that was asked for
        self._has_lapsed = False
        self._since = Moment.now(instance.clock)
        self.lane = LaneState()
        self.is_lost = False

    def hold(self, lane: LaneState) -> None:
        """The delivery holds the lane since now."""
        self.lane, self._since = lane, Moment.now(self._instance.clock)

    @property
    def is_over(self) -> bool:
        """True once the message may have another receiver, by one of both clocks: the lock, or its rest, has ended."""
        self._note_lapse()
        return self._has_lapsed or self._since.age_ms(self._instance.clock) >= (
            self.lane.locked_until_ms - self._since.wall_ms
        )

    def hide_until(self, until_ms: int) -> None:
        """Lets the message come again at that time, and not when its receipt is over. One call, if it would be sooner.

        If it fails, a death costs more time.
        """
        if until_ms > self.hidden_until_ms:
            self._note_lapse()
            self._hidden = Moment.now(self._instance.clock)
            self.hidden_until_ms = until_ms
            with contextlib.suppress(PenstockError):
                self._instance.stores.deliveries.postpone(self._handle, until_ms - self._instance.clock.now_ms())

    def _note_lapse(self) -> None:
        """No later rest takes the message back from who received it between two of them."""
        hidden = self._hidden
        if hidden is not None and hidden.age_ms(self._instance.clock) >= self.hidden_until_ms - hidden.wall_ms:
            self._has_lapsed = True

    def renew(self, *, has_progressed: bool) -> None:
        """Holds on, if it is time for that, or if the holder does what the ones before it have died of.

        One write and one call then. A lane that was taken is lost.
        """
        is_due = self._since.age_ms(self._instance.clock) >= MIRROR_RENEW_MS
        if self.is_lost or not (is_due or (has_progressed and self.lane.deaths)):
            return
        since = Moment.now(self._instance.clock)
        renewed = renew(self.lane, since.wall_ms, has_progressed=has_progressed)
        if self._instance.stores.push.put_lane(self._key, renewed) != renewed:
            self.is_lost = True
            return
        self._note_lapse()
        if renewed.locked_until_ms < self.lane.locked_until_ms:
            self._hidden, self.hidden_until_ms = None, 0  # the message comes sooner, too
        self.lane, self._since = renewed, since
        self.hide_until(renewed.locked_until_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWork:
    """The lane as it is held, its partitions, and the moment before anything of it was read.

    `hint` is the partition that the message names. `has_worked`: the same delivery has worked on the lane before, and
    took it again because records had come. `asked_mirrors` are the ids of mirrored topics that it has met.
    """

    instance: Instance
    subscription: Subscription
    number: int
    hold: LaneHold
    partitions: Sequence[tuple[TopicName, DeliveryKey]]
    started: Moment
    hint: PartitionKey | None = None
    has_worked: bool = False
    asked_mirrors: set[str] = field(default_factory=set)

    @property
    def lane(self) -> LaneState:
        """The lane as it is held."""
        return self.hold.lane

    def has_time(self) -> bool:
        """True if an invocation may begin: look right before it.

        It ends within the lock then, because `PUSH_LOCK_MS` covers a slice and the longest invocation. An instance
        that was frozen since it took the lane finds here that it comes too late, by one of its clocks. A push to a
        mirror may outlast its lock: the mirror appends it once.
        """
        return not self.hold.is_lost and self.started.age_ms(self.instance.clock) < PUSH_SLICE_MS

    def check_first(self, key: DeliveryKey, state: DeliveryState) -> None:
        """Raises as `overtaken` for the first state of its key, once the lock is over: no version fences that one.

        The subscription may be deleted since, and the look has removed what was there. The state would stay for ever.
        """
        if state.version == _FIRST and self.started.age_ms(self.instance.clock) >= PUSH_LOCK_MS:
            raise overtaken(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """The outcome of the work.

    `is_unfinished`: there is more to do at once. `due_ms` is the earliest next try, None for none. Before it, at
    `look_ms`, is a look that may come too late, or not at all. `ends` are the heads of partitions that wait for
    records: they were delivered to their end, or a batch is not full.
    """

    is_unfinished: bool
    due_ms: int | None = None
    look_ms: int | None = None
    ends: Mapping[PartitionKey, Head] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPortion:
    """Records of one partition below `end`, and the offsets of those there whose time is over: no target gets them."""

    records: Sequence[PushRecord]
    end: Offset
    expired: Sequence[int] = ()

    def below(self, end: Offset) -> "PushPortion":
        """The part below `end`."""
        return PushPortion(
            records=[each for each in self.records if each.record.offset < end],
            end=end,
            expired=[offset for offset in self.expired if offset < end],
        )

    def behind(self, records: int) -> Offset:
        """The offset behind so many of its records: that of the next one, or its end."""
        return self.end if records == len(self.records) else Offset(self.records[records].record.offset)

    def expired_below(self, offset: Offset) -> int:
        """The number of its expired records below the offset."""
        return sum(each < offset for each in self.expired)


def overtaken(key: DeliveryKey) -> PenstockError:
    """The error of a delivery whose state has changed under it, because its lock was over."""
    return PenstockError(ErrorCode.CONCURRENT_UPDATE, f"another delivery works on partition {key.partition_key}")


def move_with_state(
    instance: Instance, key: DeliveryKey, moved: Sequence[MovedRecords], state: DeliveryState, window: UpdateWindow
) -> DeliveryState:
    """Appends the batches and stores `state`, all or nothing. Each exactly once: the state's version refuses a second.

    Costs what `move_records` costs, and one read after a refusal: the own first attempt may have been applied. Raises
    CONCURRENT_UPDATE if another delivery has changed the state, and what `move_records` raises.
    """
    done = move_records(instance, moved, DeliveryCommit(key=key, state=state), window)
    if not done.is_applied and instance.stores.push.find_deliveries([key]).get(key) != state:
        raise overtaken(key)
    return state
