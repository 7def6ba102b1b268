"""Deliver the partitions of a lane in order: one batch of a partition at a time, from its offset on.

`penstock_core.push.attempt.plan` decides each step from the partition's state alone. The state is written before what
relies on it, and on condition of its version. So a delivery that was overtaken stops at its first write.

A batch that succeeds at once costs one write of the state, and no read: `PUSH_READ_AHEAD_BYTES` are read for several
batches. A batch in trouble costs two writes for each attempt. Evidence is one query of the subscription's states, for
attempts that may be a record's last.

Partitions of a later generation wait until the subscription has delivered the older ones (later_generations.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.limits import (
    MIRROR_LIVELY_MS,
    MIRROR_REST_MS,
    MIRROR_REST_PARTITIONS,
    PUSH_RECEIPT_RETRY_MS,
    PUSH_TARGET_MS,
    PUSH_UNREADABLE_PAUSE_MS,
)
from penstock_core.log.index import Head
from penstock_core.push.attempt import (
    Bury,
    Facts,
    Found,
    Named,
    NeedsEvidence,
    Plan,
    Rest,
    Skip,
    Try,
    fail,
    fail_record,
    plan,
)
from penstock_core.push.batch import Answered, Failed, PushBatch, PushRecord
from penstock_core.push.delivery import (
    DeliveryKey,
    DeliveryState,
    OffsetsNote,
    TimersNote,
    begin_read,
    changed,
    commit,
    end_read,
    is_open,
    pass_expired,
    pause,
    telling_due_ms,
    waiting,
)
from penstock_core.push.targets.target import StageTarget, TopicTarget, why_too_large
from penstock_service.push.bury import bury, copy_to_topic, set_aside
from penstock_service.push.lane_work import LaneResult, LaneWork, PushPortion, overtaken
from penstock_service.push.read_ahead import RecordsAhead, later_generations, read_ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The state after a partition's turn, and why the turn ended: a pause, the end of its records, or neither.

    `waits`: an append must wake it, because it is at its end, or its batch is not full.
    """

    state: DeliveryState | None
    due_ms: int | None = None
    look_ms: int | None = None
    waits: bool = False
    has_failed: bool = False


def deliver_ordered(work: LaneWork) -> LaneResult:
    """Delivers in rounds, until all partitions rest or are at their end, or the slice is over.

    Each round reads the heads once, and gives each partition a turn of one `read_ahead`. The last round finds nothing.
    A partition that storage fails rests, and the others go on. Raises what storage raises before the first turn.

    A lane of many partitions to a mirror, with records moments ago, rests after the round that brought the next ones.
    Its heads are not armed. So one delivery brings what comes to all in a second, without a wake-up for each append.
    """
    stores = work.instance.stores
    keys = [key for _, key in work.partitions]
    found = stores.push.find_deliveries(keys)
    if len(found) < len(keys) and _is_gone(work):
        return LaneResult(is_unfinished=False)
    states: dict[DeliveryKey, DeliveryState | None] = {key: found.get(key) for key in keys}
    failed: dict[DeliveryKey, _Turn] = {}
    kind = _MirroredPartition if isinstance(work.subscription.target, StageTarget) else _Partition
    began_ms = work.instance.clock.now_ms()
    while True:
        round_ms = work.instance.clock.now_ms()
        heads = stores.log.heads([key.partition_key for key in keys])
        turns: dict[DeliveryKey, _Turn] = {}
        later = later_generations(work, heads, states)
        for place in work.partitions:
            key, head = place[1], heads.get(place[1].partition_key)
            if key in later:
                turns[key] = _Turn(state=states[key], due_ms=later[key])
            elif head is not None:  # its topic was deleted
                is_careful = bool(work.lane.deaths) and states[key] == found.get(key)
                partition = kind(work, place, head, is_careful=is_careful)
                turns[key] = failed.get(key) or _take_turn(work, partition, states[key])
        failed = {key: turn for key, turn in turns.items() if turn.has_failed}
        has_moved = any(turn.state != states[key] for key, turn in turns.items())
        states |= {key: turn.state for key, turn in turns.items()}
        is_mirrored = has_moved and kind is _MirroredPartition and len(keys) >= MIRROR_REST_PARTITIONS
        rests = is_mirrored and _rests(work, found, states, began_ms, round_ms)
        if has_moved and work.has_time() and not rests:
            continue  # records may have come meanwhile: a look costs less than to arm in vain
        result = LaneResult(
            is_unfinished=any(turn.due_ms is None and not turn.waits for turn in turns.values()),
            due_ms=min((turn.due_ms for turn in turns.values() if turn.due_ms is not None), default=None),
            look_ms=min((turn.look_ms for turn in turns.values() if turn.look_ms is not None), default=None),
            ends={key.partition_key: heads[key.partition_key] for key, turn in turns.items() if turn.waits},
        )
        if rests and not result.is_unfinished:
            again_ms = round_ms + MIRROR_REST_MS
            return replace(result, due_ms=min(result.due_ms or again_ms, again_ms), ends={})
        has_progressed = any(_has_progressed(found.get(key), turn.state) for key, turn in turns.items())
        if result.is_unfinished and not (has_progressed or work.has_worked):
            again_ms = work.instance.clock.now_ms() + PUSH_RECEIPT_RETRY_MS  # slices must not chase each other
            return replace(result, is_unfinished=False, due_ms=min(result.due_ms or again_ms, again_ms))
        return result


