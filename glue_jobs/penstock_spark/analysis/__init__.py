"""The parts of the job `analyze`: hourly figures of records, the lag of groups, and a report of both.

```
 slices ─measure─> one small row per record ─hourly─> a row per topic, partition and hour ─> hours/hour=…/hour.parquet
 groups ─lag─────> a row per group and partition ──────────────────────────────────────────> lag/run=….parquet
                                                    stored files ─summary─> ─plots, report─> report.html
```
docs/reference/analyze.md has the columns.
"""
