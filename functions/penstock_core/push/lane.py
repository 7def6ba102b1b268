"""A lane: the unit of concurrency of a subscription, its lock, and the queue message that stands for its work. Pure.

Each partition belongs to one lane. A subscription with `concurrency` n has n lanes, and each lane delivers its
partitions in turn. One delivery holds a lane at a time:

```
 free ──take──> held by a message ──rest──> free, its message sleeps in the queue until `due_ms`
                        │         ──finish──> free, without a message
                        │         ──renew───> held for longer: a lane that pushes to a mirror
                        └─its function dies─> over at `locked_until_ms`: the next take counts a death
```
Invariant: while a lane is held or sleeps, the queue has the message `holder` or `sleeper`. So a message that meets a
held lane may go, unless it is one of those two, or its sender has seen a newer version of the subscription.
If the queue delivers one message twice, one receiver may delete it while the other holds the lane. If that one dies,
or rests, the lane waits for the look, which trusts times only. `tests/checkers/push` explores all of this.

A lock outlasts each delivery. That of a lane to a mirror does not: two deliveries at once harm nothing there.

Each write raises `version`, and is made on condition of the version before it. So a late write changes nothing.

The message that starts a delivery: a lane of a subscription that may have work.

`{"subscription": <name>, "id": <id>, "lane": n, "version": n, "partition": "<topic id>#<n>" or null}`. A message may
be doubled or late, because a delivery looks at the lane itself. `partition` is a hint: the receiver may remember a
topic that did not have it yet. One for a lane to a mirror has `"mirror": true`: its receiver lets it come again soon,
before it reads anything.
"""

import json
import zlib
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SubscriptionId, SubscriptionName, parse_partition_key
from penstock_core.limits import MIRROR_LOCK_MS, PUSH_LOCK_MS

NO_MESSAGE = ""
FREE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneKey:
    """A lane by its subscription and its number, from 0."""

    subscription_id: SubscriptionId
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """The lane's item.

    - `holder` is the message whose delivery holds the lock until `locked_until_ms`; `nonce` names its invocation.
    - `sleeper` is the message that the queue shows again at `due_ms`.
    - `looker` is the message that comes at `look_ms` to look whether a batch is full. The lane does not rely on it.
      Without one, `look_ms` is 0.
    - `seen_version` is that of the subscription which the holder has read.
    - `deaths` counts the holders in a row that died.
    """

    version: int = 0
    seen_version: int = 0
    holder: str = NO_MESSAGE
    nonce: str = ""
    locked_until_ms: int = FREE
    sleeper: str = NO_MESSAGE
    due_ms: int = 0
    looker: str = NO_MESSAGE
    look_ms: int = 0
    deaths: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One receipt of a message: the message's id, a nonce of this invocation, and the subscription's version.

    `sent_version` is the version that the sender of the message has seen. `is_mirror`: the lane pushes to a mirror.
    """

    message_id: str
    nonce: str
    sent_version: int
    seen_version: int
    now_ms: int
    is_mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Another message stands for all that this one could tell. Delete this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """The message must come again, at `until_ms`."""

    until_ms: int


def lane_of(key: PartitionKey, concurrency: int) -> int:
    """The lane of a partition. Neighbouring partitions of a topic lie in neighbouring lanes."""
    return (zlib.crc32(key.topic_id.encode()) + key.partition) % concurrency


def take(state: LaneState | None, turn: Turn) -> LaneState | Drop | Postpone:
    """The lane held by this turn, or what happens to the message. None is a lane that was never taken.

    A turn that finds its own nonce goes on: its first try had been applied.
    """
    state = state or LaneState()
    if state.locked_until_ms > turn.now_ms and state.nonce != turn.nonce:
        is_needed = turn.message_id in (state.holder, state.sleeper) or turn.sent_version > state.seen_version
        return Postpone(until_ms=state.locked_until_ms) if is_needed else Drop()
    if state.nonce == turn.nonce and state.locked_until_ms > turn.now_ms:
        return state
    deaths = state.deaths + 1 if state.locked_until_ms != FREE else 0
    return replace(
        state,
        version=state.version + 1,
        seen_version=turn.seen_version,
        holder=turn.message_id,
        nonce=turn.nonce,
        locked_until_ms=turn.now_ms + (_mirror_lock_ms(deaths) if turn.is_mirror else PUSH_LOCK_MS),
        deaths=deaths,
    )


def _mirror_lock_ms(deaths: int) -> int:
    """Twice as long after each death but the first: a push that is slow looks like a death, and must not pile up."""
    return min(PUSH_LOCK_MS, MIRROR_LOCK_MS << max(0, deaths - 1))


def renew(state: LaneState, now_ms: int, *, has_progressed: bool) -> LaneState:
    """The lane of a mirror whose holder goes on. Until it has done what others died of, no lock becomes shorter."""
    until_ms = now_ms + MIRROR_LOCK_MS
    if has_progressed:
        return replace(state, version=state.version + 1, locked_until_ms=until_ms, deaths=0)
    return replace(state, version=state.version + 1, locked_until_ms=max(until_ms, state.locked_until_ms))


def finish(state: LaneState) -> LaneState:
    """The lane is free. Its holder's message goes, unless it is the sleeper."""
    sleeper = NO_MESSAGE if state.sleeper == state.holder else state.sleeper
    return replace(_freed(state), sleeper=sleeper, due_ms=state.due_ms if sleeper else 0)