def _take_turn(work: LaneWork, partition: "_Partition", state: DeliveryState | None) -> _Turn:
    """The partition's turn. If storage fails it, the partition rests, so that its neighbours have their turns."""
    try:
        return partition.take_turn(state)
    except PenstockError as error:
        work.instance.telemetry.log(
            "push_delivery_failed",
            subscription=work.subscription.name,
            lane=work.number,
            partition=str(partition.key.partition_key),
            error=str(error),
        )
        return _Turn(state=state, due_ms=work.instance.clock.now_ms() + PUSH_RECEIPT_RETRY_MS, has_failed=True)


def _rests(
    work: LaneWork,
    before: Mapping[DeliveryKey, DeliveryState],
    after: Mapping[DeliveryKey, DeliveryState | None],
    began_ms: int,
    round_ms: int,
) -> bool:
    """True if the lane has mirrored records since the round began, and some not long before its delivery did.

    A round that was longer than a rest is followed by the next one at once.
    """
    mirrored_ms = max((each.succeeded_ms for each in after.values() if each is not None), default=0)
    was_mirrored_ms = max((each.succeeded_ms for each in before.values()), default=0)
    is_lively = mirrored_ms >= round_ms and began_ms - was_mirrored_ms < MIRROR_LIVELY_MS
    return is_lively and work.instance.clock.now_ms() < round_ms + MIRROR_REST_MS


def _has_progressed(before: DeliveryState | None, after: DeliveryState | None) -> bool:
    """True if the state tells another thing. An attempt that was taken back has only raised the version."""
    if before is None or after is None:
        return after is not None and after.version > 0
    return replace(after, version=before.version) != before


def _is_gone(work: LaneWork) -> bool:
    """True if the subscription was deleted. Then its states may be gone: that is no beginning at the log's start."""
    found = work.instance.stores.push.get_subscription(work.subscription.name)
    return found is None or found.subscription_id != work.subscription.subscription_id


