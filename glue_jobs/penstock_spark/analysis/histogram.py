"""Histograms whose buckets grow by a fourth of a doubling (measure.py): they add up, and show percentiles."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

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
