"""Cleaning a log with `cleanup_policy=compact`: which records a newer one of their key has made superfluous.

Pure. As Kafka's cleaner (https://kafka.apache.org/documentation/#compaction): the keys of the part that was never
cleaned are kept in memory, as many as may be, and everything up to that part's end is held against them. So memory is
bounded whatever the number of keys; what did not fit is cleaned by the next pass. A tombstone goes when what it deletes
has been gone for `delete_retention_ms`: who had read that before it went has so long to meet the tombstone.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

from penstock_core.compaction import Cleaned
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.record_batch import BytesLike, parse_header
from penstock_core.records import Record, decode, empty_batch, keep_records

_DIGEST_BYTES = 16
_SPAN_MAX = 2**31 - 1  # of one batch
_MARKS_PER_RETENTION = 16


class LatestOffsets:
    """The offset of the newest record of each key that was shown. Keys of 16 bytes or more are kept as digests of 128
    bits, which nobody can make collide, so the size of keys does not matter."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, batch: BytesLike, base_offset: int) -> None:
        """Shows all records of a batch; batches come in order."""
        shift = base_offset - parse_header(batch).base_offset
        with suppress(PenstockError):  # of a batch that its producer built wrongly; readers meet it as it is
            for record in decode(batch):
                if record.key is not None:
                    self._offsets[_name(record.key)] = record.offset + shift

    def is_superseded(self, key: bytes, offset: int) -> bool:
        return self._offsets.get(_name(key), -1) > offset


class Cleaner:
    """Which records stay: those without a key, and the newest of each key, unless it is a tombstone below `horizon`."""

    def __init__(self, latest: LatestOffsets, horizon: int) -> None:
        self._latest = latest
        self._horizon = horizon
        self.removed = 0
        self.left_whole = 0  # batches that cannot be read or written record by record: nothing is removed from them

    def clean(self, batches: Iterable[tuple[int, BytesLike]]) -> Iterator[tuple[int, BytesLike]]:
        """The same offsets in batches without what is superfluous. A batch that keeps nothing stays as an empty one,
        neighbours joined."""
        start, span = 0, 0  # of the empty batch that is growing
        for offset, batch in batches:
            header = parse_header(batch)
            kept = self._kept(batch, offset - header.base_offset) if header.record_count else None
            if span and (kept is not None or span + header.offset_span > _SPAN_MAX):
                yield start, empty_batch(span)
                span = 0
            if kept is not None:
                yield offset, kept
            else:
                start, span = start if span else offset, span + header.offset_span
        if span:
            yield start, empty_batch(span)

    def _kept(self, batch: BytesLike, shift: int) -> BytesLike | None:
        def is_kept(record: Record) -> bool:
            offset = record.offset + shift
            if record.key is None:
                return True
            is_expired = record.value is None and offset < self._horizon
            if is_expired or self._latest.is_superseded(record.key, offset):
                self.removed += 1
                return False
            return True

        removed = self.removed
        try:
            return keep_records(batch, is_kept)
        except PenstockError:
            self.removed = removed
            self.left_whole += 1
            return batch


def tombstone_horizon(cleaned: Sequence[Cleaned], now_ms: int, delete_retention_ms: int) -> int:
    """Tombstones below it have been alone for long enough."""
    return max((each.end_offset for each in cleaned if now_ms - each.at_ms >= delete_retention_ms), default=0)


def with_cleaned(
    cleaned: Sequence[Cleaned], end_offset: Offset, now_ms: int, delete_retention_ms: int
) -> tuple[Cleaned, ...]:
    """The marks after a pass up to `end_offset`: 20 at most. One left out makes tombstones stay longer, never less."""
    marks = [*cleaned, Cleaned(end_offset=end_offset, at_ms=now_ms)]
    expired = sum(now_ms - each.at_ms >= delete_retention_ms for each in marks)
    marks = marks[max(0, expired - 1) :]
    is_crowded = len(marks) > 2 and (marks[-2].at_ms - marks[-3].at_ms) * _MARKS_PER_RETENTION < delete_retention_ms
    return tuple(marks[:-2] + marks[-1:] if is_crowded else marks)


def _name(key: bytes) -> bytes:
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
