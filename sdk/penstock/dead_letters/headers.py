"""The headers of a dead-letter record: where it was, and why it is there.

| header                                    | value                                      |
|-------------------------------------------|--------------------------------------------|
| `penstock.dead-letter.topic`              | the topic that it was in                   |
| `penstock.dead-letter.partition`          | its partition there                        |
| `penstock.dead-letter.offset`             | its offset there                           |
| `penstock.dead-letter.group`              | the group that could not handle it         |
| `penstock.dead-letter.subscription`       | the subscription whose target could not    |
| `penstock.dead-letter.reason`             | what the application said                  |
| `penstock.dead-letter.deliveries`         | how often it was handed out                |
| `penstock.dead-letter.time_ms`            | when it was moved, milliseconds since 1970 |
| `penstock.dead-letter.burials`            | how often it became one, from 2 on         |
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import InvalidError
from penstock.model import ConsumerRecord, Headers
from penstock_core.errors import ErrorCode
from penstock_core.limits import DEAD_LETTER_BURIALS_MAX
from penstock_core.share.dead_letter import HEADER_PREFIX, burials_again, burials_of, own_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The reason why a record is in a dead-letter topic. A fact that its headers do not tell is empty, or -1.

    `group` or `subscription` names who gave up on it.
    """

    topic: str = ""
    partition: int = -1
    offset: int = -1
    group: str = ""
    subscription: str = ""
    reason: str = ""
    deliveries: int = -1
    time_ms: int = -1


def with_death(headers: Headers, death: Death) -> Headers:
    """The record's own headers, and those that tell of its death in place of older ones."""
    facts = {name: getattr(death, name) for name in Death.__slots__}
    if not death.subscription:
        del facts["subscription"]
    told = tuple((f"{HEADER_PREFIX}{name}", str(value).encode()) for name, value in facts.items())
    return tuple(own_headers(headers)) + told + tuple(burials_again(burials_of(headers)))


def check_no_circle(record: ConsumerRecord, topic: str) -> None:
    """Raises InvalidError for a record whose next dead letter would go in a circle."""
    if record.topic == topic:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"topic={topic!r}: the record is in this topic. Name another one")
    burials = burials_of(record.headers)
    if burials >= DEAD_LETTER_BURIALS_MAX:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"offset {record.offset} of {record.topic}[{record.partition}]: has been a dead letter {burials} times, so "
            "dead-letter topics form a circle",
        )


def death_of(headers: Iterable[tuple[str, bytes | None]]) -> Death:
    """The death that the headers tell. A value that makes no sense counts as missing."""
    told = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }
    numbers = {name: _number(told.get(name, "")) for name in ("partition", "offset", "deliveries", "time_ms")}
    return Death(
        topic=told.get("topic", ""),
        group=told.get("group", ""),
        subscription=told.get("subscription", ""),
        reason=told.get("reason", ""),
        **numbers,
    )


def death(record: ConsumerRecord, group: str, reason: str, deliveries: int, now_ms: int) -> Death:
    """The death of a record that a group could not handle."""
    return Death(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        group=group,
        reason=reason,
        deliveries=deliveries,
        time_ms=now_ms,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else -1
