"""The data source as `penstock-metered`, which writes down the cost of its calls on the driver and in tasks."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock_spark.sink.arrow_sink import ArrowStreamWriter
from penstock_spark.source.limited_streaming import LimitedStreamReader
from penstock_spark.source.source import PenstockDataSource
from penstock_spark.storage import STORAGE_CALLS

FOLDER = "PENSTOCK_BENCH_CALLS"  # in the environment: where each process writes


class MeteredDataSource(PenstockDataSource):
    """Writes a line of JSON for each call into a file of its process: name, milliseconds and storage calls."""

    @classmethod
    def name(cls) -> str:
        return "penstock-metered"

    def streamReader(self, schema: StructType) -> "MeteredReader":  # noqa: N802  # Spark's names
        return MeteredReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "MeteredWriter":  # noqa: ARG002, N802
        return MeteredWriter(self.options, schema)


class MeteredReader(LimitedStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # Spark's, since 4.2
        with _written("latestOffset") as line:
            found = super().latestOffset(start, limit)
            if found == start:
                line["call"] = "idle look"
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with _written("partitions"):
            return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with _written("read"):
            yield from super().read(partition)


class MeteredWriter(ArrowStreamWriter):
    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        with _written("commit"):
            super().commit(messages, batchId)


@contextmanager
def _written(call: str) -> Iterator[dict[str, Any]]:
    before, began_s = STORAGE_CALLS.snapshot(), time.perf_counter()
    line: dict[str, Any] = {"call": call}
    yield line
    line |= {"ms": 1_000 * (time.perf_counter() - began_s), "calls": STORAGE_CALLS.since(before)}
    with (Path(os.environ[FOLDER]) / str(os.getpid())).open("a") as file:
        file.write(json.dumps(line) + "\n")
