"""The item of a subscription's state in one partition.

```
groups table   pk "push#<subscription id>"   sk "delivery#<topic id>#<partition>"
version        N   rises with each write: the condition of the next one
offset         N   the first record that the target has not answered for
next_try_ms    N   nothing is tried before
succeeded_ms   N   the last success; 0 for none
proof_ms       N   when the delivery of that success began
dead_lettered  N   records that went to the dead-letter topic
expired        N   records that were passed over because their time was over
asked_version  N   of the subscription, at the last answer of a mirror; missing without one
trouble        S   JSON of the range that fails (push/delivery.py); missing while all is well
window         S   JSON of the window of a batch that waits for more records; missing while none waits
offsets        S   JSON of the last telling of groups' offsets (push/delivery.py); missing without one
timers         S   JSON of what a mirror was told of timers (push/delivery.py); missing without
```
Whole numbers of the state are attributes of their names. Trouble and window are written whole, without fields that have
their default. They do not outlive the failure and the batch, so a release passes over fields that it does not know.

The item of a lane.

```
groups table   pk "push#<subscription id>"   sk "lane#<number>"
version           N   rises with each write: the condition of the next one
seen_version      N   of the subscription, as the lane's holder has read it
holder            S   id of the message whose delivery has the lock; empty for none
nonce             S   of its invocation
locked_until_ms   N   0 for no lock
sleeper           S   id of the message that the queue shows again at `due_ms`; empty for none
due_ms            N
looker            S   id of the message that comes at `look_ms` to look whether a batch is full; missing for none
look_ms           N
deaths            N   holders in a row that died
```
The states of the subscription's partitions have the same pk, so that one query finds all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Partition, SubscriptionId, TopicId
from penstock_core.push.delivery import (
    NEVER_ASKED,
    DeliveryKey,
    DeliveryState,
    OffsetsNote,
    TimersNote,
    Trouble,
    Window,
)
from penstock_core.push.lane import NO_MESSAGE, LaneKey, LaneState
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import DELIVERY_PREFIX, LANE_PREFIX, PUSH_PREFIX

_TROUBLE, _WINDOW, _OFFSETS, _TIMERS = _DOCUMENTS = ("trouble", "window", "offsets", "timers")
_ASKED = "asked_version"
_NUMBERS = tuple(field.name for field in fields(DeliveryState) if field.name not in _DOCUMENTS)
_TROUBLE_DEFAULTS = {field.name: field.default for field in fields(Trouble)}
_WINDOW_DEFAULTS = {field.name: field.default for field in fields(Window)}
_OFFSETS_DEFAULTS = {field.name: field.default for field in fields(OffsetsNote)}
_TIMERS_DEFAULTS = {**asdict(TimersNote()), "next_ms": None}
_OF_LOOKER = ("looker", "look_ms")
FIRST_VERSION = 1


def delivery_key(key: DeliveryKey) -> Item:
    """The key of the state's item."""
    return {
        "pk": {"S": states_key(key.subscription_id)},
        "sk": {"S": f"{DELIVERY_PREFIX}{key.topic_id}#{key.partition}"},
    }


def parse_delivery_key(item: Mapping[str, Any]) -> DeliveryKey:
    """The inverse of `delivery_key`."""
    topic_id, _, partition = item["sk"]["S"].removeprefix(DELIVERY_PREFIX).rpartition("#")
    return DeliveryKey(
        subscription_id=SubscriptionId(item["pk"]["S"].removeprefix(PUSH_PREFIX)),
        topic_id=TopicId(topic_id),
        partition=Partition(int(partition)),
    )


def delivery_item(key: DeliveryKey, state: DeliveryState) -> Item:
    """The whole item."""
    item = {**delivery_key(key), **{name: number(getattr(state, name)) for name in _NUMBERS}}
    if state.asked_version == NEVER_ASKED:
        del item[_ASKED]
    if state.trouble is not None:
        item[_TROUBLE] = _document(asdict(state.trouble), _TROUBLE_DEFAULTS)
    if state.window is not None:
        item[_WINDOW] = _document(asdict(state.window), _WINDOW_DEFAULTS)
    if state.offsets is not None:
        item[_OFFSETS] = _document(asdict(state.offsets), _OFFSETS_DEFAULTS)
    if state.timers is not None:
        item[_TIMERS] = _document(asdict(state.timers), _TIMERS_DEFAULTS)
    return item


