"""The record that a dead letter is: key, value, timestamp and headers of the original, and headers that tell its way.

The headers that begin with `penstock.dead-letter.` are ours. A record that comes with such headers, because it was a
dead letter before or because somebody forged them, loses them. The count of its burials goes on, so that a circle of
dead-letter topics ends. The header of an expiry goes under such a name, `expires-at`, and stays there: a dead letter
waits for a person, and so does the work of one that is moved back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock_core.ids import GroupName, SubscriptionName, TopicName
from penstock_core.limits import DEAD_LETTER_BURIALS_MAX
from penstock_core.records.codec import Headers, NewRecord, Record, time_of
from penstock_core.records.expiry import EXPIRES_AT_HEADER, has_expiry

HEADER_PREFIX = "penstock.dead-letter."
UNDECODABLE = "undecodable"  # the reason of a batch that cannot be decoded
TOO_LARGE = "too_large"  # the reason of a letter that only names its record
_TOPIC = f"{HEADER_PREFIX}topic"
_EXPIRES_AT = f"{HEADER_PREFIX}expires-at"
_BURIALS = f"{HEADER_PREFIX}burials"  # from the second one on


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


def dead_letter(record: Record, origin: DeadLetterOrigin) -> NewRecord | None:
    """The record for the dead-letter topic. None for one that was buried `DEAD_LETTER_BURIALS_MAX` times: a circle.

    It stays where it is. A redrive begins the count anew.
    """
    burials = burials_of(record.headers)
    if burials >= DEAD_LETTER_BURIALS_MAX:
        return None
    return NewRecord(
        timestamp_ms=time_of(record.timestamp, origin.time_ms),
        key=record.key,
        value=record.value,
        headers=[*own_headers(record.headers), *_headers(origin), *burials_again(burials)],
    )


def redriven(record: Record, now_ms: int) -> NewRecord:
    """The record that a dead letter becomes when it is moved back now."""
    return NewRecord(time_of(record.timestamp, now_ms), record.key, record.value, own_headers(record.headers))


def undecodable_letter(batch: bytes, origin: DeadLetterOrigin) -> NewRecord:
    """The record that stands for a batch which cannot be decoded: its value is the batch as it is stored."""
    return NewRecord(timestamp_ms=origin.time_ms, key=None, value=batch, headers=_headers(origin))


def too_large_letter(origin: DeadLetterOrigin) -> NewRecord:
    """The record that names one which no batch of the dead-letter topic can hold."""
    return NewRecord(
        timestamp_ms=origin.time_ms, key=None, value=None, headers=_headers(replace(origin, reason=TOO_LARGE))
    )


def burials_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The number of times that the record became a dead letter since it was written or redriven."""
    told = {name: value for name, value in headers if name.startswith(HEADER_PREFIX)}
    return max(_count(told.get(_BURIALS)), _TOPIC in told)


def burials_again(burials: int) -> Sequence[tuple[str, bytes]]:
    """The header of the next burial after so many; none for the first one."""
    return [(_BURIALS, str(burials + 1).encode())] if burials else []


def own_headers(headers: Headers) -> Sequence[tuple[str, bytes | None]]:
    """The headers without those of dead letters. That of an expiry has its other name: the record does not expire."""
    told_before = None if has_expiry(headers) else _EXPIRES_AT
    return [
        (_EXPIRES_AT if name == EXPIRES_AT_HEADER else name, value)
        for name, value in headers
        if not name.startswith(HEADER_PREFIX) or name == told_before
    ]


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


def _count(value: bytes | None) -> int:
    return int(value) if value is not None and len(value) < 10 and value.isdigit() else 0
