"""The item of a lane.

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

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import SubscriptionId
from penstock_core.push.lane import NO_MESSAGE, LaneKey, LaneState
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.keys import LANE_PREFIX, PUSH_PREFIX
from penstock_core.storage.push.versioned_write import versioned_write

_OF_LOOKER = ("looker", "look_ms")


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
