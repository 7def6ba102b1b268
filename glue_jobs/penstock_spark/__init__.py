"""Topics in Spark: what the jobs of ``glue_jobs`` share, and what a notebook imports.

`register(spark)` makes `spark.read.format("penstock")` known (Spark 4); `read(spark, subscribe="orders")` answers the
same DataFrame, and works on Spark 3.5 too. docs/spark.md lists the options.
"""

from penstock_spark.frames import read, register

__all__ = ["read", "register"]
