"""The item of a subscription's state in one partition.

```
groups table   pk "push#<subscription id>"   sk "delivery#<topic id>#<partition>"
version        N   rises with each write: the condition of the next one
offset         N   the first record that the target has not answered for
next_try_ms    N   nothing is tried before
succeeded_ms   N   the last success; 0 for none
trouble        S   JSON of the range that fails (push/delivery.py); missing while all is well
```
Whole numbers of the state are attributes of their names. The trouble is written whole, without fields that have their
default. It does not outlive the failure, so a release passes over fields of it that it does not know.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Partition, SubscriptionId, TopicId
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.keys import DELIVERY_PREFIX, PUSH_PREFIX
from penstock_core.storage.push.lane_item import states_key
from penstock_core.storage.push.versioned_write import versioned_write

_TROUBLE = "trouble"
_NUMBERS = tuple(field.name for field in fields(DeliveryState) if field.name != _TROUBLE)
_TROUBLE_DEFAULTS = {field.name: field.default for field in fields(Trouble)}


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
        told = {name: value for name, value in asdict(state.trouble).items() if value != _TROUBLE_DEFAULTS[name]}
        item[_TROUBLE] = {"S": json.dumps(told, separators=(",", ":"), sort_keys=True)}
    return item


def parse_delivery(item: Mapping[str, Any]) -> DeliveryState:
    """The inverse of `delivery_item`. A number that an older release has not stored has its default."""
    check_item("push_delivery", item)
    numbers: dict[str, Any] = {name: int(item[name]["N"]) for name in _NUMBERS if name in item}
    return DeliveryState(**numbers, trouble=_trouble(item[_TROUBLE]["S"]) if _TROUBLE in item else None)


def delivery_write(key: DeliveryKey, new: DeliveryState) -> ConditionalPut | ConditionalUpdate:
    """Stores the state if the stored version is the one before it."""
    return versioned_write(delivery_item(key, new), new.version, optional=[_TROUBLE])


def _trouble(text: str) -> Trouble:
    return Trouble(**{name: value for name, value in json.loads(text).items() if name in _TROUBLE_DEFAULTS})
