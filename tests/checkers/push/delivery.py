"""One delivery, step by step: each step is one call. The lane's decisions are the shipped functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_core.push import lane as shipped
from penstock_core.push.lane import Drop, LaneState, Postpone, Turn
from tests.checkers.breadth_first import InvariantError
from tests.checkers.push.state import (
    NOW,
    NOW_MS,
    TICK_MS,
    TICKS_OF_LOCK,
    Delivered,
    Head,
    Instance,
    State,
    put,
    send,
    with_delivered,
    with_head,
    with_lane,
)

Outcome = tuple[str, State, Instance | None]
BEFORE = ("read", "take", "put take")  # a delivery has its lane
WRITES = ("put take", "put release", "arm", "commit", "fail", "send", "postpone")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The order of a delivery's steps. Mutants leave one out."""

    arms_before_release: bool = False
    deletes_before_release: bool = False
    deletes_before_sending: bool = False
    arms_by_its_first_read: bool = False
    arms_without_condition: bool = False
    rests_without_arming: bool = False
    rests_without_postponing: bool = False
    puts_without_condition: bool = False
    deletes_late: bool = False
    takes_late: bool = False


SHIPPED = Rules()


class Delivery:
    """The steps of an instance."""

    def __init__(self, rules: Rules, pauses: Sequence[int], *, is_mirror: bool = False) -> None:
        self._rules = rules
        self._pauses = pauses
        self._is_mirror = is_mirror

    def steps(self, state: State, me: Instance) -> Iterator[Outcome]:
        """What the instance's next step may come to: the state, and the instance after it, None if it is gone.

        The first is the one without faults. An instance that is older than its function's time does no more than the
        write that has left. To a mirror, it goes on after its lock, and its message may be received again by then.
        """
        goes_on = self._is_mirror and (self._rules.takes_late or me.step not in BEFORE)
        is_late = NOW - me.started >= TICKS_OF_LOCK and not goes_on
        if is_late and me.step not in WRITES:
            yield "its time is over", state, None
            return
        for name, after, then in getattr(self, "_" + me.step.replace(" ", "_"))(state, me):
            yield f"{me.step}{name}", after, None if is_late else then

    def _read(self, state: State, me: Instance) -> Iterator[Outcome]:
        yield "", state, me._replace(subscription=state.subscription, step="take")

    def _take(self, state: State, me: Instance) -> Iterator[Outcome]:
        lane = state.lanes[me.message.lane]
        turn = Turn(
            message_id=str(me.message.number),
            nonce=str(me.nonce),
            sent_version=me.message.version,
            seen_version=me.subscription.version,
            now_ms=NOW_MS,
        )
        match shipped.take(lane, turn):
            case Drop():
                if lane is not None and turn.message_id in (lane.holder, lane.sleeper):
                    raise InvariantError(f"message {turn.message_id} is dropped, and the lane relies on it")
                yield ": dropped", state, me._replace(step="delete")
            case Postpone(until_ms=until_ms):
                yield ": postponed", state, me._replace(step="postpone", until=-(-until_ms // TICK_MS))
            case LaneState() as new if new == lane:
                yield ": held", state, me._replace(step="look", held=new, new=None)
            case LaneState() as new:
                yield ": free", state, me._replace(step="put take", new=replace(new, deaths=0))

    def _put_take(self, state: State, me: Instance) -> Iterator[Outcome]:
        done = me._replace(step="look", held=me.new, new=None)
        for name, after, then in self._put(state, me, done, me._replace(step="take", new=None)):
            if then is done and self._is_mirror:
                message = me.message._replace(visible=NOW + TICKS_OF_LOCK)
                is_there = any(each.number == message.number for each in after.messages)
                yield name, put(after, message) if is_there else after, done._replace(message=message, started=NOW)
            else:
                yield name, after, then

    def _look(self, state: State, me: Instance) -> Iterator[Outcome]:
        assert me.held is not None
        mine = [p for p in range(len(state.heads)) if p % me.subscription.lanes == me.message.lane]
        if me.subscription.is_paused:
            yield ": paused", state, self._releasing(me, shipped.finish(me.held), "delete", [])
            return
        owed = [p for p in mine if state.delivered[p].offset < state.heads[p].next_offset]
        at_end = [(p, state.delivered[p].offset) for p in mine if p not in owed]
        if self._rules.arms_by_its_first_read:
            at_end = [(p, offset) for p, offset in at_end if not state.heads[p].is_armed]
        for p in owed:
            old = state.delivered[p]
            if old.next_try <= NOW:
                new = Delivered(state.heads[p].next_offset, old.version + 1, 0)
                yield f": p{p} succeeds", state, me._replace(step="commit", partition=p, delivered=new)
                for pause in self._pauses if state.failures else ():
                    new = Delivered(old.offset, old.version + 1, NOW + pause)
                    less = state._replace(failures=state.failures - 1)
                    yield f": p{p} fails", less, me._replace(step="fail", partition=p, delivered=new)
                if state.slices:
                    less = state._replace(slices=state.slices - 1)
                    yield ": slice", less, self._releasing(me, shipped.finish(me.held), "send", [])
                return
        if not owed:
            yield ": at the end", state, self._releasing(me, shipped.finish(me.held), "delete", at_end)
            return
        due = min(state.delivered[p].next_try for p in owed)
        new_lane = shipped.rest(me.held, due * TICK_MS, NOW_MS)
        if not NOW_MS <= new_lane.due_ms <= due * TICK_MS:
            raise InvariantError("a lane sleeps for longer than until its work is due, or until a time that is over")
        is_asleep = new_lane.sleeper == str(me.message.number) and not self._rules.rests_without_postponing
        to_arm = [] if self._rules.rests_without_arming else at_end
        rests = self._releasing(me, new_lane, "postpone" if is_asleep else "delete", to_arm)
        yield f": rests until {due - NOW}", state, rests._replace(until=due)

    def _releasing(self, me: Instance, new: LaneState, end: str, to_arm: list[tuple[int, int]]) -> Instance:
        step = "put release"
        if self._rules.deletes_before_release and end == "delete":
            step = "delete first"
        elif self._rules.arms_before_release and to_arm:
            step = "arm first"
        return me._replace(step=step, new=new, end=end, to_arm=tuple(to_arm))

    def _put_release(self, state: State, me: Instance) -> Iterator[Outcome]:
        end = "delete first" if self._rules.deletes_before_sending and me.end == "send" else me.end
        done = me._replace(step="arm" if me.to_arm else end, new=None, held=None)
        yield from self._put(state, me, done, None)

    def _put(self, state: State, me: Instance, done: Instance, refused: Instance | None) -> Iterator[Outcome]:
        """A conditional put, which an adapter repeats after a lost answer. The repeat finds what the first has put."""
        assert me.new is not None
        stored = state.lanes[me.message.lane]
        if stored == me.new:
            yield ": was put", state, done
        elif (0 if stored is None else stored.version) == me.new.version - 1 or self._rules.puts_without_condition:
            after = with_lane(state, me.message.lane, me.new)
            yield "", after, done
            if state.faults:
                yield ": the answer is lost", after._replace(faults=state.faults - 1), me
        else:
            yield ": refused", state, refused

    def _arm(self, state: State, me: Instance) -> Iterator[Outcome]:
        (p, offset), *rest = me.to_arm
        if state.heads[p].next_offset != offset and not self._rules.arms_without_condition:
            yield f" p{p}: refused", state, me._replace(step="take", to_arm=())
            return
        after = with_head(state, p, Head(state.heads[p].next_offset, True))
        yield f" p{p}", after, me._replace(step="arm" if rest else me.end, to_arm=tuple(rest))

    def _arm_first(self, state: State, me: Instance) -> Iterator[Outcome]:
        for name, after, then in self._arm(state, me):
            assert then is not None
            yield name, after, then._replace(step={"arm": "arm first", me.end: "put release"}.get(then.step, "look"))

    def _commit(self, state: State, me: Instance) -> Iterator[Outcome]:
        """A write of a partition's state, on condition of its version. A refused instance leaves its message."""
        if state.delivered[me.partition].version == me.delivered.version - 1:
            then = me._replace(step="look", partition=0, delivered=Delivered())
            yield f" p{me.partition}", with_delivered(state, me.partition, me.delivered), then
        else:
            yield f" p{me.partition}: refused", state, None

    _fail = _commit

    def _send(self, state: State, me: Instance) -> Iterator[Outcome]:
        after = send(state, me.message.lane, me.subscription.version)
        yield "", after, None if self._rules.deletes_before_sending else me._replace(step="delete")

    def _delete(self, state: State, me: Instance) -> Iterator[Outcome]:
        if self._keeps(me):
            yield ": kept", state, None
            return
        yield "", _without(state, me), None

    def _delete_first(self, state: State, me: Instance) -> Iterator[Outcome]:
        yield "", _without(state, me), me._replace(step="put release" if me.new is not None else me.end)

    def _keeps(self, me: Instance) -> bool:
        """The lock is over: another delivery may hold the lane by the message, which an old receipt may delete."""
        return NOW - me.started >= TICKS_OF_LOCK and not self._rules.deletes_late

    def _postpone(self, state: State, me: Instance) -> Iterator[Outcome]:
        if self._is_mirror and self._keeps(me):
            yield ": kept", state, None  # or its call had left
        is_there = any(each.number == me.message.number for each in state.messages)
        yield f" until {me.until - NOW}", put(state, me.message._replace(visible=me.until)) if is_there else state, None


def _without(state: State, me: Instance) -> State:
    return state._replace(messages=tuple(each for each in state.messages if each.number != me.message.number))