def parse_delivery(item: Mapping[str, Any]) -> DeliveryState:
    """The inverse of `delivery_item`. A number that an older release has not stored has its default."""
    check_item("push_delivery", item)
    numbers: dict[str, Any] = {name: int(item[name]["N"]) for name in _NUMBERS if name in item}
    return DeliveryState(
        **numbers,
        trouble=Trouble(**_fields(item[_TROUBLE]["S"], _TROUBLE_DEFAULTS)) if _TROUBLE in item else None,
        window=Window(**_fields(item[_WINDOW]["S"], _WINDOW_DEFAULTS)) if _WINDOW in item else None,
        offsets=OffsetsNote(**_fields(item[_OFFSETS]["S"], _OFFSETS_DEFAULTS)) if _OFFSETS in item else None,
        timers=TimersNote(**_fields(item[_TIMERS]["S"], _TIMERS_DEFAULTS)) if _TIMERS in item else None,
    )


def delivery_write(key: DeliveryKey, new: DeliveryState) -> ConditionalPut | ConditionalUpdate:
    """Stores the state if the stored version is the one before it."""
    return versioned_write(delivery_item(key, new), new.version, optional=_DOCUMENTS)


def _document(told: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, str]:
    changed = {name: value for name, value in told.items() if value != defaults[name]}
    return {"S": json.dumps(changed, separators=(",", ":"), sort_keys=True)}


def _fields(text: str, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name in defaults}


def states_key(subscription_id: SubscriptionId) -> str:
    """The partition key of a subscription's lanes and states."""
    return f"{PUSH_PREFIX}{subscription_id}"


def lane_key(key: LaneKey) -> Item:
    """The key of the lane's item."""
    return {"pk": {"S": states_key(key.subscription_id)}, "sk": {"S": f"{LANE_PREFIX}{key.lane}"}}


def parse_lane_number(item: Mapping[str, Any]) -> int:
    """The number of the lane that has the item."""
    return int(item["sk"]["S"].removeprefix(LANE_PREFIX))


def lane_item(key: LaneKey, state: LaneState) -> Item:
    """The whole item."""
    item = {
        **lane_key(key),
        "version": number(state.version),
        "seen_version": number(state.seen_version),
        "holder": {"S": state.holder},
        "nonce": {"S": state.nonce},
        "locked_until_ms": number(state.locked_until_ms),
        "sleeper": {"S": state.sleeper},
        "due_ms": number(state.due_ms),
        "deaths": number(state.deaths),
    }
    if state.looker != NO_MESSAGE:
        item |= {"looker": {"S": state.looker}, "look_ms": number(state.look_ms)}
    return item


def parse_lane(item: Mapping[str, Any]) -> LaneState:
    """The inverse of `lane_item`."""
    check_item("push_lane", item)
    return LaneState(
        version=int(item["version"]["N"]),
        seen_version=int(item["seen_version"]["N"]),
        holder=item["holder"]["S"],
        nonce=item["nonce"]["S"],
        locked_until_ms=int(item["locked_until_ms"]["N"]),
        sleeper=item["sleeper"]["S"],
        due_ms=int(item["due_ms"]["N"]),
        looker=item["looker"]["S"] if "looker" in item else NO_MESSAGE,
        look_ms=int(item["look_ms"]["N"]) if "look_ms" in item else 0,
        deaths=int(item["deaths"]["N"]),
    )


def lane_write(key: LaneKey, new: LaneState) -> ConditionalPut | ConditionalUpdate:
    """Stores the state if the stored version is the one before it."""
    return versioned_write(lane_item(key, new), new.version, optional=_OF_LOOKER)


def versioned_write(item: Item, version: int, *, optional: Sequence[str] = ()) -> ConditionalPut | ConditionalUpdate:
    """Puts the first version where there is no item, and rewrites the version before any other one.

    So a write that comes late, or a second time, changes nothing. `optional` are attributes that an item may lack.
    """
    if version == FIRST_VERSION:
        return ConditionalPut(item=item, condition="attribute_not_exists(pk)")
    return rewriting(item, "version = :seen_version", {":seen_version": number(version - 1)}, optional=optional)
