"""Writing streams on Spark 4.1 and later, which gives them as Arrow."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock_spark.sink import PenstockStreamWriter


class ArrowStreamWriter(PenstockStreamWriter, DataSourceStreamArrowWriter):
    """The same, without a Python object for each row."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_arrow(iterator)
