"""What one subscription must do with its records (G13): each is handled, or dead-lettered once, or removed before.

The oracle sees each invocation of the target, and each change of the subscription's places: offsets in ordered mode, a
hidden share group in parallel mode. A place never passes a record that the target has not answered for, and that is no
dead letter. Records come twice only as `push_attempts` says.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock_core.ids import PartitionKey
from penstock_core.limits import PUSH_LOCK_MS
from penstock_core.push.batch import Failure, PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import FREE, NO_MESSAGE, LaneState
from penstock_core.push.subscription import PARALLEL, Subscription
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import decode
from penstock_core.share.share_state import ShareKey, ShareState
from tests.history import format as history
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.expected_log import Appended
from tests.simulation.oracle.push_attempts import Attempt, LaneLock, PushAttempts
from tests.simulation.oracle.push_records import Place, PushRecords
from tests.simulation.oracle.share_entries import held_in
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.dead_letters import dead_letter_of


@dataclass(slots=True, kw_only=True)
class PushOracle:
    """One subscription, from its creation to its deletion. One that is made anew under its name has its own oracle."""

    simulation: Simulation
    subscription: Subscription
    records: PushRecords
    attempts: PushAttempts
    is_in_history: bool
    deleted_ms: float | None = None
    paused_ms: float | None = None
    batches: int = 0
    _locks: dict[tuple[int, str], LaneLock] = field(default_factory=dict)  # by lane and message
    _places: dict[DeliveryKey, int] = field(default_factory=dict)
    _shares: dict[ShareKey, ShareState] = field(default_factory=dict)

    @property
    def is_ordered(self) -> bool:
        """Whether the records of a partition come in order."""
        return self.subscription.config.mode != PARALLEL

    def begins_at(self, places: dict[DeliveryKey, int]) -> None:
        """The subscription is made, and has these places already."""
        self._places |= places
        if self.is_in_history:
            dead_topic = self.subscription.config.dead_letter_topic
            push = history.Push(topics=(self.records.topic,), is_ordered=self.is_ordered, dead_letter_topic=dead_topic)
            self._record("operator", history.Function.PUSH, push)

    def altered(self, new: Subscription) -> None:
        """The subscription has changed."""
        if new.is_paused != self.subscription.is_paused:
            self.paused_ms = self.simulation.scheduler.now_ms if new.is_paused else None
        self.attempts.has_moved |= new.config.concurrency != self.subscription.config.concurrency
        self.subscription = new
        self.attempts.config = new.config

    def deleted(self) -> None:
        """The subscription is gone. Deliveries that run already may go on."""
        if self.deleted_ms is None:
            self.deleted_ms = self.simulation.scheduler.now_ms

    def lane_put(self, lane: int, new: LaneState) -> None:
        """A delivery has taken the lane, if it is held now."""
        lock = LaneLock(taken_ms=self.simulation.scheduler.now_ms, ends_ms=new.locked_until_ms - EPOCH_MS)
        if new.locked_until_ms != FREE:
            self._locks[lane, new.holder] = lock

    def place_put(self, key: DeliveryKey, state: DeliveryState, letters: Sequence[history.DeadLetter] = ()) -> None:
        """A partition's place is stored, with its dead letters or copies if there are some."""
        if not key.topic_id:
            return  # a lane's failures, in parallel mode
        before, name = self._places.get(key, 0), self.subscription.name
        expect(state.offset >= before, f"{name} goes back from {before} to {state.offset} of {key}")
        self._places[key] = state.offset
        for each in letters:
            self._letter(key.partition_key, each)
        for offset in range(before, state.offset):
            self.records.passes(key.partition_key, offset)

    def copied(self, key: DeliveryKey, state: DeliveryState, values: Sequence[str]) -> None:
        """Records are in the target topic now: exactly those that the place passes."""
        before = self._places.get(key, 0)
        wanted = {
            offset: self.records.value(key.partition_key, offset)
            for offset in range(before, state.offset)
            if self.records.is_wanted(self.records.value(key.partition_key, offset))
        }
        expiries = self.simulation.oracle.expiries
        wanted = {at: value for at, value in wanted.items() if value in values or not expiries.may_be_over(value)}
        left = {at: value for at, value in wanted.items() if not self.records.is_removed(key.partition_key, at)}
        found = len(wanted) - len(values)
        expect(
            [*wanted.values()][found:] == [*values] and len(values) >= len(left),
            f"{self.subscription.name} copies {values} of {key} from {before}, wanted are {wanted}",
        )
        for offset in [*wanted][found:]:
            self.records.handle(key.partition_key, offset, is_ordered=True)
        self.place_put(key, state)

    def share_changed(
        self, key: ShareKey, before: ShareState, after: ShareState, letters: Sequence[history.DeadLetter] = ()
    ) -> None:
        """Records have left the hidden share group, or moved in it."""
        self._shares[key] = after
        for each in letters:
            self._letter(key.partition_key, each)
        left = held_in(after)
        for offset in {*held_in(before), *range(before.position, after.position)} - left.keys():
            self.records.passes(key.partition_key, offset)

    def share_moved(self, key: ShareKey, letters: Sequence[history.DeadLetter]) -> None:
        """A transaction has moved dead letters out of the hidden share group."""
        after = self.simulation.stores.share.find_states([key])[key]
        self.share_changed(key, self._shares[key], after, letters)

    def invoked(self, records: Sequence[PushRecord], lane: int, message_id: str) -> Attempt:
        """A delivery of the lane, by that message, invokes the target."""
        now_ms, name = self.simulation.scheduler.now_ms, self.subscription.name
        for what, since_ms in (("deleted", self.deleted_ms), ("paused", self.paused_ms)):
            is_over = since_ms is not None and now_ms > since_ms + PUSH_LOCK_MS + 2 * CLOCK_SKEW_MS
            expect(not is_over, f"{name} was {what} at {since_ms}, and invokes its target at {now_ms}")
        lock = self._locks.get((lane, message_id))
        expect(lock is not None, f"{name} invokes its target, and has not taken lane {lane} by {message_id}")
        assert lock is not None
        self.records.check(records)
        self.records.check_times(records)
        keys = {key for key, _ in map(_place, records)}
        expect(len(keys) == 1 or not self.is_ordered, f"{name} delivers several partitions at once: {keys}")
        self.batches += 1
        return self.attempts.begin(frozenset(map(_place, records)), lock)

    def handle(self, records: Sequence[PushRecord]) -> None:
        """The target handles these records, in this order."""
        handled: dict[PartitionKey, list[tuple[int, str]]] = {}
        for each in records:
            key, offset = each.place
            self.records.handle(key, offset, is_ordered=self.is_ordered)
            handled.setdefault(key, []).append((int(offset), (each.record.value or b"").decode()))
        for key, values in handled.items() if self.is_in_history else ():
            op = history.Handling((self.records.topic, int(key.partition)), tuple(values))
            self._record(self.subscription.name, history.Function.HANDLE, op)

    def fail(self, attempt: Attempt, records: Iterable[PushRecord], failure: Failure | None, error: str) -> None:
        """The target has failed for these records; `failure` is None if the delivery died of them."""
        self.attempts.fail(attempt, [*map(_place, records)], failure, error)

    def check_end(self, *, is_exact: bool, is_lossless: bool) -> None:
        """All is quiet. `is_exact`: nothing has failed, so no record may have come twice.

        `is_lossless`: each message came once, so no lane may sleep without one.
        """
        self.records.check_all_done(is_exact=is_exact)
        lanes = self.simulation.stores.push.states_of(self.subscription.subscription_id).lanes
        if self.is_in_history:
            self._tell_end()
        for number, lane in lanes.items():
            is_idle = lane.locked_until_ms == FREE and lane.sleeper == NO_MESSAGE
            expect(
                is_idle or not is_lossless, f"{self.subscription.name} has nothing to do, and lane {number} is {lane}"
            )

    def letters(self) -> Counter[tuple[str, Place]]:
        """The dead letters that it has written, by topic and place."""
        return Counter((str(self.subscription.config.dead_letter_topic), place) for place in self.records.buried)

    def _letter(self, key: PartitionKey, told: history.DeadLetter) -> None:
        offset, name = told.origin_offset, self.subscription.name
        expect(told.origin == (self.records.topic, int(key.partition)), f"{name} tells {told} of a letter of {key}")
        expect(told.value == self.records.value(key, offset), f"{told} is no record of {key}")
        expect(told.group == name, f"{told} is a letter of {name}")
        self.attempts.check_burial((key, offset), told.reason, told.deliveries)
        self.records.bury(key, offset, told.reason)

    def _tell_end(self) -> None:
        """Tell the history of what retention has removed, of the dead letters, and of the end."""
        oracle, topic, recorder = self.simulation.oracle, self.records.topic, self.simulation.recorder
        for key, log_start in oracle.log_starts.items():
            if oracle.log.names.get(key.topic_id) == topic:
                expired = history.Truncate((topic, int(key.partition)), int(log_start))
                recorder.done("retention", history.Function.TRUNCATE, [expired])
        dead_topic = self.subscription.config.dead_letter_topic
        for key, appends in [*oracle.log.appends.items()]:
            if dead_topic is not None and oracle.log.names.get(key.topic_id) == dead_topic:
                letters = tuple(each for entry in appends for each in dead_letters_of(self.simulation, entry))
                found = history.DeadLetters((dead_topic, int(key.partition)), letters)
                recorder.done("final", history.Function.DEAD_LETTERS, [found])
        if self.records.tags is None and not isinstance(self.subscription.target, TopicTarget):
            self._record("final", history.Function.DRAINED, history.Drained(topic))

    def _record(self, process: str, function: history.Function, op: history.MicroOp) -> None:
        self.simulation.recorder.done(process, function, [op], group=self.subscription.name)


def dead_letters_of(simulation: Simulation, entry: Appended) -> list[history.DeadLetter]:
    """The dead letters that an append has brought. None is of a record whose time was over."""
    ref = entry.ref
    body = memoryview(simulation.oracle.log.bodies[ref.segment_id])[ref.position : ref.position + ref.length]
    letters = [*decode(body)]
    for letter in letters:
        simulation.oracle.expiries.check_letter(letter)
    return [
        dead_letter_of(at, (record.value or b"").decode(), record.key, record.headers)
        for at, record in enumerate(letters, start=entry.base_offset)
    ]


def _place(record: PushRecord) -> Place:
    return record.place
