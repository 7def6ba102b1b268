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

The answer of a function or an endpoint: which records it could not handle. Pure.

```
 {"batchItemFailures": [{"itemIdentifier": {"partition": "orders-0", "offset": 16}}]}
```

This is the partial batch response of Lambda's mappings for Kafka. Middy for Node writes the identifier as one text,
`orders-0-16`; both are read. As with AWS, an answer that cannot be understood, or that names another record than those
of the batch, fails the whole batch: the record that it means may be any of them.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core.errors import shown
from penstock_core.limits import PUSH_ENTRIES_MAX, PUSH_PAYLOAD_BYTES_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch, PushRecord

EVENT_SOURCE = "SelfManagedKafka"
BOOTSTRAP_SERVERS = "penstock"  # readers of the shape want a text
_ENVELOPE_BYTES_MAX = 1_024  # all but the records
_RECORD_BYTES_MAX = 220  # the names of a record's fields, and its numbers
_SIGNED_BYTE_BYTES_MAX = 5  # "-128,"
_FAILURES = "batchItemFailures"


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


def decode_answer(data: bytes, batch: PushBatch, *, is_json: bool) -> Answer:
    """The records of the batch that the answer names.

    All are handled if the answer has no `batchItemFailures`, or a null or an empty one. Text that is not JSON fails the
    batch where `is_json` says that it must be: a function answers JSON, an endpoint may answer anything.
    """
    try:
        document = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return _refused(f"its answer {shown(_text(data))} is not JSON") if is_json else Answered()
    failures = document.get(_FAILURES) if isinstance(document, Mapping) else None
    if failures is None:
        return Answered()
    if not isinstance(failures, list):
        return _refused(f"{_FAILURES}={shown(failures)} is not an array")
    places = {(partition_name(each), each.record.offset): each.place for each in batch.records}
    failed = set()
    for failure in failures:
        place = places.get(_identifier(failure))
        if place is None:
            return _refused(f"{_FAILURES} has {_shown(failure)}, which names no record of the batch")
        failed.add(place)
    error = f"the target names {len(failed)} of {len(places)} records in {_FAILURES}" if failed else ""
    return Answered(failed=frozenset(failed), error=error)


def _identifier(failure: Any) -> tuple[str, int]:
    """Partition and offset that the entry names; a name that no partition has if it names none."""
    identifier = failure.get("itemIdentifier") if isinstance(failure, Mapping) else None
    partition: Any = ""
    offset: Any = -1
    if isinstance(identifier, Mapping):
        partition, offset = identifier.get("partition"), identifier.get("offset")
    elif isinstance(identifier, str):
        partition, _, digits = identifier.rpartition("-")
        offset = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1
    is_named = isinstance(partition, str) and isinstance(offset, int) and not isinstance(offset, bool)
    return (partition, offset) if is_named else ("", -1)


def _shown(failure: Any) -> str:
    """The identifier, if there is one: an error shows values two levels deep only."""
    return shown(failure["itemIdentifier"] if isinstance(failure, Mapping) and "itemIdentifier" in failure else failure)


def _text(data: bytes) -> str:
    return data[:200].decode(errors="replace")


def _refused(why: str) -> Failed:
    return Failed(failure=Failure.REFUSAL, error=why)


def call_batches(sizes: Sequence[int], bytes_max: int) -> list[Sequence[int]]:
    """The entries of each call by their indices, in order, from the entries' sizes in bytes.

    A call has `PUSH_ENTRIES_MAX` entries and `bytes_max` bytes at most. An entry that is larger alone is in no call.
    """
    batches: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if size > bytes_max:
            continue
        if not batches or len(batches[-1]) == PUSH_ENTRIES_MAX or size > room:
            batches.append([])
            room = bytes_max
        batches[-1].append(index)
        room -= size
    return [*batches]
