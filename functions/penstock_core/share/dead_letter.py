"""The record that a dead letter is: key, value, timestamp and headers of the original, and headers that tell its way.

The headers that begin with `penstock.dead-letter.` are ours. A record that comes with such headers, because it was a
dead letter before or because somebody forged them, loses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.ids import GroupName, SubscriptionName, TopicName
from penstock_core.records.codec import Headers, NewRecord, Record

HEADER_PREFIX = "penstock.dead-letter."
UNDECODABLE = "undecodable"  # the reason of a batch that cannot be decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOrigin:
    """Where a dead letter comes from, and why. `deliveries` counts how often it was handed out.

    `group` or `subscription` names who gave up on it.
    """

    topic: TopicName
    partition: int
    offset: int
    group: GroupName | None = None
    subscription: SubscriptionName | None = None
    reason: str
    deliveries: int
    time_ms: int


def dead_letter(record: Record, origin: DeadLetterOrigin) -> NewRecord:
    """The record for the dead-letter topic."""
    return NewRecord(
        timestamp_ms=max(record.timestamp, 0),
        key=record.key,
        value=record.value,
        headers=[*own_headers(record.headers), *_headers(origin)],
    )


def undecodable_letter(batch: bytes, origin: DeadLetterOrigin) -> NewRecord:
    """The record that stands for a batch which cannot be decoded: its value is the batch as it is stored."""
    return NewRecord(timestamp_ms=origin.time_ms, key=None, value=batch, headers=_headers(origin))


def own_headers(headers: Headers) -> Sequence[tuple[str, bytes | None]]:
    """The headers without those of dead letters."""
    return [(name, value) for name, value in headers if not name.startswith(HEADER_PREFIX)]


def _headers(origin: DeadLetterOrigin) -> Sequence[tuple[str, bytes | None]]:
    facts = {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "group": origin.group,
        "subscription": origin.subscription,
        "reason": origin.reason,
        "deliveries": origin.deliveries,
        "time_ms": origin.time_ms,
    }
    return [(f"{HEADER_PREFIX}{name}", str(value).encode()) for name, value in facts.items() if value is not None]
