"""Cleaning a log with `cleanup_policy=compact`: it removes the records that a newer record of their key superseded.

Pure. It works as Kafka's cleaner (https://kafka.apache.org/documentation/#compaction). The cleaner reads the part of
the log that was never cleaned and keeps its keys in memory, up to a bound. Then it compares every record up to that
part's end with these keys. So memory is bounded whatever the number of keys. Keys that do not fit wait for the next
pass.

A tombstone goes once the records that it deletes have been gone for `delete_retention_ms`. So a reader that read one of
them has that long to meet the tombstone.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

from penstock_core.compaction.merging import CleaningState
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.records.codec import Record, decode, empty_batch, keep_records
from penstock_core.records.record_batch import BytesLike, parse_header

_DIGEST_BYTES = 16
_SPAN_MAX = 2**31 - 1  # offsets of one batch: its last offset delta is an i32
_MARKS_PER_RETENTION = 16  # marks are thinned to about so many per `delete_retention_ms`


class LatestOffsets:
    """The offset of the newest record of each key that was added.

    A key of 16 bytes or more is kept as a digest of 128 bits, so the size of keys does not matter. No producer can make
    two digests collide.
    """

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, batch: BytesLike, base_offset: int) -> None:
        """Adds all records of a batch, the first offset of which is `base_offset`. Batches come in order.

        It adds none of a batch that cannot be decoded to its end: readers may pass over the batch, and then need the
        older records of its keys.
        """
        shift = base_offset - parse_header(batch).base_offset
        with suppress(PenstockError):
            self._offsets |= {_name(each.key): each.offset + shift for each in decode(batch) if each.key is not None}

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """True if a record of that key above `offset` was added."""
        return self._offsets.get(_name(key), -1) > offset


class Cleaner:
    """Keeps the records without a key and the newest of each key; removes the others.

    It also removes a newest record that is a tombstone below `horizon`. `removed` counts records.
    """

    def __init__(self, latest: LatestOffsets, horizon: int) -> None:
        self._latest = latest
        self._horizon = horizon
        self.removed = 0
        self.left_whole = 0  # batches that the codec cannot read or write record by record: they lose nothing

    def clean(self, batches: Iterable[tuple[int, BytesLike]]) -> Iterator[tuple[int, BytesLike]]:
        """Yields batches that cover the same offsets, without the removed records.

        A batch that keeps no record becomes an empty one. Empty neighbours are joined.
        """
        start, span = 0, 0  # the empty batch that grows
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


def tombstone_horizon(cleaned: Sequence[CleaningState], now_ms: int, delete_retention_ms: int) -> int:
    """The offset below which tombstones may go, 0 if there is none.

    Since `delete_retention_ms` or longer, the log up to there holds no record that they delete.
    """
    return max((each.end_offset for each in cleaned if now_ms - each.at_ms >= delete_retention_ms), default=0)


def with_cleaned(
    cleaned: Sequence[CleaningState], end_offset: Offset, now_ms: int, delete_retention_ms: int
) -> tuple[CleaningState, ...]:
    """The marks after a pass up to `end_offset`: 20 at most.

    A mark that is left out keeps tombstones longer, never shorter.
    """
    marks = [*cleaned, CleaningState(end_offset=end_offset, at_ms=now_ms)]
    expired = sum(now_ms - each.at_ms >= delete_retention_ms for each in marks)
    marks = marks[max(0, expired - 1) :]
    is_crowded = len(marks) > 2 and (marks[-2].at_ms - marks[-3].at_ms) * _MARKS_PER_RETENTION < delete_retention_ms
    return tuple(marks[:-2] + marks[-1:] if is_crowded else marks)


def _name(key: bytes) -> bytes:
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
