"""The model's steps, and what must hold in each of its states.

Invariants:

- The queue has the message that holds a lane, and the one that sleeps for it.
- While all messages sleep, each partition is armed at its end, or waits for its next try.
- A lane sleeps until its earliest work is due, and no message is dropped that it relies on.
- From each state, if all instances die and faults stop, every record is delivered and every head is armed. No look
  helps.

If the queue delivers a message twice, one receiver may delete it while the other holds the lane by it. That breaks the
first, and the lane waits for the look. So with `doubles` only the second is checked, and the look runs while the queue
is empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_core.push.lane import FREE
from tests.checkers.breadth_first import InvariantError
from tests.checkers.push.delivery import SHIPPED, Delivery, Rules
from tests.checkers.push.state import (
    NOW,
    NOW_MS,
    TICK_MS,
    TICKS_OF_VISIBILITY,
    Delivered,
    Head,
    Instance,
    Message,
    State,
    Subscription,
    Wish,
    counted_anew,
    later,
    put,
    send,
    with_head,
)

DRAIN_STEPS_MAX = 400


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much there is of everything. `faults` are deaths and lost answers, together."""

    partitions: int = 1
    lanes: int = 1
    lanes_max: int = 1
    instances: int = 2
    appends: int = 2
    faults: int = 2
    doubles: int = 0  # messages that the queue delivers once more
    pauses: tuple[int, ...] = (1,)  # after a failure, in ticks
    starts_paused: bool = False  # with a record that nobody has delivered
    failures: int = 1
    changes: int = 1
    slices: int = 1
    is_mirror: bool = False  # deliveries outlast their locks


