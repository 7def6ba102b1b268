"""Histograms whose buckets grow by a fourth of a doubling (measure.py). You can add them up and take percentiles."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from penstock_spark.analysis.measure import bucket_start

Histogram: TypeAlias = Counter[int]


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """The value that `percent` per cent of all values do not exceed. None without values.

    It is exact to within a bucket's width (19%).
    """
    total = sum(histogram.values())
    if not total:
        return None
    rank, below = total * percent / 100, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if below + count >= rank:
            start, end = bucket_start(bucket), bucket_start(bucket + 1) if bucket >= 0 else 0.0
            return start + (end - start) * (rank - below) / count
        below += count
    return bucket_start(max(histogram) + 1)
