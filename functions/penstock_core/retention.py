"""Which refs a partition may let go of: those older than `retention_ms`, and those beyond `retention_bytes`.

As Kafka does, whole refs go, oldest first, up to the first one that must stay: nothing unexpired is ever hidden (G8),
and what is expired behind it waits. By time a ref goes when its newest record is older than `retention_ms`; by size it
goes when those behind it alone have `retention_bytes`, so that at least so much is kept.

Two timestamps say nothing of a record's age. A ref without one (-1) counts from when its segment was stored, as Kafka
counts from a file's last change. One more than `TIMESTAMP_AHEAD_MS_MAX` ahead of when it was stored does too: Kafka 4
refuses such records by default (KIP-937, KIP-1030), because a single one, such as of microseconds taken for
milliseconds, would keep a log for ever.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock_core.ids import Offset, segment_time_ms
from penstock_core.index import Head, Page
from penstock_core.limits import UNLIMITED
from penstock_core.ref import LocatedRef, Ref, stored_bytes
from penstock_core.topic import TopicConfig

TIMESTAMP_AHEAD_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The log start offset that retention asks for, and how many refs lie between the present one and it."""

    log_start_offset: Offset
    refs: int = 0


def expire(
    head: Head, pages: Iterable[Page], config: TopicConfig, now_ms: int, held_bytes: int | None = None
) -> Expiry:
    """Never asks for less than the present log start, nor for more than the high watermark.

    `pages` begin with the one that covers the log start and reach up to the tail; they are taken one by one, and no
    further than to what must stay. The answer to fewer pages, the first ones, is right too, only lower. `held_bytes`,
    if given, are those of all these pages and the tail: then refs are counted, not what pages say of all before.
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
    """When the newest record of a ref was written, by its timestamp where that can be believed."""
    stored_ms = segment_time_ms(ref.segment_id)
    is_believable = 0 <= ref.max_timestamp_ms <= stored_ms + TIMESTAMP_AHEAD_MS_MAX
    return ref.max_timestamp_ms if is_believable else stored_ms


def _refs(head: Head, pages: Iterable[Page]) -> Iterator[tuple[LocatedRef, int]]:
    """Every ref in order, with the bytes that the log ever held up to its end; ends where the pages do not reach on."""
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
