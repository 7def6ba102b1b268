"""Histograms whose buckets grow by a fourth of a doubling (measure.py): they add up, and show percentiles."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock_spark.analysis.measure import bucket_start

Histogram: TypeAlias = Counter[int]


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """The value that so many per cent of all are not above, to within a bucket's width (19%); None if it is empty."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted, below = total * percent / 100, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if below + count >= wanted:
            start, end = bucket_start(bucket), bucket_start(bucket + 1) if bucket >= 0 else 0.0
            return start + (end - start) * (wanted - below) / count
        below += count
    return bucket_start(max(histogram) + 1)


def add_column(into: Mapping[str, Histogram], names: list[str], column: pa.ChunkedArray) -> None:
    """Adds each row of a column of histograms to the one of its name."""
    maps = column.combine_chunks()
    if not len(maps):
        return
    if isinstance(maps, pa.ChunkedArray):  # what an older pyarrow makes of several chunks
        maps = maps.chunk(0)
    offsets = maps.offsets.to_numpy()
    counts = np.where(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    unique, number = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True)
    entries = slice(int(offsets[0]), int(offsets[-1]))
    keys, values = maps.keys.to_numpy()[entries], maps.items.to_numpy()[entries]
    rows = np.repeat(number, counts)
    for index, name in enumerate(unique):
        is_own = rows == index
        for bucket in np.unique(keys[is_own]):
            into[str(name)][int(bucket)] += int(values[is_own][keys[is_own] == bucket].sum())
