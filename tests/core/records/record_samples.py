"""Records and batches that several tests of the codec encode and decode."""

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import strategies as st

from penstock_core.records.codec import NewRecord
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, Compression

every_compression = pytest.mark.parametrize("compression", Compression)
NOW_MS = 1_790_000_000_000
new_records = st.lists(
    st.builds(
        NewRecord,
        timestamp_ms=st.integers(0, 2**62),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200) | st.integers(0, 5).map(lambda n: b"penstock " * 10 * n),
        headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3),
    ),
    min_size=1,
    max_size=30,
)

GOLDEN_RECORDS = [
    NewRecord(NOW_MS, b"key", b"penstock " * 12, [("h", b"1"), ("n", None)]),
    NewRecord(NOW_MS + 5, None, b"penstock " * 12, []),
    NewRecord(NOW_MS + 3, b"key", None, []),
]


def contents(records: Any) -> list[NewRecord]:
    return [NewRecord(record.timestamp, record.key, record.value, list(record.headers)) for record in records]


def sealed(batch: bytes, records: bytes | None = None, **header: int) -> bytes:
    """The batch with other records or header fields, its length and CRC made right again."""
    at = {"attributes": (21, 2), "last_offset_delta": (23, 4), "record_count": (57, 4)}
    data = bytearray(batch[:BATCH_HEADER_BYTES] + (batch[BATCH_HEADER_BYTES:] if records is None else records))
    for name, value in header.items():
        position, size = at[name]
        data[position : position + size] = value.to_bytes(size, "big", signed=True)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)
