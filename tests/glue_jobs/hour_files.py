"""Hand-made files of hours, in the form that `analyze` writes."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock_spark.analysis.hourly import HOURS_SCHEMA, hour_name, merge_hour
from penstock_spark.analysis.measure import buckets
from penstock_spark.result_store import ResultStore


def row(
    topic: str,
    partition: int,
    hour_ms: int,
    *,
    records: int,
    size: int = 1000,
    partitions: int = 1,
    keys: Sequence[tuple[bytes, int]] = (),
    null_keys: int = 0,
    lag_ms: int = 40,
) -> dict[str, Any]:
    """A partition's hour. All its records have the same size and lag, except one of twice the size."""
    [bucket], [lag_bucket] = (buckets(np.array([each])) for each in (size, lag_ms))
    return {
        "topic": topic,
        "partition": partition,
        "hour": hour_ms,
        "records": records,
        "bytes": records * size,
        "key_bytes": 8 * (records - null_keys),
        "value_bytes": records * size - 8 * (records - null_keys),
        "null_keys": null_keys,
        "tombstones": 0,
        "first_offset": 0,
        "last_offset": records - 1,
        **{f"size_p{each}": size for each in (50, 95, 99)},
        "size_max": 2 * size,
        "size_histogram": sorted({int(bucket): records - 1, int(bucket) + 4: 1}.items()),
        "append_lag_records": records,
        **{f"append_lag_ms_p{each}": lag_ms for each in (50, 95, 99)},
        "append_lag_ms_max": 10 * lag_ms,
        "append_lag_histogram": sorted({int(lag_bucket): records - 1, int(lag_bucket) + 12: 1}.items()),
        "keys": len(keys),
        "top_keys": [
            {"key": key[:64], "key_bytes": len(key), "records": count, "bytes": count * size} for key, count in keys
        ],
        "topic_partitions": partitions,
        "top_key_share": keys[0][1] / (records - null_keys) if keys else None,
        "heat": None,
    }


def write_rows(results: ResultStore, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write each hour's rows as its file."""
    by_hour: dict[int, list[Mapping[str, Any]]] = {}
    for each in rows:
        by_hour.setdefault(each["hour"], []).append(each)
    for hour_ms, found in by_hour.items():
        sink = io.BytesIO()
        pq.write_table(merge_hour(pa.Table.from_pylist(list(found), schema=HOURS_SCHEMA), None), sink)
        results.put(hour_name(hour_ms), sink.getvalue())
