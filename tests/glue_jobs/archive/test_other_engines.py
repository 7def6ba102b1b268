"""An archived table in an engine that knows nothing of Penstock and reads the table's folders alone."""

from pathlib import Path

import duckdb

from penstock_spark.archive.archive_table import TableKind
from tests.glue_jobs.archived_topic import START_MS, ArchivedTopic

COLUMNS = 'partition, "offset", key, value, epoch_ms("timestamp"), headers'


def test_duckdb_finds_each_offset_once_with_all_that_was_sent(tmp_path: Path) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.PARQUET)
    archived.fill()
    archived.archive()
    table = f"read_parquet('{tmp_path}/lake/web_orders/data/**/*.parquet', hive_partitioning = true)"

    with duckdb.connect() as engine:
        found = engine.sql(f"SELECT {COLUMNS} FROM {table} ORDER BY ALL").fetchall()
        days = engine.sql(f"SELECT day, count(*) FROM {table} WHERE day > '2026-09-21' GROUP BY day ORDER BY day")

        assert [(*row[:5], tuple((each["key"], each["value"]) for each in row[5] or ())) for row in found] == [
            (*row[:5], tuple(row[5])) for row in archived.expected()
        ]
        assert START_MS == 1_789_948_800_000, "is 2026-09-21"
        assert [str(day) for day, _ in days.fetchall()] == ["2026-09-22", "2026-09-23"]
