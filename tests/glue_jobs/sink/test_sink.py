"""The message that a task of a stream write hands to the driver: the same for rows and for Arrow."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from penstock_spark.sink.writing import rows_of

pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"key": "a", "value": b"1", "headers": [{"key": "h", "value": b"x"}], "topic": "orders", "partition": 0},
    {"key": None, "value": None, "headers": None, "topic": "bills", "partition": None},
] * 3_000


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    from penstock_spark.sink.sink import PenstockStreamWriter

    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": "5f0c"}.get)
    monkeypatch.setattr("penstock_spark.sink.sink.TaskContext", SimpleNamespace(get=lambda: context))
    return PenstockStreamWriter({}, SCHEMA)


def test_rows_and_arrow_are_handed_over_as_the_same_records(writer: Any) -> None:
    from penstock_spark.sink.sink import CollectedRows

    spark_rows = [
        Row(**{**each, "headers": each["headers"] and [Row(**header) for header in each["headers"]]}) for each in ROWS
    ]
    arrow = pa.RecordBatch.from_pylist(ROWS, schema=to_arrow_schema(SCHEMA))

    by_rows, by_arrow = writer.write(iter(spark_rows)), writer.write_arrow(iter([arrow]))

    found = []
    for each in (by_rows, by_arrow):
        assert isinstance(each, CollectedRows)
        assert each.query_id == "5f0c"
        found.append(list(rows_of(pa.ipc.open_stream(each.stream), None)))
    assert found[0] == found[1]
    assert len(found[0]) == len(ROWS)


def test_a_task_without_rows_hands_nothing_over(writer: Any) -> None:
    from penstock_spark.sink.sink import CollectedRows

    assert writer.write(iter([])) == CollectedRows("5f0c", 0, b"")
