"""Topics in Spark: the modules that the jobs of ``glue_jobs`` share, and the functions that a notebook imports.

`register(spark)` makes `spark.read.format("penstock")` known (Spark 4). `read(spark, subscribe="orders")` returns the
same DataFrame, and works on Spark 3.5 too. docs/reference/spark-options.md lists the options.
"""

try:
    from penstock_spark.source.frames import read, register
except ModuleNotFoundError as missing:
    hint = f"{missing}: penstock_spark needs `pip install 'penstock[spark]'`"
    raise ModuleNotFoundError(hint, name=missing.name) from missing

__all__ = ["read", "register"]
