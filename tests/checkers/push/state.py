"""The state of the model: heads, partitions, lanes, messages, instances.

The time is always `NOW`, in ticks: if time passes, all times in a state fall. A time that is past is forgotten, and
versions are counted from the stored one. So the number of states is bounded, and time has no end.
"""

from dataclasses import replace
from typing import NamedTuple

from penstock_core.limits import PUSH_LOCK_MS
from penstock_core.push.lane import LaneState

TICKS_OF_LOCK = 2
TICK_MS = PUSH_LOCK_MS // TICKS_OF_LOCK
NOW = 10
NOW_MS = NOW * TICK_MS
TICKS_OF_VISIBILITY = 3  # longer than a lock, so longer than an instance may live


class Head(NamedTuple):
    """A partition's head."""

    next_offset: int = 0
    is_armed: bool = True


class Delivered(NamedTuple):
    """The state of a partition in the subscription."""

    offset: int = 0
    version: int = 1
    next_try: int = 0


class Subscription(NamedTuple):
    """The subscription's item."""

    version: int = 1
    is_paused: bool = False
    lanes: int = 1


class Message(NamedTuple):
    """A message of the queue, hidden until `visible`."""

    number: int
    lane: int
    version: int
    visible: int = NOW


class Wish(NamedTuple):
    """A message that dispatch or an operator is about to send. `partition` is -1 for an operator's."""

    partition: int
    lane: int
    version: int


class Instance(NamedTuple):
    """A running delivery: what it has read, and its next step.

    `new` is the lane's state that it is about to put. It arms `to_arm`, pairs of partition and offset, and ends with
    the step `end`.
    """

    message: Message
    nonce: int
    started: int = NOW
    step: str = "read"
    subscription: Subscription = Subscription()
    held: LaneState | None = None
    new: LaneState | None = None
    to_arm: tuple[tuple[int, int], ...] = ()
    end: str = ""
    until: int = 0
    partition: int = 0
    delivered: Delivered = Delivered()


class State(NamedTuple):
    """A state of the whole model. The last row are budgets."""

    heads: tuple[Head, ...]
    delivered: tuple[Delivered, ...]
    lanes: tuple[LaneState | None, ...]
    subscription: Subscription
    messages: tuple[Message, ...]
    events: tuple[int, ...] = ()
    wishes: tuple[Wish, ...] = ()
    instances: tuple[Instance, ...] = ()
    faults: int = 0
    doubles: int = 0
    appends: int = 0
    failures: int = 0
    changes: int = 0
    slices: int = 0


def put(state: State, message: Message) -> State:
    """The state with this message, in place of one of its number."""
    others = [each for each in state.messages if each.number != message.number]
    return state._replace(messages=tuple(sorted((*others, message))))


def send(state: State, lane: int, version: int) -> State:
    """The state with a new message, visible now."""
    used = {each.number for each in state.messages} | {each.message.number for each in state.instances}
    names = {name for lane_state in state.lanes if lane_state for name in (lane_state.holder, lane_state.sleeper)}
    number = next(n for n in range(1, 99) if n not in used and str(n) not in names)
    return put(state, Message(number, lane, version))


def with_delivered(state: State, partition: int, new: Delivered) -> State:
    """The state with that place of a partition."""
    return state._replace(delivered=(*state.delivered[:partition], new, *state.delivered[partition + 1 :]))


def with_head(state: State, partition: int, new: Head) -> State:
    """The state with that head."""
    return state._replace(heads=(*state.heads[:partition], new, *state.heads[partition + 1 :]))


def with_lane(state: State, number: int, new: LaneState) -> State:
    """The state with that lane."""
    return state._replace(lanes=(*state.lanes[:number], new, *state.lanes[number + 1 :]))


def later(state: State) -> State:
    """The state after one tick."""
    instances = [
        each._replace(
            message=each.message._replace(visible=max(NOW, each.message.visible - 1)),
            started=max(NOW - TICKS_OF_LOCK, each.started - 1),
            until=max(NOW, each.until - 1) if each.until else 0,
            held=each.held and _later_lane(each.held),
            new=each.new and _later_lane(each.new),
            delivered=_later_delivered(each.delivered),
        )
        for each in state.instances
    ]
    return state._replace(
        messages=tuple(each._replace(visible=max(NOW, each.visible - 1)) for each in state.messages),
        lanes=tuple(lane and _later_lane(lane) for lane in state.lanes),
        delivered=tuple(_later_delivered(each) for each in state.delivered),
        instances=tuple(instances),
    )


def counted_anew(state: State) -> State:
    """The same state, with versions that are counted from the stored ones."""
    if all(lane is None or lane.version == 1 for lane in state.lanes) and all(
        each.version == 1 for each in state.delivered
    ):
        return state
    lane_bases = [0 if lane is None else lane.version - 1 for lane in state.lanes]
    bases = [each.version - 1 for each in state.delivered]
    instances = [
        each._replace(
            held=each.held and _lowered(each.held, lane_bases[each.message.lane]),
            new=each.new and _lowered(each.new, lane_bases[each.message.lane]),
            delivered=each.delivered._replace(version=max(0, each.delivered.version - bases[each.partition])),
        )
        for each in state.instances
    ]
    return state._replace(
        lanes=tuple(lane and _lowered(lane, base) for lane, base in zip(state.lanes, lane_bases, strict=True)),
        delivered=tuple(each._replace(version=1) for each in state.delivered),
        instances=tuple(instances),
    )


def _lowered(lane: LaneState, base: int) -> LaneState:
    return replace(lane, version=max(0, lane.version - base))


def _later_lane(lane: LaneState) -> LaneState:
    locked, due = lane.locked_until_ms, lane.due_ms
    return replace(
        lane,
        locked_until_ms=max(NOW_MS, locked - TICK_MS) if locked else locked,
        due_ms=max(NOW_MS - TICK_MS, due - TICK_MS) if due else due,
    )


def _later_delivered(delivered: Delivered) -> Delivered:
    return delivered._replace(next_try=0 if delivered.next_try <= NOW + 1 else delivered.next_try - 1)