class _Partition:
    """One turn of one partition. `is_careful`: deliveries have died, and this one has not moved the partition yet."""

    def __init__(self, work: LaneWork, place: tuple[TopicName, DeliveryKey], head: Head, *, is_careful: bool) -> None:
        self._work = work
        self._instance = work.instance
        self._subscription = work.subscription
        self._config = work.subscription.config
        self._place = place
        self._head = head
        self._is_careful = is_careful

    @property
    def key(self) -> DeliveryKey:
        """The partition."""
        return self._place[1]

    def take_turn(self, stored: DeliveryState | None) -> _Turn:
        """Steps until the records that were read are done. A partition without a state begins with its log."""
        state = stored or DeliveryState(offset=self._head.log_start_offset, version=0)
        ahead: RecordsAhead | None = None
        while True:
            now_ms = self._instance.clock.now_ms()
            if state.offset >= self._head.next_offset:
                return _Turn(state=state, waits=True)
            if now_ms < state.next_try_ms and not is_open(state):
                return _Turn(state=state, due_ms=state.next_try_ms)
            wait = waiting(state, self._config, self._head.next_offset, now_ms)
            if wait is not None:
                return _Turn(state=state, due_ms=wait.end_ms, look_ms=wait.look_ms, waits=wait.look_ms is None)
            if not self._work.has_time() or (ahead is not None and state.offset >= ahead.end):
                return _Turn(state=state)
            if ahead is None:
                if self._is_careful:
                    state = self._put(begin_read(state, now_ms))
                ahead = self._read(state)
                state = end_read(state)
            if state.offset >= ahead.end:
                state = self._wait_for_record(state, ahead)
                continue
            before = state.expired
            state = self._step(state, ahead)
            if state.expired > before:
                self._instance.telemetry.count("push_records_expired", state.expired - before)

    def _read(self, state: DeliveryState) -> RecordsAhead:
        ahead = read_ahead(self._work, self._place, self._head, state, is_careful=self._is_careful)
        if ahead.expired:
            self._instance.telemetry.count("push_expired", ahead.expired)
        return ahead

    def _wait_for_record(self, state: DeliveryState, ahead: RecordsAhead) -> DeliveryState:
        """Rests, because the next record is damaged or cannot be reached now."""
        self._instance.telemetry.log("push_unreadable", **self._facts(state.offset), error=ahead.error)
        return self._put(pause(state, self._instance.clock.now_ms() + PUSH_UNREADABLE_PAUSE_MS))

    def _step(self, state: DeliveryState, ahead: RecordsAhead) -> DeliveryState:
        """The state after the next step. Each step moves the offset, or notes a failure or a pause, or time is over.

        Or a record has expired since it was chosen: then the next step goes without it.
        """
        portion, found = ahead.batch(state, self._config, self._instance.clock.now_ms())
        first = portion.records[:1]
        why = why_too_large(self._subscription.target, self._batch(state, first)) if first else ""
        if why:
            return set_aside(self._work, self._place, state, portion.below(Offset(first[0].record.offset + 1)), why)
        match self._plan(state, found):
            case Rest(state=resting):
                return self._put_if_new(state, resting)
            case Skip(end=end):
                return self._put(pass_expired(state, end, portion.expired_below(end)))
            case Bury(end=end):
                dead, now_ms = portion.below(end), self._instance.clock.now_ms()
                if any(ahead.is_over(each, now_ms) for each in dead.records):
                    return state  # it leaves no dead letter
                return bury(self._work, self._place, state, dead)
            case Try() as tried:
                begun = self._put_if_new(state, tried.state)
                if not self._work.has_time():  # the write took long: another delivery may be at work
                    return self._take_back(state, begun)
                return self._try(begun, tried, portion if tried.end == portion.end else portion.below(tried.end))
            case NeedsEvidence():
                raise AssertionError("the plan had evidence")

    def _plan(self, state: DeliveryState, found: Found) -> Plan:
        facts = Facts(now_ms=self._instance.clock.now_ms(), deaths=self._work.lane.deaths)
        step = plan(state, self._config, found, facts)
        if not isinstance(step, NeedsEvidence):
            return step
        states = self._instance.stores.push.states_of(self._subscription.subscription_id)
        proof_ms = max((each.proof_ms for each in states.deliveries.values()), default=0)
        return plan(state, self._config, found, replace(facts, proof_ms=proof_ms))

    def _take_back(self, old: DeliveryState, begun: DeliveryState) -> DeliveryState:
        """The state before an attempt that was counted and is not made, so that no record is buried untried."""
        return old if begun == old else self._put(replace(old, version=begun.version + 1))

    def _try(self, state: DeliveryState, tried: Try, portion: PushPortion) -> DeliveryState:
        target, records = self._subscription.target, portion.records
        if isinstance(target, TopicTarget):
            copied = copy_to_topic(self._work, self._place, state, portion)
            if isinstance(copied, DeliveryState):
                return copied
            return self._fail(state, tried, copied)
        began_ms = self._instance.clock.now_ms()
        answer = self._instance.stores.targets.deliver(target, self._batch(state, records), PUSH_TARGET_MS)
        if isinstance(answer, Failed):
            return self._fail(state, tried, answer)
        if answer.failed:
            return self._fail_record(state, portion, answer, began_ms)
        self._count_pushed(len(records))
        done = commit(state, tried.end, began_ms, self._instance.clock.now_ms())
        return self._put(replace(done, expired=state.expired + len(portion.expired)))

    def _batch(self, state: DeliveryState, records: Sequence[PushRecord]) -> PushBatch:
        return PushBatch(
            subscription=self._subscription.name,
            subscription_id=self._subscription.subscription_id,
            records=records,
            attempt=1 if state.trouble is None else state.trouble.attempts,
        )

    def _fail(self, state: DeliveryState, tried: Try, failed: Failed) -> DeliveryState:
        self._log_failure(state.offset, failed.failure.value, failed.error)
        return self._put(fail(state, self._config, tried, failed, self._instance.clock.now_ms()))

    def _fail_record(
        self, state: DeliveryState, portion: PushPortion, answer: Answered, began_ms: int
    ) -> DeliveryState:
        offsets = [each.record.offset for each in portion.records]
        failed = {offset for _, offset in answer.failed}
        first, last = min(failed), max(failed)
        named = Named(
            offset=first,
            is_first=first == offsets[0],
            has_proof=any(offset < last and offset not in failed for offset in offsets),
            error=answer.error,
        )
        self._count_pushed(sum(offset < first for offset in offsets))
        self._log_failure(first, "record", answer.error)
        done = fail_record(state, self._config, named, began_ms, self._instance.clock.now_ms())
        return self._put(replace(done, expired=state.expired + portion.expired_below(first)))

    def _log_failure(self, offset: Offset, kind: str, error: str) -> None:
        self._instance.telemetry.log("push_failed", **self._facts(offset), kind=kind, error=error)

    def _count_pushed(self, records: int) -> None:
        if records:
            self._instance.telemetry.count("records_pushed", records)

    def _facts(self, offset: Offset) -> dict[str, str | int]:
        return {
            "subscription": self._subscription.name,
            "partition": str(self._place[1].partition_key),
            "offset": offset,
        }

    def _put_if_new(self, old: DeliveryState, new: DeliveryState) -> DeliveryState:
        return old if new == old else self._put(new)

    def _put(self, new: DeliveryState) -> DeliveryState:
        self._work.check_first(self._place[1], new)
        stored = self._instance.stores.push.put_delivery(self._place[1], new)
        if stored != new:
            raise overtaken(self._place[1])
        return new


