"""The two ways to a DataFrame: the data source, and for a Spark before 4 a function with the same options.

Nothing here imports Spark or Arrow before it is called: what only looks for the storage needs neither.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.options import ReadOptions, parse_read_options
from penstock_spark.storage import find_storage, open_broker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def register(spark: "SparkSession") -> None:
    """Make `penstock` a format of this session: `spark.read.format("penstock")`, and so on.

    Raises UNSUPPORTED_FORMAT on a Spark that has no Python data sources (before 4.0): `read` works there too.
    """
    if not hasattr(spark, "dataSource"):
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"Spark {spark.version} has no Python data sources: use penstock_spark.read(spark, ...), which has the "
            "same options, or Spark 4",
        )
    from penstock_spark.source import PenstockDataSource  # imports what Spark 3 does not have

    spark.dataSource.register(PenstockDataSource)


def read(spark: "SparkSession", **options: Any) -> "DataFrame":
    """A batch read without the data source: the same columns from the same options, by name.

    The offsets are fixed when this is called, not when the DataFrame is run. Booleans, numbers and, for JSON,
    dictionaries may be given as they are.
    """
    from penstock_spark.batch import plan_batch, schema_of

    given = {name: _text(value) for name, value in options.items()}
    parsed, storage = parse_read_options(given, is_stream=False), find_storage(given)
    groups = [(pickle.dumps(slices),) for slices in plan_batch(storage, parsed)]
    planned = spark.sparkContext.parallelize(groups, max(1, len(groups)))
    tasks = spark.createDataFrame(planned, "slices BINARY")
    return tasks.mapInArrow(_reader(storage, parsed), schema_of(given))


def _reader(storage: Storage, options: ReadOptions) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def read_tasks(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from penstock_spark.batch import read_records

        for batch in batches:
            for pickled in batch.column(0).to_pylist():
                # What `read` has pickled, on the driver of this very job.
                yield from read_records(open_broker(storage), options, pickle.loads(pickled))  # noqa: S301

    return read_tasks


def _text(value: Any) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else json.dumps(value) if isinstance(value, dict) else str(value)
    )
