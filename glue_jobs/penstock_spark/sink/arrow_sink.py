"""Stream writes on Spark 4.1 and later, where Spark passes the rows as Arrow."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock_spark.sink.sink import PenstockStreamWriter


class ArrowStreamWriter(PenstockStreamWriter, DataSourceStreamArrowWriter):
    """A `PenstockStreamWriter` that makes no Python object for a row."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Hand a task's rows to the driver, or send them."""
        return self.write_arrow(iterator)