class _MirroredPartition(_Partition):
    """One turn of a partition that another stage mirrors: pushes of its log, as it is stored."""

    def take_turn(self, stored: DeliveryState | None) -> _Turn:
        """Pushes until the mirror has all that the head shows. A mirror in trouble is tried again.

        It is asked once for each version of the subscription: it may have begun anew since.
        """
        from penstock_service.mirror.push_log import push_log  # which other targets do not need

        state = stored or DeliveryState(offset=self._head.log_start_offset, version=0)
        begin = state.offset
        while True:
            self._work.hold.renew(has_progressed=state.offset > begin)
            state = self._told(state)
            must_ask = state.trouble is not None or state.asked_version < self._subscription.version
            if state.offset >= self._head.next_offset and not must_ask:
                return _Turn(state=state, due_ms=telling_due_ms(state, is_again=True), waits=True)
            if self._instance.clock.now_ms() < state.next_try_ms:
                return _Turn(state=state, due_ms=state.next_try_ms)
            if not self._work.has_time():
                return _Turn(state=state)
            state = self._put_if_new(state, push_log(self._work, self._place, self._head, state))

    def _told(self, state: DeliveryState) -> DeliveryState:
        """The state once the mirror was told offsets of groups, and timers, if it is time for that, and it is well."""
        from penstock_service.mirror.push_log import told_topic
        from penstock_service.mirror.tell_offsets import tell_offsets
        from penstock_service.mirror.tell_timers import tell_timers

        name, key = self._place
        is_well = state.trouble is None and state.version > 0  # a first push makes the topic
        if key.partition or not is_well or not self._work.has_time():
            return state
        has_offsets, has_timers = self._is_told(state.offsets), self._is_told(state.timers or state.offsets)
        if has_offsets and has_timers:
            return state
        target = self._subscription.target
        assert isinstance(target, StageTarget)
        told = told_topic(self._instance, name, key.topic_id, target.prefix)
        offsets, timers = state.offsets, state.timers
        if not has_offsets:
            offsets = tell_offsets(self._work, key.topic_id, told, offsets)
        if not has_timers:
            timers = tell_timers(self._work, self._instance.topic_cache.get(name), told, timers)
        told_state = self._put(changed(state, window=state.window, offsets=offsets, timers=timers))
        return self._told(told_state) if timers is not None and not timers.next_ms else told_state

    def _is_told(self, note: OffsetsNote | TimersNote | None) -> bool:
        """True if it is not time for the next telling."""
        is_known = note is not None and note.version == self._subscription.version
        return note is not None and is_known and self._instance.clock.now_ms() < note.next_ms
