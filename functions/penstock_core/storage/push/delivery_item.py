"""The item of a subscription's state in one partition.

```
groups table   pk "push#<subscription id>"   sk "delivery#<topic id>#<partition>"
version        N   rises with each write: the condition of the next one
offset         N   the first record that the target has not answered for
next_try_ms    N   nothing is tried before
succeeded_ms   N   the last success; 0 for none
proof_ms       N   when the delivery of that success began
dead_lettered  N   records that went to the dead-letter topic
trouble        S   JSON of the range that fails (push/delivery.py); missing while all is well
window         S   JSON of the window of a batch that waits for more records; missing while none waits
```
Whole numbers of the state are attributes of their names. Trouble and window are written whole, without fields that have
their default. They do not outlive the failure and the batch, so a release passes over fields that it does not know.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Partition, SubscriptionId, TopicId
from penstock_core.push.delivery import DeliveryState, Trouble, Window
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.keys import DELIVERY_PREFIX, PUSH_PREFIX
from penstock_core.storage.push.lane_item import states_key
from penstock_core.storage.push.versioned_write import versioned_write

_TROUBLE, _WINDOW = _DOCUMENTS = ("trouble", "window")
_NUMBERS = tuple(field.name for field in fields(DeliveryState) if field.name not in _DOCUMENTS)
_TROUBLE_DEFAULTS = {field.name: field.default for field in fields(Trouble)}
_WINDOW_DEFAULTS = {field.name: field.default for field in fields(Window)}


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
    if state.trouble is not None:
        item[_TROUBLE] = _document(asdict(state.trouble), _TROUBLE_DEFAULTS)
    if state.window is not None:
        item[_WINDOW] = _document(asdict(state.window), _WINDOW_DEFAULTS)
    return item


def parse_delivery(item: Mapping[str, Any]) -> DeliveryState:
    """The inverse of `delivery_item`. A number that an older release has not stored has its default."""
    check_item("push_delivery", item)
    numbers: dict[str, Any] = {name: int(item[name]["N"]) for name in _NUMBERS if name in item}
    return DeliveryState(
        **numbers,
        trouble=Trouble(**_fields(item[_TROUBLE]["S"], _TROUBLE_DEFAULTS)) if _TROUBLE in item else None,
        window=Window(**_fields(item[_WINDOW]["S"], _WINDOW_DEFAULTS)) if _WINDOW in item else None,
    )


def delivery_write(key: DeliveryKey, new: DeliveryState) -> ConditionalPut | ConditionalUpdate:
    """Stores the state if the stored version is the one before it."""
    return versioned_write(delivery_item(key, new), new.version, optional=_DOCUMENTS)


def _document(told: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, str]:
    changed = {name: value for name, value in told.items() if value != defaults[name]}
    return {"S": json.dumps(changed, separators=(",", ":"), sort_keys=True)}


def _fields(text: str, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name in defaults}
