"""Retention: the refs that a partition may lose, those older than `retention_ms` and those beyond `retention_bytes`.

As in Kafka, whole refs go, oldest first, up to the first one that must stay. So no unexpired record is ever hidden
(G8), and expired ones behind it wait. By time, a ref goes when its newest record was appended more than `retention_ms`
ago. By size, a ref goes when the refs behind it alone have `retention_bytes`, so that at least so much is kept.

Age counts from the append, and for delayed records from the delivery, whatever timestamps say (docs/adr/0069). A
dead letter, a copy or an import of an old record lives its full time. The append is at most `APPEND_MS_MAX` later than
the time that a ref tells, so retention waits for so long.

With `retention=acknowledged` refs also go that all readers have passed (docs/protocol/retention).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock_core.ids import Offset, SegmentId, segment_time_ms
from penstock_core.limits import ACKNOWLEDGED_MS_MIN, APPEND_MS_MAX, UNLIMITED
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import LocatedRef, Ref, Tier, stored_bytes
from penstock_core.log.topic import TopicConfig

TIMESTAMP_AHEAD_MS_MAX = 3_600_000


def indexed_ms(max_timestamp_ms: int, segment_id: SegmentId) -> int:
    """The time that the index keeps for batches of this segment that claim to reach `max_timestamp_ms`.

    It is one above what `written_ms` believes at most of an old ref. So one false claim, such as microseconds taken for
    milliseconds, does not lead every later search by time to its batch.
    """
    return min(max_timestamp_ms, segment_time_ms(segment_id) + TIMESTAMP_AHEAD_MS_MAX + 1)


def searched_ms(ref: Ref) -> int:
    """The newest time at which a search by time finds a record of the ref; -1 if it has no time.

    A delayed record counts as of its delivery. So a reader that starts at a time meets what was delivered since then.
    """
    if ref.appended_ms is None or not ref.is_delayed:
        return ref.max_timestamp_ms
    return max(ref.max_timestamp_ms, ref.appended_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The log start offset that retention asks for, and the number of refs between the present one and it."""

    log_start_offset: Offset
    refs: int = 0


def expire(
    head: Head, pages: Iterable[Page], config: TopicConfig, now_ms: int, held_bytes: int | None = None
) -> Expiry:
    """The log start that retention asks for. It is never below the present one, nor above the high watermark.

    `pages` begin with the one that covers the log start and reach up to the tail. They are taken one by one, up to the
    first ref that must stay. With fewer pages, the first ones, the answer is right too, only lower. `held_bytes`, if
    given, are the bytes of all these pages and the tail. Then refs are counted, instead of the pages' sums.
    """
    start, count = head.log_start_offset, 0
    total = head.rolled_bytes + stored_bytes(head.tail) if held_bytes is None else held_bytes
    counted = 0
    for located, rolled_up_to in _refs(head, pages):
        counted += located.ref.length
        stored_up_to = rolled_up_to if held_bytes is None else counted
        if located.end_offset <= start:
            continue
        is_old = config.retention_ms != UNLIMITED and is_older(located.ref, now_ms, config.retention_ms)
        is_beyond = config.retention_bytes != UNLIMITED and total - stored_up_to >= config.retention_bytes
        if not (is_old or is_beyond):
            break
        start, count = located.end_offset, count + 1
    return Expiry(log_start_offset=start, refs=count)


def passed(head: Head, pages: Iterable[Page], place: Offset, now_ms: int) -> Expiry:
    """The log start past the refs that lie wholly below `place`, the lowest of a reader, and that are old enough.

    Records stay for `ACKNOWLEDGED_MS_MIN`, so that an operator can take a reader back. Of a promoted mirror, what came
    from the source stays: the source's readers may come after it.
    """
    start, count = head.log_start_offset, 0
    if head.promoted_at is not None and start < head.promoted_at:
        return Expiry(log_start_offset=start)
    for located, _ in _refs(head, pages):
        if located.end_offset <= start:
            continue
        if located.end_offset > place or not is_older(located.ref, now_ms, ACKNOWLEDGED_MS_MIN):
            break
        start, count = located.end_offset, count + 1
    return Expiry(log_start_offset=start, refs=count)


def is_older(ref: Ref, now_ms: int, age_ms: int) -> bool:
    """True if all records of the ref were appended more than `age_ms` ago."""
    return now_ms - written_ms(ref) > age_ms + APPEND_MS_MAX


def written_ms(ref: Ref) -> int:
    """The time from which the newest record of a ref counts: its append or, if it was delayed, its delivery.

    A segment's id tells it, at most `APPEND_MS_MAX` too early, unless the ref was rewritten. A ref that was rewritten
    before refs had version 5 does not tell it. It counts as then: from the timestamp if credible, else from the
    rewriting.
    """
    if ref.appended_ms is not None:
        return ref.appended_ms
    stored_ms = segment_time_ms(ref.segment_id)
    if ref.tier is not Tier.ARCHIVE:
        return stored_ms
    is_believable = 0 <= ref.max_timestamp_ms <= stored_ms + TIMESTAMP_AHEAD_MS_MAX
    return ref.max_timestamp_ms if is_believable else stored_ms


def _refs(head: Head, pages: Iterable[Page]) -> Iterator[tuple[LocatedRef, int]]:
    """Every ref in order, with the bytes that the log ever held up to its end. Ends where the pages have a gap."""
    reached = head.log_start_offset
    for page in pages:
        stored = page.rolled_bytes - stored_bytes(page.refs)
        for located in page.located():
            stored += located.ref.length
            yield located, stored
        reached = page.end_offset
    if reached < head.tail_base:
        return
    stored = head.rolled_bytes
    for located in head.located_tail():
        stored += located.ref.length
        yield located, stored
