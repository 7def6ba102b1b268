"""The SDK's decoder against Spark's: on the same bytes both read the same records and refuse the same batches."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock_core.errors import PenstockError
from penstock_core.records.codec import Record
from penstock_core.records.codec import decode as decode_by_sdk
from penstock_core.records.record_batch import check_stored, stamp, walk
from penstock_spark.decode.by_codec import spark_times
from penstock_spark.decode.decoding import StoredBatches, kafka_schema
from penstock_spark.decode.decoding import decode as decode_by_spark
from tests.fuzz.broken_batches import BatchFuzzer

BASE_OFFSET = 1_000
SCHEMA = kafka_schema(with_headers=True)
_PARTITION = "partition 0 of topic 't': "

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The records that a decoder read, and the errors of the batches that it skipped."""

    rows: list[Row]
    errors: list[str]


@dataclass(slots=True, kw_only=True)
class DecoderReport:
    """What a run has found. `differing` holds the bytes of the batches that the decoders read differently."""

    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    differing: list[bytes]


def compare_decoders(count: int, seed: int) -> DecoderReport:
    """Decode so many inputs by both."""
    fuzzer, report = BatchFuzzer(seed), DecoderReport(differing=[])
    for _ in range(count):
        data = fuzzer.batches()
        started = time.perf_counter()
        by_sdk, by_spark = sdk(data), spark(data)
        report.slowest_s = max(report.slowest_s, time.perf_counter() - started)
        report.inputs += 1
        report.refused += bool(by_sdk.errors)
        if by_sdk != by_spark:
            report.differing.append(data)
    return report


def sdk(data: bytes) -> Decoded:
    """As a consumer with on_undecodable="skip"."""
    stamped = bytearray(data)
    check_stored(data, stamp(stamped, BASE_OFFSET) - BASE_OFFSET)
    rows: list[Row] = []
    errors: list[str] = []
    for position, header in walk(stamped):
        try:
            batch = bytes(stamped[position : position + header.length])
            rows.extend(_row(record, header.is_log_append_time) for record in decode_by_sdk(batch))
        except PenstockError as error:
            errors.append(f"{error} {error.facts}")
    return Decoded(rows=rows, errors=errors)


def spark(data: bytes) -> Decoded:
    """As a read with onUndecodable=skip."""
    end = BASE_OFFSET + sum(header.offset_span for _, header in walk(data))
    stored = StoredBatches(
        topic="t", partition=0, data=data, base_offset=BASE_OFFSET, start_offset=BASE_OFFSET, end_offset=end
    )
    errors: list[str] = []
    rows: list[Row] = []

    def note(error: PenstockError) -> None:
        facts = {name: error.facts[name] for name in ("base_offset", "next_offset")}
        errors.append(f"{str(error).replace(_PARTITION, '')} {facts}")

    for batch in decode_by_spark([stored], SCHEMA, note):
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, time_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            headers = None if row["headers"] is None else [(each["key"], each["value"]) for each in row["headers"]]
            rows.append((row["offset"], time_us, row["timestampType"], row["key"], row["value"], headers))
    return Decoded(rows=rows, errors=errors)


def _row(record: Record, is_log_append_time: bool) -> Row:
    [time_us] = spark_times(np.array([record.timestamp], np.int64)).cast(pa.int64()).to_pylist()
    headers = [*record.headers] or None
    return record.offset, time_us, int(is_log_append_time), record.key, record.value, headers
