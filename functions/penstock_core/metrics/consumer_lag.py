"""The lag of a consumer, which is a group, a share group or a subscription."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from penstock_core.metrics.topic_traffic import OTHER


class ConsumerKind(StrEnum):
    """The kinds of consumers. Each is the name of a metric's dimension, too."""

    GROUP = "group"
    SHARE_GROUP = "share_group"
    SUBSCRIPTION = "subscription"


class Consumer(NamedTuple):
    """A consumer by its kind and name. As text: `<kind>/<name>`."""

    kind: ConsumerKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def parse_consumer(text: str) -> Consumer:
    """The inverse of `str(consumer)`. Raises ValueError."""
    kind, _, name = text.partition("/")
    if not name:
        raise ValueError(f"{text!r} is no consumer: give KIND/NAME, with one of {', '.join(ConsumerKind)}")
    return Consumer(ConsumerKind(kind), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLag:
    """The records that a consumer has not finished, and the age of the oldest of them, 0 if there are none.

    The age is the time since the append.
    """

    consumer: Consumer
    records: int
    oldest_age_ms: int

    @property
    def is_behind(self) -> bool:
        """True if there is a record to handle."""
        return self.records > 0 or self.oldest_age_ms > 0


def together(kind: ConsumerKind, lags: Iterable[ConsumerLag]) -> ConsumerLag:
    """All these consumers as one, under `OTHER`: the sum of their records, and the greatest age."""
    found = [*lags]
    return ConsumerLag(
        consumer=Consumer(kind, OTHER),
        records=sum(each.records for each in found),
        oldest_age_ms=max((each.oldest_age_ms for each in found), default=0),
    )
