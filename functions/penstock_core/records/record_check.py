"""Checks the records of produced batches by decoding them: all that they claim, or their timestamps alone.

Bounds what one call decodes: a few KB of compressed batches may hold gigabytes.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, VALIDATED_BYTES_MAX
from penstock_core.records.codec import Record, UntimedRecord, decode
from penstock_core.records.expiry import has_expiry
from penstock_core.records.record_batch import BatchHeader, BytesLike, Compression, walk

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


def check_records(
    data: BytesLike, budget: DecodeBudget, note: Callable[[Record], object] = bool, *, needs_keys: bool = False
) -> None:
    """Check that batches which `validate` has passed decode, and hold what their headers claim.

    Tells `note` each record; by default nothing takes it. With `needs_keys` each record has a key.

    Raises CORRUPT_BATCH, INVALID_TIMESTAMP, INVALID_RECORD or UNSUPPORTED_FORMAT, with the number of the batch as
    `facts["batch"]`, and REQUEST_TOO_LARGE once the budget is spent.
    """
    view = memoryview(data)
    for index, (position, header) in enumerate(walk(data)):
        if budget.is_spent:
            raise PenstockError(
                ErrorCode.REQUEST_TOO_LARGE,
                f"the batches before batch {index} take {VALIDATED_BYTES_MAX} bytes or more without compression, and "
                "the topic has validate_records: send fewer or smaller batches at once",
                limit=VALIDATED_BYTES_MAX,
                batch=index,
            )
        try:
            _check_batch(view[position : position + header.length], header, budget, note, needs_keys=needs_keys)
        except PenstockError as error:
            cause = error.__cause__ if isinstance(error.__cause__, PenstockError) else error
            raise PenstockError(
                error.code,
                f"batch {index} at byte {position}: {cause.message}; the topic has validate_records, so build it again",
                batch=index,
            ) from error


class SeenRecords(NamedTuple):
    """Facts of records that were decoded within a budget.

    `have_keys`: each that was seen has a key. `may_expire`: one has the header of an expiry, or some were not seen.
    """

    have_keys: bool
    may_expire: bool


def check_times(data: BytesLike, budget: DecodeBudget) -> SeenRecords:
    """Check that batches which `validate` has passed have no record with a timestamp below -1.

    Raises INVALID_TIMESTAMP. It passes over batches that do not decode, as readers do, and ends where the budget does.
    """
    view = memoryview(data)
    have_keys, may_expire = True, False
    for position, header in walk(data):
        if budget.is_spent:
            return SeenRecords(have_keys, may_expire=True)
        untimed: UntimedRecord | None = None
        with suppress(PenstockError):
            for record in budget.decode(view[position : position + header.length], header):
                untimed = record if isinstance(record, UntimedRecord) else untimed
                have_keys &= record.key is not None
                may_expire = may_expire or (bool(record.headers) and has_expiry(record.headers))
        if untimed is not None:
            raise _before_1970(untimed)
    return SeenRecords(have_keys, may_expire)


def keyless_records(data: BytesLike, budget: DecodeBudget) -> Iterator[int]:
    """The places of the records without a key, counted from the first record. Passes over and ends as `check_times`."""
    view = memoryview(data)
    place = 0
    for position, header in walk(data):
        if budget.is_spent:
            return
        with suppress(PenstockError):
            for index, record in enumerate(budget.decode(view[position : position + header.length], header), place):
                if record.key is None:
                    yield index
        place += header.record_count


def _check_batch(
    batch: BytesLike, header: BatchHeader, budget: DecodeBudget, note: Callable[[Record], object], *, needs_keys: bool
) -> None:
    count, newest_ms = 0, -1
    for record in budget.decode(batch, header):
        if record.offset != header.base_offset + count:
            raise _mismatch(f"record {count} has the offset delta {record.offset - header.base_offset}")
        if isinstance(record, UntimedRecord):
            raise _before_1970(record)
        if needs_keys and record.key is None:
            raise PenstockError(ErrorCode.INVALID_RECORD, f"record {count} has no key, and the topic is compacted")
        note(record)
        count += 1
        newest_ms = max(newest_ms, record.timestamp)
    if count != header.record_count:
        raise _mismatch(f"it says it has {header.record_count} records and has {count}")
    if newest_ms != header.max_timestamp_ms:
        raise _mismatch(f"it says its max timestamp is {header.max_timestamp_ms}, and it is {newest_ms}")


def _before_1970(record: UntimedRecord) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_TIMESTAMP,
        f"a record has the timestamp {record.stored_ms}: send milliseconds since 1970, or -1 for none",
    )


def _mismatch(what: str) -> PenstockError:
    return PenstockError(ErrorCode.CORRUPT_BATCH, what)
