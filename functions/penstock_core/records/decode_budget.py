"""Bounds what one call decodes: a few KB of compressed batches may hold gigabytes."""

from collections.abc import Iterator

from penstock_core.limits import BATCH_DECODED_BYTES_MAX
from penstock_core.records.codec import Record, decode
from penstock_core.records.record_batch import BatchHeader, BytesLike, Compression

_KEPT_RECORD_BYTES = 256  # the objects of a record: measured 200 to 250
_KEPT_HEADER_BYTES = 100
_EXPANSION_MAX = 40_000  # of compressed bytes: zstd takes 4 bytes for 128 KiB of one value


class DecodeBudget:
    """The bytes, without compression, that a call may still decode. The batch that spends the last is decoded whole."""

    __slots__ = ("_bytes_left",)

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max

    @property
    def is_spent(self) -> bool:
        """No further batch may be decoded."""
        return self._bytes_left <= 0

    def keep(self, record: Record) -> None:
        """Count the objects of a record that the caller keeps. A batch of 7 MB may have a million records."""
        self._bytes_left -= _KEPT_RECORD_BYTES + _KEPT_HEADER_BYTES * len(record.headers)

    def decode(self, batch: BytesLike, header: BatchHeader) -> Iterator[Record]:
        """The records of one batch. Raises as `decode`. What does not decompress counts as what it may have taken."""
        noted: list[int] = []
        try:
            yield from decode(batch, noted.append)
        finally:
            self._bytes_left -= sum(noted) or _decompressed_bytes_max(header)


def _decompressed_bytes_max(header: BatchHeader) -> int:
    if header.attributes == Compression.NONE:
        return header.length
    return min(BATCH_DECODED_BYTES_MAX, header.length * _EXPANSION_MAX)
