"""The parts of the job `analyze`: hourly figures of records, and the lag of groups.

```
 slices ─measure─> one small row per record ─hourly─> a row per topic, partition and hour ─> hours/hour=…/hour.parquet
 groups ─lag─────> a row per group and partition ──────────────────────────────────────────> lag/run=….parquet
```
docs/reference/analyze.md has the columns.
"""
