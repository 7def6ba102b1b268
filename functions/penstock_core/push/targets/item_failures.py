"""The answer of a function or an endpoint: which records it could not handle. Pure.

```
 {"batchItemFailures": [{"itemIdentifier": {"partition": "orders-0", "offset": 16}}]}
```

This is the partial batch response of Lambda's mappings for Kafka. Middy for Node writes the identifier as one text,
`orders-0-16`; both are read. As with AWS, an answer that cannot be understood, or that names another record than those
of the batch, fails the whole batch: the record that it means may be any of them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core.errors import shown
from penstock_core.limits import PUSH_ENTRIES_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.kafka_event import partition_name

_FAILURES = "batchItemFailures"


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