class Model:
    """Steps from state to state."""

    def __init__(self, bounds: Bounds, rules: Rules = SHIPPED) -> None:
        self._bounds = bounds
        self._delivery = Delivery(rules, bounds.pauses, is_mirror=bounds.is_mirror)
        self._drained: set[State] = set()

    def size(self) -> str:
        """How many states of the stores were worked off."""
        return f"{len(self._drained):,} states worked off"

    def start(self) -> State:
        """A subscription that was just made, and has its first messages."""
        bounds = self._bounds
        state = State(
            heads=(Head(1, False) if bounds.starts_paused else Head(),) * bounds.partitions,
            delivered=(Delivered(),) * bounds.partitions,
            lanes=(None,) * bounds.lanes_max,
            subscription=Subscription(lanes=bounds.lanes, is_paused=bounds.starts_paused),
            messages=(),
            faults=bounds.faults,
            doubles=bounds.doubles,
            appends=bounds.appends,
            failures=bounds.failures,
            changes=bounds.changes,
            slices=bounds.slices,
        )
        for lane in range(bounds.lanes):
            state = send(state, lane, 1)
        return state

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step from the state, with its name. Raises InvariantError if the state breaks an invariant."""
        self._check(state)
        for name, after in self._steps(state):
            yield name, counted_anew(after)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, instance in enumerate(state.instances):
            others = state.instances[:place] + state.instances[place + 1 :]
            for name, after, then in self._delivery.steps(state, instance):
                there = others if then is None else tuple(sorted((*others, then), key=_nonce))
                yield f"i{instance.nonce} (m{instance.message.number}) {name}", after._replace(instances=there)
            if state.faults:
                yield f"i{instance.nonce} dies", state._replace(instances=others, faults=state.faults - 1)
        if len(state.instances) < self._bounds.instances:
            yield from _receipts(state)
        yield from self._writers(state)
        yield from self._operators(state)
        yield "time passes", later(state)

    def _writers(self, state: State) -> Iterator[tuple[str, State]]:
        if state.appends:
            for p, head in enumerate(state.heads):
                after = with_head(state, p, Head(head.next_offset + 1, False))
                events = tuple(sorted((*state.events, p))) if head.is_armed else state.events
                yield f"append to p{p}", after._replace(events=events, appends=state.appends - 1)
        for place, p in enumerate(state.events):
            rest = state._replace(events=state.events[:place] + state.events[place + 1 :])
            yield f"dispatch of p{p} reads", _dispatched(rest, p)
        for place, wish in enumerate(state.wishes):
            rest = state._replace(wishes=state.wishes[:place] + state.wishes[place + 1 :])
            yield f"send to lane {wish.lane}", send(rest, wish.lane, wish.version)

    def _operators(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.changes or any(wish.partition < 0 for wish in state.wishes):
            return
        less, old = state._replace(changes=state.changes - 1), state.subscription
        if old.is_paused:
            yield "resume", _changed(less, old._replace(is_paused=False))
        else:
            yield "pause", less._replace(subscription=old._replace(version=old.version + 1, is_paused=True))
        for lanes in range(1, self._bounds.lanes_max + 1):
            if lanes != old.lanes:
                yield f"alter to {lanes} lanes", _changed(less, old._replace(lanes=lanes))

    def _check(self, state: State) -> None:
        numbers = {str(each.number) for each in state.messages}
        for lane in () if self._bounds.doubles else state.lanes:
            if lane is not None and lane.locked_until_ms > NOW_MS and lane.holder not in numbers:
                raise InvariantError(f"message {lane.holder} holds a lane, and is gone")
            if lane is not None and lane.sleeper and lane.sleeper not in numbers:
                raise InvariantError(f"message {lane.sleeper} sleeps for a lane, and is gone")
        stores = state._replace(instances=(), faults=0, doubles=0, appends=0, failures=0, changes=0, slices=0)
        if stores not in self._drained:
            self._drain(stores)
            self._drained.add(stores)

    def _drain(self, state: State) -> None:
        """All instances are dead. Raises InvariantError unless what is left delivers every record."""
        if state.subscription.is_paused:
            state = _changed(state, state.subscription._replace(is_paused=False))
        for _ in range(DRAIN_STEPS_MAX):
            if state.events:
                state = _dispatched(state._replace(events=state.events[1:]), state.events[0])
            elif state.wishes:
                state = send(state._replace(wishes=state.wishes[1:]), state.wishes[0].lane, state.wishes[0].version)
            elif state.messages:
                self._check_rest(state)
                message = min(state.messages, key=lambda each: (each.visible, each.number))
                state = self._alone(_received(state, message)) if message.visible <= NOW else later(state)
            elif self._bounds.doubles and (looked := _looked(later(later(state)))).messages:
                state = looked
            else:
                break
        else:
            raise InvariantError("messages go round for ever")
        for p, (head, place) in enumerate(zip(state.heads, state.delivered, strict=True)):
            if place.offset != head.next_offset:
                raise InvariantError(f"records of p{p} are never delivered")
            if not head.is_armed:
                raise InvariantError(f"p{p} is at its end, and nobody has armed its head")

    def _check_rest(self, state: State) -> None:
        """Raises InvariantError if all messages sleep, and something could be done or nobody would be woken."""
        asleep = {(lane.sleeper, lane.due_ms) for lane in state.lanes if lane and lane.locked_until_ms == FREE}
        if not all(
            each.visible > NOW and (str(each.number), each.visible * TICK_MS) in asleep for each in state.messages
        ):
            return
        for p, (head, place) in enumerate(zip(state.heads, state.delivered, strict=True)):
            is_at_end = place.offset == head.next_offset
            if not head.is_armed if is_at_end else place.next_try <= NOW:
                raise InvariantError(f"p{p} waits for a message that sleeps for another partition")

    def _alone(self, state: State) -> State:
        [instance] = state.instances
        state = state._replace(instances=())
        then: Instance | None = instance
        while then is not None:
            _, state, then = next(self._delivery.steps(state, then))
        return state


def _receipts(state: State) -> Iterator[tuple[str, State]]:
    for message in state.messages:
        if message.visible <= NOW:
            yield f"m{message.number} is received", _received(state, message)
        elif state.doubles:
            yield f"m{message.number} comes twice", _received(state._replace(doubles=state.doubles - 1), message)


def _received(state: State, message: Message) -> State:
    used = {str(each.nonce) for each in state.instances} | {lane.nonce for lane in state.lanes if lane}
    nonce = next(n for n in range(1, 99) if str(n) not in used)
    hidden = message._replace(visible=NOW + TICKS_OF_VISIBILITY)
    there = (*state.instances, Instance(hidden, nonce))
    return put(state, hidden)._replace(instances=tuple(sorted(there, key=_nonce)))


def _dispatched(state: State, partition: int) -> State:
    """Dispatch reads the subscription, and is about to send."""
    version, is_paused, lanes = state.subscription
    if is_paused:
        return state
    return state._replace(wishes=tuple(sorted((*state.wishes, Wish(partition, partition % lanes, version)))))


def _looked(state: State) -> State:
    """The look sends a message for each lane that has work, and neither a lock nor a sleeper that is in time."""
    version, _, lanes = state.subscription
    for number in range(lanes):
        lane, now_ms = state.lanes[number], NOW_MS
        is_tended = lane is not None and (lane.locked_until_ms > now_ms or (lane.sleeper and lane.due_ms >= now_ms))
        places = [*zip(state.heads, state.delivered, strict=True)][number::lanes]
        has_work = any(place.offset < head.next_offset or not head.is_armed for head, place in places)
        if has_work and not is_tended:
            state = send(state, number, version)
    return state


def _changed(state: State, new: Subscription) -> State:
    """An operator has put the subscription, and is about to send to each lane. A death makes it repeat both."""
    new = new._replace(version=state.subscription.version + 1)
    wishes = [Wish(-1, lane, new.version) for lane in range(new.lanes)]
    return state._replace(subscription=new, wishes=tuple(sorted((*state.wishes, *wishes))))


def _nonce(instance: Instance) -> int:
    return instance.nonce
