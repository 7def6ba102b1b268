"""The header that counts how often a record was copied from topic to topic, so that a circle of copies ends. Pure."""

from penstock_core.limits import PUSH_HOPS_MAX
from penstock_core.records.codec import NewRecord, Record, time_of

HOPS_HEADER = "penstock-hops"


def copied(record: Record, now_ms: int) -> NewRecord | None:
    """The record's next copy, made now, None for one that was copied `PUSH_HOPS_MAX` times.

    Key, value, timestamp and all other headers are those of the record. A dead letter keeps the count, too. A count
    that is no number is one that a producer has made up: it counts as 0.
    """
    hops = max((_count(value) for name, value in record.headers if name == HOPS_HEADER), default=0)
    if hops >= PUSH_HOPS_MAX:
        return None
    headers = [(name, value) for name, value in record.headers if name != HOPS_HEADER]
    return NewRecord(
        timestamp_ms=time_of(record.timestamp, now_ms),
        key=record.key,
        value=record.value,
        headers=[*headers, (HOPS_HEADER, str(hops + 1).encode())],
    )


def _count(value: bytes | None) -> int:
    return int(value) if value is not None and len(value) < 10 and value.isdigit() else 0
