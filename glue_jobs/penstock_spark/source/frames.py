"""The two ways to a DataFrame: the data source, and a function with the same options for a Spark before 4.

This module imports Spark and Arrow inside its functions, so that a program that only looks for the storage needs
neither.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.plan.options import ReadOptions, parse_read_options
from penstock_spark.storage import find_storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock_spark.archive.typed_columns import Typing


SPARK_PYTHON_DEFAULT = "python3"


def register(spark: "SparkSession") -> None:
    """Make `penstock` a format of this session, as in `spark.read.format("penstock")`.

    Raises UNSUPPORTED_FORMAT on a Spark without Python data sources (before 4.0). `read` works there too.
    """
    if not hasattr(spark, "dataSource"):
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"Spark {spark.version} has no Python data sources: use penstock_spark.read(spark, ...), which has the "
            "same options, or Spark 4",
        )
    from penstock_spark.source.source import PenstockDataSource  # imports pyspark.sql.datasource, which Spark 3.5 lacks

    use_this_python(spark)
    spark.dataSource.register(PenstockDataSource)


def use_this_python(spark: "SparkSession") -> None:
    """Let the workers of a local session run PYSPARK_PYTHON, also if that was set late, or else this Python.

    Spark starts them by the `python3` of PATH, which need not have this package.
    """
    with suppress(AttributeError, NotImplementedError):  # Spark Connect has no context: the server has its own Python
        context = spark.sparkContext
        if (context.master or "").startswith("local") and context.pythonExec == SPARK_PYTHON_DEFAULT:
            context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)


def read(spark: "SparkSession", *, schema: str | None = None, **options: Any) -> "DataFrame":
    """Read a batch without the data source. The columns and the options, given by name, are the same.

    `schema` types the values: it is the option `valueSchema`, such as `avro:order.avsc`. This call fixes the offsets
    and the columns, not the later run of the DataFrame. You may give booleans and numbers as they are, and JSON as a
    dictionary. Raises INVALID_REQUEST for an option, INVALID_CONFIG for a schema or storage, and UNKNOWN_TOPIC.
    """
    from penstock_spark.source.batch import find_typing, plan_batch, schema_of

    use_this_python(spark)
    named = options if schema is None else {"valueSchema": schema, **options}
    given = {name: _text(value) for name, value in named.items()}
    parsed, storage, typing = parse_read_options(given, is_stream=False), find_storage(given), find_typing(given)
    groups = [(pickle.dumps(slices),) for slices in plan_batch(storage, parsed)]
    planned = spark.sparkContext.parallelize(groups, max(1, len(groups)))
    tasks = spark.createDataFrame(planned, "slices BINARY")
    return tasks.mapInArrow(_reader(storage, parsed, typing), schema_of(given, typing))


def _reader(
    storage: Storage, options: ReadOptions, typing: "Typing | None"
) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def read_tasks(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from penstock_spark.source.batch import read_task

        for batch in batches:
            for pickled in batch.column(0).to_pylist():
                # The bytes are safe to load: `read` pickled them on the driver of this very job.
                yield from read_task(storage, options, typing, pickle.loads(pickled))  # noqa: S301

    return read_tasks


def _text(value: Any) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else json.dumps(value) if isinstance(value, dict) else str(value)
    )
