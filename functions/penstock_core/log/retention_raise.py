"""How long the items of a topic's small appends are kept, and the note of a raise of its retention (docs/adr/0064).

An expiring item has a TTL: the append, plus the longest retention of the request's topics, plus `EXPIRING_MARGIN_DAYS`.
So a raise of a topic's retention must reach the items that exist. The topic notes it:

| step | operator           | appends                         | task `keep_items`                                  |
|------|--------------------|---------------------------------|----------------------------------------------------|
| 1    | raises, with a note | those under way may have a TTL  |                                                    |
| 2    |                    | take no TTL while the note is there |                                                |
| 3    |                    | those of step 1 are over        | after `RAISE_SETTLED_MS`: keeps the items of refs  |
| 4    |                    | take a TTL again                | removes the note, unless a newer raise has come    |

`RAISE_SETTLED_MS` bounds step 1. An append goes by a topic that was read at most 10 s before its window, which ends
20 s after that read. A staged one is committed within 15 minutes. A write may be sent again for 10 s. Four clocks take
part, each at most 5 minutes off: of the stage, of the commit, of the raise and of the task. That is 36 minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock_core.limits import (
    APPEND_MS_MAX,
    EXPIRING_MARGIN_DAYS,
    EXPIRING_RETENTION_MS_MAX,
    RAISE_SETTLED_MS,
    RETENTION_MS_MAX,
    UNLIMITED,
)
from penstock_core.log.ref import DAY_MS, Ref

if TYPE_CHECKING:
    from penstock_core.log.topic import Topic, TopicConfig

_FOREVER = float("inf")
_EARLY_MS = 3_600_000  # DynamoDB removes by its own clock, and a reader's may be behind


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRaise:
    """The note of raises that the task has not carried out yet: the newest came at `noted_ms`.

    The first of them came at `since_ms`, when the topic kept its records for `retention_ms`. Records from before may
    have items that end by that value.
    """

    noted_ms: int
    since_ms: int
    retention_ms: int

    def is_settled(self, now_ms: int) -> bool:
        """True once no append that went by an older retention can come any more."""
        return now_ms - self.noted_ms >= RAISE_SETTLED_MS


def kept_ms(config: TopicConfig) -> float:
    """The age at which retention removes a record of the topic by time; infinite if it does not."""
    return config.retention_ms if config.is_expiring and config.retention_ms != UNLIMITED else _FOREVER


def kept_days(topic: Topic) -> int:
    """The days from the append to the TTL of the topic's items, 0 if its small appends take no TTL."""
    if topic.retention_raise is not None or kept_ms(topic.config) > EXPIRING_RETENTION_MS_MAX:
        return 0
    return int(_needed_days(topic.config))


def kept_days_of_all(days: Iterable[int]) -> int:
    """The days of a segment whose parts need so many: the most, or 0 if one of them takes no TTL."""
    found = list(days)
    return max(found) if found and all(found) else 0


def with_config(topic: Topic, config: TopicConfig, now_ms: int) -> Topic:
    """The topic with other settings, and with a note if they keep a record longer whose item may have a TTL.

    It also notes since when readers announce themselves (docs/protocol/retention).
    """
    before, after = kept_ms(topic.config), kept_ms(config)
    if after > before and (topic.retention_raise is not None or before <= EXPIRING_RETENTION_MS_MAX):
        topic = with_raise(topic, now_ms)
    if config.is_acknowledged != topic.config.is_acknowledged:
        topic = replace(topic, acknowledged_since_ms=now_ms if config.is_acknowledged else None)
    return replace(topic, config=config)


def with_raise(topic: Topic, now_ms: int) -> Topic:
    """The topic with a note that its items must be looked at: after a raise, and after a restore of the log table.

    A restored table may have an item without the copy that a walk has made since.
    """
    noted = topic.retention_raise
    if noted is None:
        kept = int(min(kept_ms(topic.config), RETENTION_MS_MAX))
        return replace(topic, retention_raise=RetentionRaise(noted_ms=now_ms, since_ms=now_ms, retention_ms=kept))
    return replace(topic, retention_raise=replace(noted, noted_ms=max(now_ms, noted.noted_ms + 1)))


def may_have_expired(ref: Ref, now_ms: int) -> bool:
    """True if DynamoDB may have removed the ref's item by its TTL."""
    return bool(ref.kept_days) and now_ms + _EARLY_MS >= ref.kept_until_ms


def is_kept_longer(ref: Ref, topic: Topic) -> bool:
    """True if the ref's item has a TTL that an append to the topic, as it is now, would not take."""
    return 0 < ref.kept_days < _needed_days(topic.config)


def had_expired(topic: Topic, written_ms: int, now_ms: int) -> bool:
    """True if retention would remove records of that time, or would have done so when it was raised.

    Retention waits for an append that is late (`is_older`), so this does, too.
    """
    noted = topic.retention_raise
    was_old = noted is not None and noted.since_ms - written_ms > noted.retention_ms + APPEND_MS_MAX
    return was_old or now_ms - written_ms > kept_ms(topic.config) + APPEND_MS_MAX


def _needed_days(config: TopicConfig) -> float:
    kept = kept_ms(config)
    return kept if kept == _FOREVER else -(-kept // DAY_MS) + EXPIRING_MARGIN_DAYS
