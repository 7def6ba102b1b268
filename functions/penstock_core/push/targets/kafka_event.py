"""The event of a Lambda target, in the shape of AWS's event source mapping for self-managed Kafka. Pure.

```
 {"eventSource": "SelfManagedKafka", "bootstrapServers": "penstock",
  "records": {"orders-0": [{"topic": "orders", "partition": 0, "offset": 15, "timestamp": 1790000000000,
                            "timestampType": "CREATE_TIME", "key": "YzE=", "value": "eyJpZCI6MX0=",
                            "headers": [{"type": [111, 114, 100, 101, 114]}]}]},
  "penstock": {"subscription": "packing", "subscriptionId": "4f0c…", "attempt": 1}}
```

Keys and values are base64, null for none. A header's value is an array of signed bytes, -128 to 127, as Java writes
them; a header without a value has an empty array. So functions that serve Kafka work unchanged, with libraries such as
Powertools. Such functions pass over `penstock`.

https://docs.aws.amazon.com/lambda/latest/dg/with-kafka.html shows the shape.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from penstock_core.limits import PUSH_PAYLOAD_BYTES_MAX
from penstock_core.push.batch import PushBatch, PushRecord

EVENT_SOURCE = "SelfManagedKafka"
BOOTSTRAP_SERVERS = "penstock"  # readers of the shape want a text
_ENVELOPE_BYTES_MAX = 1_024  # all but the records
_RECORD_BYTES_MAX = 220  # the names of a record's fields, and its numbers
_SIGNED_BYTE_BYTES_MAX = 5  # "-128,"


def partition_name(record: PushRecord) -> str:
    """The name of the record's partition in events and answers: `orders-0`."""
    return f"{record.topic}-{record.key.partition}"


def encode_kafka_event(batch: PushBatch) -> bytes:
    """The event of the batch: JSON in ASCII, without blanks. Records keep their order within a partition."""
    records: dict[str, list[dict[str, Any]]] = {}
    for each in batch.records:
        records.setdefault(partition_name(each), []).append(_document(each))
    document = {
        "eventSource": EVENT_SOURCE,
        "bootstrapServers": BOOTSTRAP_SERVERS,
        "records": records,
        "penstock": {
            "subscription": batch.subscription,
            "subscriptionId": batch.subscription_id,
            "attempt": batch.attempt,
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def event_bytes(record: PushRecord) -> int:
    """The bytes that the record takes in an event, or somewhat more. No other target's form of it is longer."""
    content = record.record
    headers = sum(
        len(json.dumps(name)) + 8 + _SIGNED_BYTE_BYTES_MAX * len(value or b"") for name, value in content.headers
    )
    return (
        _RECORD_BYTES_MAX + 2 * len(record.topic) + _base64_bytes(content.key) + _base64_bytes(content.value) + headers
    )


def fitting(records: Sequence[PushRecord]) -> int:
    """The number of records, from the first on, that one delivery may carry: as many as a Lambda event can hold.

    It is 1 for a first record that is too large alone. Its target refuses it then, and the refusal says why.
    """
    room = PUSH_PAYLOAD_BYTES_MAX - _ENVELOPE_BYTES_MAX
    for number, record in enumerate(records):
        room -= event_bytes(record)
        if room < 0:
            return max(1, number)
    return len(records)


def _document(record: PushRecord) -> dict[str, Any]:
    content = record.record
    return {
        "topic": record.topic,
        "partition": record.key.partition,
        "offset": content.offset,
        "timestamp": content.timestamp,
        "timestampType": "CREATE_TIME",
        "key": _base64(content.key),
        "value": _base64(content.value),
        "headers": [{name: _signed(value or b"")} for name, value in content.headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _base64_bytes(data: bytes | None) -> int:
    return 4 * -(-len(data or b"") // 3)


def _signed(data: bytes) -> list[int]:
    return memoryview(data).cast("b").tolist()
