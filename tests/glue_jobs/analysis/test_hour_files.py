"""Files of hours: two counts of an hour become one, and engines add them up."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.analysis.hourly import HOURS_SCHEMA, hour_name, merge_hour, read_hour
from penstock_spark.analysis.measure import HOUR_MS
from penstock_spark.result_store import FolderResultStore
from tests.glue_jobs.hour_files import row, write_rows

FIRST_MS = 500_000 * HOUR_MS


@pytest.fixture
def results(tmp_path: Path) -> FolderResultStore:
    return FolderResultStore(tmp_path)


def test_merged_hour_keeps_of_each_partition_the_row_with_more_records() -> None:
    def table(*counts: int) -> pa.Table:
        rows = [row("a", partition, FIRST_MS, records=count, partitions=3) for partition, count in enumerate(counts)]
        return merge_hour(pa.Table.from_pylist(rows, schema=HOURS_SCHEMA), None)

    merged = merge_hour(table(10, 30), table(20, 20, 5))
    assert merged.column("records").to_pylist() == [20, 30, 5]
    assert merged.column("heat").to_pylist() == pytest.approx([20 * 3 / 55, 30 * 3 / 55, 5 * 3 / 55])
    assert merge_hour(merged, merged).equals(merged)


def test_file_of_another_release_is_refused(tmp_path: Path, results: FolderResultStore) -> None:
    path = tmp_path / hour_name(FIRST_MS)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"topic": ["a"]}), path)
    with pytest.raises(PenstockError, match="use another folder") as refused:
        read_hour(results, FIRST_MS)
    assert refused.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_hours_add_up_in_an_engine_as_the_page_says(tmp_path: Path, results: FolderResultStore) -> None:
    """The lines of docs/reference/analyze.md."""
    write_rows(
        results,
        [
            row("orders", partition, FIRST_MS + hour * HOUR_MS, records=10 + partition * 90, partitions=2)
            for partition in (0, 1)
            for hour in (0, 1)
        ],
    )
    hours = ds.dataset(tmp_path / "hours", format="parquet").to_table()

    found = hours.group_by(["topic", "partition"]).aggregate([("records", "sum"), ("bytes", "sum"), ("heat", "max")])

    rows = sorted(found.to_pylist(), key=lambda each: each["partition"])
    assert [(each["records_sum"], each["bytes_sum"]) for each in rows] == [(20, 20_000), (200, 200_000)]
    assert rows[1]["heat_max"] == pytest.approx(100 * 2 / 110)
