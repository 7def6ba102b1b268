"""Retention: the refs that a partition may lose, those older than `retention_ms` and those beyond `retention_bytes`.

As in Kafka, whole refs go, oldest first, up to the first one that must stay. So no unexpired record is ever hidden
(G8), and expired ones behind it wait. By time, a ref goes when its newest record is older than `retention_ms`. By size,
a ref goes when the refs behind it alone have `retention_bytes`, so that at least so much is kept.

Two timestamps say nothing of a record's age. A ref without one (-1) counts from when its segment was stored, as Kafka
counts from a file's last change. So does a ref whose timestamp is more than `TIMESTAMP_AHEAD_MS_MAX` ahead of when it
was stored. Kafka 4 refuses such records by default (KIP-937, KIP-1030). A single one, such as microseconds taken for
milliseconds, would keep a log for ever.

Delayed records count from their delivery, whatever their timestamps say.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock_core.ids import Offset, SegmentId, segment_time_ms
from penstock_core.limits import UNLIMITED
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import LocatedRef, Ref, stored_bytes
from penstock_core.log.topic import TopicConfig

TIMESTAMP_AHEAD_MS_MAX = 3_600_000


def indexed_ms(max_timestamp_ms: int, segment_id: SegmentId) -> int:
    """The time that the index keeps for batches of this segment that claim to reach `max_timestamp_ms`.

    It is one above what `written_ms` believes at most. So one false claim does not lead every later search by time to
    its batch, and retention still goes by when the segment was stored.
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
        is_old = config.retention_ms != UNLIMITED and now_ms - written_ms(located.ref) > config.retention_ms
        is_beyond = config.retention_bytes != UNLIMITED and total - stored_up_to >= config.retention_bytes
        if not (is_old or is_beyond):
            break
        start, count = located.end_offset, count + 1
    return Expiry(log_start_offset=start, refs=count)


def written_ms(ref: Ref) -> int:
    """The time from which the newest record of a ref counts.

    It is the time of delivery if the records were delayed. Else it is the timestamp if credible, else when the ref was
    stored.
    """
    if ref.appended_ms is not None:
        return ref.appended_ms
    stored_ms = segment_time_ms(ref.segment_id)
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
