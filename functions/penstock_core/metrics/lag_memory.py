"""The choice of the consumers that have series of their own, and of those that publish a value now.

CloudWatch bills a series for each hour in which it gets a value. So a consumer keeps its series until the hour ends,
and the places of those that fell silent go to others then. Consumers with an alarm always have a series. All others
share one series for each kind.

A consumer that is not behind publishes nothing. It publishes `METRIC_ZEROS` zeros before, if it was behind. A service
that scales by the metric needs them to scale in, and an alarm to see the end.

```
the memory as JSON:  {"hour": 489123, "after": "", "zeros": {"group/billing": 15, "share_group/workers": 3}}
```

The traffic of a topic in some time: records and bytes, in and out, and failures.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import NamedTuple

from penstock_core.limits import METRIC_ZEROS

_HOUR_MS = 3_600_000
OTHER = "(other)"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMemory:
    """The facts that one run leaves to the next.

    `zeros` has the consumers with series of their own, each with the number of zeros that it still publishes once it is
    not behind any more; those that share a series are under `OTHER`. A run that ran out of time stopped behind the
    consumer `after`.
    """

    hour: int = 0
    zeros: Mapping[Consumer, int] = field(default_factory=dict)
    after: str = ""


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


def published(
    memory: LagMemory, lags: Sequence[ConsumerLag], always: Collection[Consumer], own_max: int, now_ms: int
) -> tuple[list[ConsumerLag], LagMemory]:
    """The lags to publish now, and the memory after that, with the same `after`.

    `own_max` bounds the consumers with series of their own, those of `always` among them.
    """
    hour = now_ms // _HOUR_MS
    zeros = {each: left for each, left in memory.zeros.items() if memory.hour == hour or left > 0}
    own = _own(zeros, lags, always, own_max)
    told = [each for each in lags if each.consumer in own]
    for kind in ConsumerKind:
        rest = [each for each in lags if each.consumer.kind is kind and each.consumer not in own]
        if any(each.is_behind for each in rest) or zeros.get(Consumer(kind, OTHER), 0) > 0:
            told.append(together(kind, rest))
    after: dict[Consumer, int] = {each: left for each, left in zeros.items() if each in own or each.name == OTHER}
    lines = []
    for each in told:
        left = after.get(each.consumer, 0)
        if each.is_behind:
            after[each.consumer] = METRIC_ZEROS
        elif left > 0:
            after[each.consumer] = left - 1
        if each.is_behind or left > 0:
            lines.append(each)
    return lines, LagMemory(hour=hour, zeros=after, after=memory.after)


def without_gone(memory: LagMemory, lags: Sequence[ConsumerLag]) -> LagMemory:
    """The memory after a run that has measured all consumers there are: it expects nothing more of one that is gone.

    Its place is free in the next hour.
    """
    present = {each.consumer for each in lags}
    zeros = {each: left if each in present or each.name == OTHER else 0 for each, left in memory.zeros.items()}
    return replace(memory, zeros=zeros)


def encode_memory(memory: LagMemory) -> str:
    """The memory as JSON."""
    zeros = {str(consumer): left for consumer, left in sorted(memory.zeros.items())}
    return json.dumps({"hour": memory.hour, "after": memory.after, "zeros": zeros}, separators=(",", ":"))


def decode_memory(text: str | None) -> LagMemory:
    """The inverse of `encode_memory`. An empty memory for None, and for what no release wrote."""
    try:
        found = json.loads(text or "{}")
        zeros = {parse_consumer(name): int(left) for name, left in found.get("zeros", {}).items()}
        return LagMemory(hour=int(found.get("hour", 0)), zeros=zeros, after=str(found.get("after", "")))
    except (ValueError, TypeError, AttributeError):
        return LagMemory()


def _own(
    zeros: Mapping[Consumer, int], lags: Sequence[ConsumerLag], always: Collection[Consumer], own_max: int
) -> set[Consumer]:
    """The consumers with series: first by `always`, then by the memory, then by age, while they fit."""
    own = {*always}
    held = sorted(each for each in zeros if each.name != OTHER)
    behind = sorted((each for each in lags if each.is_behind), key=lambda each: (-each.oldest_age_ms, each.consumer))
    for consumer in (*held, *(each.consumer for each in behind)):
        if len(own) >= own_max:
            break
        own.add(consumer)
    return own


def parse_consumer(text: str) -> Consumer:
    """The inverse of `str(consumer)`. Raises ValueError."""
    kind, _, name = text.partition("/")
    if not name:
        raise ValueError(f"{text!r} is no consumer: give KIND/NAME, with one of {', '.join(ConsumerKind)}")
    return Consumer(ConsumerKind(kind), name)


def together(kind: ConsumerKind, lags: Iterable[ConsumerLag]) -> ConsumerLag:
    """All these consumers as one, under `OTHER`: the sum of their records, and the greatest age."""
    found = [*lags]
    return ConsumerLag(
        consumer=Consumer(kind, OTHER),
        records=sum(each.records for each in found),
        oldest_age_ms=max((each.oldest_age_ms for each in found), default=0),
    )


"""Stands for all topics or consumers without a series of their own. No name has a parenthesis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Counts of one topic. Bytes are those of batches as they are stored, and each copy to a reader counts.

    `requests_failed` counts the answers to a partition with an error, and `requests_throttled` those of them that told
    the caller to come again later.
    """

    records_received: int = 0
    bytes_received: int = 0
    records_sent: int = 0
    bytes_sent: int = 0
    requests_failed: int = 0
    requests_throttled: int = 0

    def plus(self, other: "TopicTraffic") -> "TopicTraffic":
        """The sum of both."""
        return TopicTraffic(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in _COUNTS})

    def counts(self) -> dict[str, int]:
        """The counts that are not 0, by name."""
        return {each.name: value for each in _COUNTS if (value := getattr(self, each.name))}


_COUNTS = fields(TopicTraffic)
NO_TRAFFIC = TopicTraffic()


def by_series(traffic: Mapping[str, TopicTraffic], own: Collection[str]) -> dict[str, TopicTraffic]:
    """The traffic of each topic of `own` under its name, and the sum of all other topics under `OTHER`."""
    found: dict[str, TopicTraffic] = {}
    for topic, counts in traffic.items():
        name = topic if topic in own else OTHER
        found[name] = found.get(name, NO_TRAFFIC).plus(counts)
    return found
