"""Batches of records with an expiry, as producers send them with their flag."""

from collections.abc import Sequence
from typing import Any

from penstock_core.records.codec import Headers, NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce

EPOCH_MS = 1_790_000_000_000  # the clock of these tests begins here: an expiry has 13 digits
NEVER = -1


def expiry(at_ms: int) -> Headers:
    """The header of that time; none for NEVER."""
    return [] if at_ms == NEVER else [(EXPIRES_AT_HEADER, str(at_ms).encode())]


def put_expiring(
    instance: Instance, *times_ms: int, topic: str = "orders", may_expire: bool = True, **record: Any
) -> None:
    """One batch with a record for each time, whose value is its number in the batch."""
    put_records(
        instance,
        [
            NewRecord(EPOCH_MS, record.get("key"), str(number).encode(), [*expiry(time_ms), *record.get("headers", [])])
            for number, time_ms in enumerate(times_ms)
        ],
        topic=topic,
        may_expire=may_expire,
    )


def put_records(
    instance: Instance, records: Sequence[NewRecord], *, topic: str = "orders", may_expire: bool = True
) -> None:
    """One batch of these."""
    data = encode(records, Compression.ZSTD)
    sent = ProduceEntry(topic=topic, partition=0, data=data, may_expire=may_expire)
    produce(instance, [sent], Acks.QUORUM).all_ok()