def rest(state: LaneState, due_ms: int, now_ms: int, look_ms: int | None = None) -> LaneState:
    """The lane is free, and a message sleeps until `due_ms`: an earlier one if it is still to come, else the holder's.

    With `look_ms`, a message comes at that time too: the holder's, unless another one does. The caller postpones its
    own message if it is the sleeper or the looker now, and deletes it otherwise.
    """
    free = _freed(state)
    if state.sleeper in (NO_MESSAGE, state.holder) or not now_ms <= state.due_ms <= due_ms:
        return replace(free, sleeper=state.holder, due_ms=due_ms if look_ms is None else min(due_ms, look_ms))
    is_looked_at = free.looker != NO_MESSAGE and look_ms is not None and now_ms < free.look_ms <= look_ms
    return free if look_ms is None or is_looked_at else replace(free, looker=state.holder, look_ms=look_ms)


def _freed(state: LaneState) -> LaneState:
    freed = replace(state, version=state.version + 1, holder=NO_MESSAGE, nonce="", locked_until_ms=FREE, deaths=0)
    return replace(freed, looker=NO_MESSAGE, look_ms=0) if state.looker == state.holder else freed


@dataclass(frozen=True, slots=True, kw_only=True)
class PushMessage:
    """`version` is that of the subscription as the sender read it, and `is_mirror` tells of its target."""

    name: SubscriptionName
    subscription_id: SubscriptionId
    lane: int
    version: int
    partition: PartitionKey | None = None
    is_mirror: bool = False


def encode_push_message(message: PushMessage) -> str:
    """The text of the message."""
    return json.dumps(
        {
            "subscription": message.name,
            "id": message.subscription_id,
            "lane": message.lane,
            "version": message.version,
            "partition": None if message.partition is None else str(message.partition),
            **({"mirror": True} if message.is_mirror else {}),
        }
    )


def decode_push_message(text: str) -> PushMessage:
    """The inverse of `encode_push_message`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(text)
        partition = fields["partition"]
        return PushMessage(
            name=SubscriptionName(str(fields["subscription"])),
            subscription_id=SubscriptionId(str(fields["id"])),
            lane=int(fields["lane"]),
            version=int(fields["version"]),
            partition=None if partition is None else parse_partition_key(partition),
            is_mirror=fields.get("mirror") is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{text!r:.200} is no message of a subscription: see push/message.py"
        ) from error
