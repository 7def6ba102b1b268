"""Topics in Spark: the modules that the jobs of ``glue_jobs`` share, and the functions that a notebook imports.

`register(spark)` makes `spark.read.format("penstock")` known (Spark 4). `read(spark, subscribe="orders")` returns the
same DataFrame, and works on Spark 3.5 too. `decrypted(frame, keys)` has the values in the clear that senders have
encrypted. docs/reference/spark-options.md lists the options.
"""

from importlib.util import find_spec

_NEEDED = ("boto3", "numpy", "pyarrow", "pyspark")

if missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"No module named {missing[0]!r}: penstock_spark needs `pip install 'penstock[spark]'`", name=missing[0]
    )

from penstock_spark.source.decrypted import decrypted  # noqa: E402
from penstock_spark.source.frames import read, register  # noqa: E402

__all__ = ["decrypted", "read", "register"]
