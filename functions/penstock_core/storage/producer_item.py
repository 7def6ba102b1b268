"""The item of an idempotent producer that has left the head.

```
log table   pk "<topic id>#<partition>"   sk "producer#<producer id, 11 letters of base64>"
state          B   its entry, as in the head (records/producer_state.py)
owner          B   its owner, as in the head; missing for one that an older release has moved out
expires_at_s   N   DynamoDB removes the item some time after it: `PRODUCER_KEPT_MS` after the producer left the head
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import PartitionKey
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_core.records.producer_state import NO_OWNER, ProducerState, decode_state, encode_state, entries_equal
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, Item, number


def producer_item_key(key: PartitionKey, producer_id: int) -> Item:
    """The key of the producer on this partition."""
    return {"pk": {"S": str(key)}, "sk": {"S": f"producer#{keys.producer_name(producer_id)}"}}


def producer_item(key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> Item:
    """The whole item. It expires `PRODUCER_KEPT_MS` after the producer left the head."""
    return {
        **producer_item_key(key, producer_id),
        "state": {"B": encode_state(state)},
        **({"owner": {"B": state.owner}} if state.owner else {}),
        "expires_at_s": number((evicted_ms + PRODUCER_KEPT_MS) // 1_000),
    }


def producer_put(key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> ConditionalPut:
    """The put of the item, unless one is there that is newer by (epoch, last sequence), or equal and kept longer."""
    lowest, highest = entries_equal(state)
    item = producer_item(key, producer_id, state, evicted_ms)
    return ConditionalPut(
        item=item,
        condition="attribute_not_exists(pk) OR #state < :lowest "
        "OR (#state BETWEEN :lowest AND :highest AND expires_at_s <= :expires)",
        names={"#state": "state"},
        values={":lowest": {"B": lowest}, ":highest": {"B": highest}, ":expires": item["expires_at_s"]},
    )


def parse_producer(item: Mapping[str, Any]) -> ProducerState:
    """The inverse of `producer_item`. Raises CORRUPT_SEGMENT for an entry of another size."""
    check_item("producer", item)
    return decode_state(item["state"]["B"], item["owner"]["B"] if "owner" in item else NO_OWNER)
