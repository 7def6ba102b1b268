"""Decodes one batch to Arrow by the record codec, as the SDK does: slowly, and with the codec's errors.

Spark's fast decoder leaves to it what no usual producer writes. The codec is the one judge of such a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_core.records.codec import Record, decode
from penstock_core.records.record_batch import parse_header, stamp
from penstock_core.records.undecodable import UndecodableHandler, in_partition

ARROW_ROWS_MAX = 4096  # below a thousand rows Spark pays for the batch, above ten thousand for memory
ARROW_BYTES_MAX = 16 * MIB  # soft: a batch holds at least one record of any size

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MS_MAX = 2**63 // 1_000  # Spark's last timestamp, in the year 294247


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """One stored batch, its true base offset, and the range of offsets that the read asks for."""

    topic: str
    partition: int
    data: bytes
    base_offset: int
    start_offset: int
    end_offset: int


def decode_by_codec(
    batch: BatchRange, schema: pa.Schema, on_undecodable: UndecodableHandler
) -> Iterator[pa.RecordBatch]:
    """The records of the range, up to the first that cannot be read. Then `on_undecodable` gets the error."""
    data = bytearray(batch.data)
    stamp(data, batch.base_offset)
    timestamp_type = int(parse_header(data).is_log_append_time)
    errors: list[PenstockError] = []
    records = _until_error(data, errors)
    wanted = (each for each in records if batch.start_offset <= each.offset < batch.end_offset)
    for first in wanted:
        rows = _some(first, wanted)
        yield _to_arrow(rows, batch, timestamp_type, schema)
    for error in errors:
        on_undecodable(in_partition(error, batch.topic, batch.partition))


def spark_times(timestamps_ms: npt.NDArray[np.int64]) -> pa.Array:
    """Milliseconds as Spark's timestamps, which end earlier than Kafka's."""
    return pa.array(np.clip(timestamps_ms, -_MS_MAX, _MS_MAX) * 1_000).cast(_TIMESTAMP)


def _until_error(data: bytearray, errors: list[PenstockError]) -> Iterator[Record]:
    try:
        yield from decode(data)
    except PenstockError as error:
        errors.append(error)


def _some(first: Record, others: Iterator[Record]) -> list[Record]:
    rows: list[Record] = []
    size = 0
    for record in chain([first], islice(others, ARROW_ROWS_MAX - 1)):
        rows.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if size >= ARROW_BYTES_MAX:
            break
    return rows


def _to_arrow(rows: list[Record], batch: BatchRange, timestamp_type: int, schema: pa.Schema) -> pa.RecordBatch:
    count = len(rows)
    columns = [
        pa.array([each.key for each in rows], pa.binary()),
        pa.array([each.value for each in rows], pa.binary()),
        pa.repeat(pa.scalar(batch.topic, pa.string()), count),
        pa.repeat(pa.scalar(batch.partition, pa.int32()), count),
        pa.array([each.offset for each in rows], pa.int64()),
        spark_times(np.array([each.timestamp for each in rows], np.int64)),
        pa.repeat(pa.scalar(timestamp_type, pa.int32()), count),
    ]
    if len(schema) > len(columns):
        headers = [[{"key": name, "value": value} for name, value in each.headers] or None for each in rows]
        columns.append(pa.array(headers, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
